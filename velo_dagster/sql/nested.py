"""Types of columns as far as a path needs to know them: what has fields, values or elements, and of what type.

They are read from the form in which Spark and Delta write a type as JSON, so nothing of either is needed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from velo_dagster.sql.names import quote

MOST_DIGITS = 38


@dataclass(frozen=True)
class Plain:
    """A type without parts, by its name in SQL."""

    name: str


@dataclass(frozen=True)
class Struct:
    fields: tuple[tuple[str, Type], ...]

    def field(self, name: str) -> tuple[str, Type] | None:
        """The field of that name in any case, with its own spelling."""
        return next((one for one in self.fields if one[0].casefold() == name.casefold()), None)


@dataclass(frozen=True)
class Array:
    element: Type


@dataclass(frozen=True)
class Map:
    key: Type
    value: Type


Type = Plain | Struct | Array | Map

TEXT = Plain("string")
UNDECIDED = Plain("void")
_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def read_type(plain: Any) -> Type:
    """
    >>> read_type({"type": "array", "elementType": "long", "containsNull": True})
    Array(element=Plain(name='bigint'))
    """
    if isinstance(plain, str):
        return Plain(_NAMES.get(plain, plain))
    if plain["type"] == "struct":
        return Struct(tuple((field["name"], read_type(field["type"])) for field in plain["fields"]))
    if plain["type"] == "array":
        return Array(read_type(plain["elementType"]))
    if plain["type"] == "map":
        return Map(read_type(plain["keyType"]), read_type(plain["valueType"]))
    return Plain(str(plain["type"]))


def ddl(type_: Type) -> str:
    """The type as Spark SQL.

    >>> ddl(Struct((("a b", Array(TEXT)),)))
    'STRUCT<`a b`: ARRAY<STRING>>'
    """
    if isinstance(type_, Struct):
        return f"STRUCT<{', '.join(f'{quote(name)}: {ddl(field)}' for name, field in type_.fields)}>"
    if isinstance(type_, Array):
        return f"ARRAY<{ddl(type_.element)}>"
    if isinstance(type_, Map):
        return f"MAP<{ddl(type_.key)}, {ddl(type_.value)}>"
    return type_.name.upper()


def common(types: Iterable[Type]) -> Type:
    """The least type that holds every value of all: numbers stay exact, what has nothing in common is text.

    >>> common([Plain("int"), Plain("decimal(18,2)")]), common([Plain("bigint"), TEXT])
    (Plain(name='decimal(18,2)'), Plain(name='string'))
    """
    return reduce(_join, types, UNDECIDED)


def _join(a: Type, b: Type) -> Type:
    if a == b or b == UNDECIDED:
        return a
    if a == UNDECIDED:
        return b
    if isinstance(a, Array) and isinstance(b, Array):
        return Array(_join(a.element, b.element))
    if not (isinstance(a, Plain) and isinstance(b, Plain)):
        return TEXT
    exact = _digits(a), _digits(b)
    if exact[0] is not None and exact[1] is not None:
        return _number(a, b, exact[0], exact[1])
    floats = {a.name, b.name} & {"float", "double"}
    if floats and all(one.name in floats or _digits(one) is not None for one in (a, b)):
        return Plain("double")
    return Plain("timestamp") if {a.name, b.name} <= {"date", "timestamp", "timestamp_ntz"} else TEXT


def _digits(type_: Plain) -> tuple[int, int] | None:
    """Digits before and after the point of an exact number."""
    if type_.name in _DIGITS:
        return _DIGITS[type_.name], 0
    found = _DECIMAL.fullmatch(type_.name)
    return (int(found[1]) - int(found[2]), int(found[2])) if found else None


def _number(a: Plain, b: Plain, first: tuple[int, int], second: tuple[int, int]) -> Type:
    if a.name in _DIGITS and b.name in _DIGITS:
        return max(a, b, key=lambda one: _DIGITS[one.name])
    digits, scale = max(first[0], second[0]), max(first[1], second[1])
    return Plain(f"decimal({digits + scale},{scale})") if digits + scale <= MOST_DIGITS else TEXT


def converted(value: str, given: Type, wanted: Type) -> str:
    """The value in a type that `common` found for it."""
    if given == wanted:
        return value
    if wanted == TEXT and not isinstance(given, Plain):
        return f"to_json({value})"
    return f"CAST({value} AS {ddl(wanted)})"
