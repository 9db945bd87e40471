"""Values that are given for the columns of a missing reference: whether a column's type has them, just as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from velo_dagster.errors import Span
from velo_dagster.plan.inputs import REFERENCE_KEYS, PlannedInput
from velo_dagster.plan.property_places import find_property, written_properties

if TYPE_CHECKING:
    from velo_dagster.sql.statements import CreateTableAs

DEFAULTS = REFERENCE_KEYS[1]
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_DAY, _CLOCK = r"\d{4}-\d\d-\d\d", r"([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?"
_TIMES = {
    "date": re.compile(_DAY),
    "timestamp_ntz": re.compile(_DAY + _CLOCK),
    "timestamp": re.compile(_DAY + _CLOCK + r"(Z|[+-]\d\d:\d\d)?"),
}
MOST_DIGITS = 300
"""Before the point: no type has numbers of more."""
ADVICE = "Give a value that the column can hold; leave it out, and it is NULL."


def unfit(defaults: Mapping[str, Any], types: Mapping[str, str | None]) -> Iterator[str]:
    """What is wrong with defaults, by sentence; `types` are those of the reference's columns, as far as they are known.

    >>> list(unfit({"Tier": 5, "credit": Decimal("1.5")}, {"tier": "STRING", "credit": "DECIMAL(9,2)"}))
    ["The default of 'Tier' is 5, which is no STRING."]
    """
    known = {name.casefold(): type_ for name, type_ in types.items()}
    for name, value in defaults.items():
        type_ = known.get(name.casefold())
        if type_ is not None and not fits(value, type_):
            shown = f"'{value}'" if isinstance(value, str) else str(value).lower() if value in (True, False) else value
            yield f"The default of '{name}' is {shown}, which is no {type_.upper()}."


def fits(value: Any, type_: str) -> bool:
    """Whether a value of JSON is one of a type, without a cast that changes it.

    >>> [fits(one, "bigint") for one in (5, Decimal("5.0"), Decimal("5.5"), 2**63, "5", True, None)]
    [True, True, False, False, False, False, True]
    >>> [fits(one, "DECIMAL(4,2)") for one in (99, 100, Decimal("9.99"), Decimal("9.990"), Decimal("9.999"))]
    [True, False, True, True, False]
    >>> [fits(one, "date") for one in ("2024-02-29", "2023-02-29", "yesterday", 20240229)]
    [True, False, False, False]
    >>> fits("x", "string"), fits(1, "double"), fits(2**53 + 1, "double"), fits("x", "array<string>")
    (True, True, False, False)
    """
    kind = type_.lower()
    if value is None:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, str):
        return kind in ("string", "binary") or _is_time(value, kind)
    if not isinstance(value, int | Decimal) or Decimal(value).adjusted() > MOST_DIGITS:
        return False
    if kind in ("float", "double"):
        return isinstance(value, Decimal) or int(float(value)) == value
    number = Fraction(value)
    if kind in _BITS:
        most = 2 ** (_BITS[kind] - 1)
        return number.denominator == 1 and -most <= number < most
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return False
    digits = number * 10 ** int(decimal[2])
    return digits.denominator == 1 and abs(digits) < 10 ** int(decimal[1])


def _is_time(text: str, kind: str) -> bool:
    if kind not in _TIMES or _TIMES[kind].fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def defaults_place(statement: CreateTableAs, planned: PlannedInput) -> Span:
    """Where the defaults of a reference are written; else where it is read."""
    given = planned.properties.get(DEFAULTS, "")
    found = find_property(written_properties(statement), DEFAULTS, given, planned.name)
    return found.value_span if found is not None else planned.span
