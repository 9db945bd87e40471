"""What was seen in a column, and the least type that holds it.

`Evidence` is a point in a lattice: nothing seen at the bottom, text at the top. `join` is its least upper bound, so the
evidence of all values does not depend on how, or in which order, they were delivered. The type is read off the
evidence, and it only ever rises with it. From that follows what a load relies on:

    if T is the type of some of the values, and every value fits T, then T is the type of all of them.

So a load may infer T from a sample and read with it: either a value does not fit, and everything is surveyed, or T is
what a survey would have found. It holds because "fits" means nothing but: joining the value's evidence leaves T as is.

Decisions that a user can see:
- A number written with superfluous leading zeros ("007") or with a plus sign is text: postcodes and phone numbers keep
  their form. "-0" is a number.
- A number with a point or an exponent is a decimal; its scale is what was written ("1.50" has two digits).
- {} and [] alone decide nothing, like NULL: no type can be named for them yet.
- Two fields of one object whose names differ only in case make the object text, since Spark could not tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import pyarrow as pa

from velo_dagster.sources.formats.ddl import struct_ddl, to_arrow, to_ddl

Kind = Literal["null", "hollow", "boolean", "number", "date", "timestamp", "object", "array", "text"]

MOST_DIGITS = 38
SHORT_DIGITS = 18
_CAP = 999  # digit counts beyond any decimal type are all alike


@dataclass(frozen=True)
class Evidence:
    """What was seen in a column so far. Immutable; `join` is commutative, associative and idempotent.

    For numbers: the most digits before the point, the most after it, whether any had a point or an exponent, whether an
    integer left 64 bits, whether any is to be read as DOUBLE (`number.format = double`).
    """

    kind: Kind = "null"
    digits: int = 0
    scale: int = 0
    point: bool = False
    wide: bool = False
    double: bool = False
    fields: tuple[tuple[str, Evidence], ...] = ()
    element: Evidence | None = None

    def join(self, other: Evidence) -> Evidence:
        """The evidence of both."""
        if self == other or other.kind == "null":
            return self
        if self.kind == "null":
            return other
        kinds = {self.kind, other.kind}
        if kinds == {"date", "timestamp"}:
            return AT_TIME
        if len(kinds) > 1:
            return HOLLOW if self.type() is None and other.type() is None else TEXT
        if self.kind == "number":
            return Evidence(
                "number",
                max(self.digits, other.digits),
                max(self.scale, other.scale),
                self.point or other.point,
                self.wide or other.wide,
                self.double or other.double,
            )
        if self.kind == "object":
            return record(join_columns(dict(self.fields), dict(other.fields)))
        assert self.element is not None and other.element is not None
        return replace(self, element=self.element.join(other.element))

    def type(self) -> str | None:
        """The least Spark type that holds all of it; None while nothing decides it."""
        if self.kind == "number":
            return self._number_type()
        if self.kind == "object":
            return self._object_type()
        if self.kind == "array":
            assert self.element is not None
            element = self.element.type()
            return None if element is None else f"ARRAY<{element}>"
        return _TYPES[self.kind]

    def _number_type(self) -> str:
        if self.digits + self.scale > MOST_DIGITS:
            return "STRING"
        if self.double:
            return "DOUBLE"
        if not self.point:
            return f"DECIMAL({MOST_DIGITS},0)" if self.wide else "BIGINT"
        precision = SHORT_DIGITS if self.digits + self.scale <= SHORT_DIGITS else MOST_DIGITS
        return f"DECIMAL({precision},{self.scale})"

    def _object_type(self) -> str | None:
        decided = [(name, type_) for name, field in self.fields if (type_ := field.type()) is not None]
        if not decided:
            return None
        if len({name.lower() for name, _ in decided}) < len(decided):
            return "STRING"
        return struct_ddl(decided)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without what is at its default."""
        plain: dict[str, Any] = {"kind": self.kind}
        plain |= {
            key: getattr(self, key) for key in ("digits", "scale", "point", "wide", "double") if getattr(self, key)
        }
        if self.fields:
            plain["fields"] = {name: field.to_json() for name, field in self.fields}
        if self.element is not None:
            plain["element"] = self.element.to_json()
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Evidence:
        """
        >>> Evidence.from_json(number(3, 2).to_json()) == number(3, 2)
        True
        """
        values = dict(plain)
        fields = {name: Evidence.from_json(field) for name, field in values.pop("fields", {}).items()}
        element = values.pop("element", None)
        return Evidence(
            **values,
            fields=tuple(sorted(fields.items())),
            element=None if element is None else Evidence.from_json(element),
        )


