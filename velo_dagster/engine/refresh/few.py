"""Few keys, as a condition with literals: Delta then reads only the files that can hold them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW = 1000
"""More keys than that are not worth being written out."""
_WRITTEN: Mapping[str, str] = {
    "tinyint": "{}Y",
    "smallint": "{}S",
    "int": "{}",
    "bigint": "{}L",
    "boolean": "{}",
    "date": "DATE'{}'",
    "string": "CAST(X'{}' AS STRING)",
    "decimal": "CAST('{}' AS {type})",
}
"""By type, how a value is written whose text is known. Floats are not: some of theirs look different and are equal."""


def only_keys(keys: DataFrame, names: Sequence[str], alias: str) -> str:
    """A condition that holds for every row with one of the keys, and perhaps for others; `true` if there is none.

    The keys are the columns `names`, in `keys` as in the rows called `alias`.
    """
    types = {name: keys.schema[name].dataType.simpleString() for name in names}
    written = [name for name in names if _kind(types[name]) in _WRITTEN]
    shown = [f"hex({quote(name)})" if types[name] == "string" else f"CAST({quote(name)} AS STRING)" for name in written]
    if not written:
        return "true"
    found = keys.selectExpr(*shown).distinct().limit(FEW + 1).collect()
    if len(found) > FEW:
        return "true"
    columns = [(f"{alias}.{quote(name)}", types[name], {row[at] for row in found}) for at, name in enumerate(written)]
    return " AND ".join(_one_of(*one) for one in columns)


def _kind(type_: str) -> str:
    return type_.partition("(")[0]


def _one_of(column: str, type_: str, values: Collection[str | None]) -> str:
    """
    >>> _one_of("t.k", "decimal(5,2)", ["1.50", None])
    "(t.k IN (CAST('1.50' AS decimal(5,2))) OR t.k IS NULL)"
    >>> _one_of("t.k", "int", [])
    'false'
    """
    form = _WRITTEN[_kind(type_)]
    listed = ", ".join(form.format(value, type=type_) for value in sorted(one for one in values if one is not None))
    tests = [f"{column} IN ({listed})"] if listed else []
    if None in values:
        tests.append(f"{column} IS NULL")
    return f"({' OR '.join(tests)})" if tests else "false"