NOTHING = Evidence()
BOOLEAN = Evidence("boolean")
ON_DATE = Evidence("date")
AT_TIME = Evidence("timestamp")
TEXT = Evidence("text")
HOLLOW = Evidence("hollow")  # both {} and []: still undecided, but with anything that decides it will be text
DOUBLE = Evidence("number", point=True, double=True)

_TYPES: dict[str, str | None] = {
    "null": None,
    "hollow": None,
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "text": "STRING",
}


def integer(digits: int, wide: bool = False) -> Evidence:
    """An integer with that many digits; `wide` if it leaves 64 bits."""
    return Evidence("number", min(digits, _CAP), wide=wide)


def number(digits: int, scale: int) -> Evidence:
    """A number written with a point or an exponent.

    >>> number(2, 2).join(integer(17)).type()
    'DECIMAL(38,2)'
    """
    return Evidence("number", min(digits, _CAP), min(scale, _CAP), point=True)


def record(fields: Mapping[str, Evidence]) -> Evidence:
    """An object with these fields; kept by name, so that the order of delivery leaves no trace."""
    return Evidence("object", fields=tuple(sorted(fields.items())))


def array(elements: Iterable[Evidence]) -> Evidence:
    """An array with these elements."""
    return Evidence("array", element=reduce(Evidence.join, elements, NOTHING))


def join_columns(mine: Mapping[str, Evidence], other: Mapping[str, Evidence]) -> dict[str, Evidence]:
    """The evidence per column of both, mine first."""
    joined = dict(mine)
    for name, evidence in other.items():
        joined[name] = joined[name].join(evidence) if name in joined else evidence
    return joined


def join_types(a: str | None, b: str | None) -> str | None:
    """The least type that holds every value of both types: for files that bring their own types.

    >>> join_types("INT", "BIGINT"), join_types("DECIMAL(10,2)", "DECIMAL(18,4)"), join_types("DATE", "BIGINT")
    ('BIGINT', 'DECIMAL(18,4)', 'STRING')
    """
    if a is None or b is None:
        return a if b is None else b
    return to_ddl(_join_arrow(to_arrow(a), to_arrow(b)))


_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_TIME_TYPES = {pa.date32(), to_arrow("TIMESTAMP"), to_arrow("TIMESTAMP_NTZ")}


def _join_arrow(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if a == b:
        return a
    if a in _INTEGER_DIGITS and b in _INTEGER_DIGITS:
        return max(a, b, key=_INTEGER_DIGITS.__getitem__)
    floating = _join_floating(a, b)
    if floating is not None:
        return floating
    if {a, b} <= _TIME_TYPES:
        return to_arrow("TIMESTAMP") if to_arrow("TIMESTAMP") in (a, b) else to_arrow("TIMESTAMP_NTZ")
    digits_a, digits_b = _decimal_digits(a), _decimal_digits(b)
    if digits_a and digits_b:
        return _decimal_for(max(digits_a[0], digits_b[0]), max(digits_a[1], digits_b[1]))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(pa.field("element", _join_arrow(a.value_type, b.value_type)))
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return _join_structs(a, b)
    return pa.string()


def _join_floating(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The floating type that holds both exactly: 24 bits of mantissa hold 16-bit integers, 53 bits 32-bit ones."""
    small, medium = {pa.int8(), pa.int16()}, {pa.int8(), pa.int16(), pa.int32()}
    if pa.float64() in (a, b) and {a, b} <= medium | {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.float32() in (a, b) and {a, b} <= medium | {pa.float32()}:
        return pa.float32() if {a, b} <= small | {pa.float32()} else pa.float64()
    return None


def _decimal_digits(type_: pa.DataType) -> tuple[int, int] | None:
    """Digits before and after the point that an exact number type has room for."""
    if pa.types.is_decimal128(type_):
        return type_.precision - type_.scale, type_.scale
    return (_INTEGER_DIGITS[type_], 0) if type_ in _INTEGER_DIGITS else None


def _decimal_for(digits: int, scale: int) -> pa.DataType:
    if digits + scale > MOST_DIGITS:
        return pa.string()
    return pa.decimal128(digits + scale, scale)


def _join_structs(a: pa.StructType, b: pa.StructType) -> pa.DataType:
    fields = {field.name: field.type for field in a}
    for field in b:
        fields[field.name] = _join_arrow(fields[field.name], field.type) if field.name in fields else field.type
    if len({name.lower() for name in fields}) < len(fields):
        return pa.string()
    return pa.struct(list(fields.items()))
