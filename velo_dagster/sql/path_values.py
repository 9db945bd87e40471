"""Paths into nested data, `positions.*.shares`, `a.**.b`, `orders[*].amount`, `users[0].email`, as Spark SQL.

A path is taken apart along the type of its column. Each step leads to one value, to many (an array), or to nothing:

| step | in a struct | in a map | in an array |
|---|---|---|---|
| `.name`, `['name']` | the field | the value of the key | that of every element |
| `[n]` | – | the value of the key n | the element, counted from 0 |
| `*`, `[*]` | all fields | all values | all elements |
| `**` | the value itself, and all below it | the same | the same |

After `**`, nested values count only where there are no others.

A path with a wildcard is the array of the values found, in order; one without is a value. What is not there gives no
value: an element less in the array, or NULL. Inside an aggregate a path contributes each of its values: see `rewrite`.
A text is read as JSON: what it holds is known only when it is read, so whoever runs the query gives a function for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from velo_dagster.sql.marks import Deep, Each, Index, Name, Step
from velo_dagster.sql.names import quote
from velo_dagster.sql.nested import TEXT, UNDECIDED, Array, Map, Plain, Struct, Type, common, converted, ddl


@dataclass(frozen=True)
class TextPath:
    """A path into JSON text: the input, its column and the fields that lead to the text, the steps inside of it."""

    input: str
    column: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class TextValues:
    """A function of Spark's session that takes such a text, and gives the array of its values of that type."""

    function: str
    element: Type
    many: bool = False
    """Whether a text may have several, though the path asks for one: a name in an array means every element's."""


@dataclass(frozen=True)
class Nested:
    """What is known of the inputs: by name, the types of their columns; and how to get at values inside of texts."""

    types: Mapping[str, Mapping[str, Type]]
    text_values: Callable[[TextPath], TextValues]


@dataclass(frozen=True)
class Place:
    """A value to go on from: an expression, its type, and, while it is a column or a field of it, where it is from."""

    value: str
    type: Type
    origin: tuple[str, tuple[str, ...]] | None = None
    depth: int = 0

    def field(self, name: str, type_: Type) -> Place:
        origin = self.origin and (self.origin[0], (*self.origin[1], name))
        return Place(f"{self.value}.{quote(name)}", type_, origin, self.depth)

    def called(self, name: str) -> bool:
        """Whether it is the column of that name."""
        return self.origin is not None and self.origin[1][-1].casefold() == name.casefold()

    def into(self, value: str, type_: Type) -> Place:
        return replace(self, value=value, type=type_, origin=None)


@dataclass(frozen=True)
class Values:
    """Some of a path's values: one, which may be NULL, or an array of them, which may be NULL too."""

    value: str
    type: Type
    many: bool = False


TextReader = Callable[[TextPath], TextValues]


def values_of(place: Place, steps: Sequence[Step], texts: TextReader) -> list[Values]:
    """All that the steps lead to from here, in order."""
    if not steps:
        return [Values(place.value, place.type)]
    if place.type == TEXT and place.origin is not None:
        return _in_text(place, steps, texts)
    step, rest = steps[0], steps[1:]
    if isinstance(step, Deep):
        return plain_first(_deep(place, rest, texts))
    if isinstance(step, Each):
        return _each(place, rest, texts)
    if isinstance(step, Index):
        return _at(place, step, rest, texts)
    if isinstance(place.type, Array):
        return _each(place, steps, texts)
    return _named(place, step, rest, texts)


def _in_text(place: Place, steps: Sequence[Step], texts: TextReader) -> list[Values]:
    assert place.origin is not None
    found = texts(TextPath(*place.origin, tuple(steps)))
    if found.element == UNDECIDED:
        return []
    value = f"{found.function}({place.value})"
    if found.many or any(isinstance(step, Each | Deep) for step in steps):
        return [Values(value, found.element, many=True)]
    return [Values(f"get({value}, 0)", found.element)]


def _named(place: Place, step: Name, rest: Sequence[Step], texts: TextReader) -> list[Values]:
    if isinstance(place.type, Struct):
        field = place.type.field(step.name)
        return [] if field is None else values_of(place.field(*field), rest, texts)
    if isinstance(place.type, Map) and place.type.key == TEXT:
        key = step.name.replace("\\", "\\\\").replace("'", "\\'")
        return values_of(place.into(f"try_element_at({place.value}, '{key}')", place.type.value), rest, texts)
    return []


def _at(place: Place, step: Index, rest: Sequence[Step], texts: TextReader) -> list[Values]:
    if isinstance(place.type, Array):
        return values_of(place.into(f"get({place.value}, {step.at})", place.type.element), rest, texts)
    if isinstance(place.type, Map) and isinstance(place.type.key, Plain) and place.type.key.name in _WHOLE:
        key = f"CAST({step.at} AS {ddl(place.type.key)})"
        return values_of(place.into(f"try_element_at({place.value}, {key})", place.type.value), rest, texts)
    return []


_WHOLE = ("tinyint", "smallint", "int", "bigint")


def _each(place: Place, rest: Sequence[Step], texts: TextReader) -> list[Values]:
    if isinstance(place.type, Struct):
        # Any text may look like JSON: only one that a path names is read as such.
        below = replace(place, origin=None)
        return [one for field in place.type.fields for one in values_of(below.field(*field), rest, texts)]
    if not isinstance(place.type, Array | Map):
        return []
    return _transformed(place, lambda element: values_of(element, rest, texts))


def _transformed(place: Place, inner: Callable[[Place], list[Values]]) -> list[Values]:
    """What `inner` finds in every element of an array, or value of a map."""
    of_map = isinstance(place.type, Map)
    values = f"map_values({place.value})" if of_map else place.value
    type_ = place.type.value if isinstance(place.type, Map) else place.type.element  # type: ignore[union-attr]
    name = f"_velo_x{place.depth}"
    found = inner(Place(name, type_, None, place.depth + 1))
    if not found:
        return []
    if len(found) == 1 and not found[0].many:
        same = found[0].value == name
        return [Values(values if same else f"transform({values}, {name} -> {found[0].value})", found[0].type, True)]
    array, element = listed(found)
    return [Values(f"flatten(transform({values}, {name} -> {array}))", element, many=True)]


def _deep(place: Place, rest: Sequence[Step], texts: TextReader) -> list[Values]:
    """The value itself, then what is below it; without more steps, only values that have nothing below them."""
    nested = isinstance(place.type, Struct | Array | Map)
    if not rest:
        own = [] if nested else [Values(place.value, place.type)]
    else:
        # A name means every element of an array; these come below anyway.
        own = [] if isinstance(place.type, Array) and isinstance(rest[0], Name) else values_of(place, rest, texts)
    if isinstance(place.type, Struct):
        below = replace(place, origin=None)
        return own + [one for field in place.type.fields for one in _deep(below.field(*field), rest, texts)]
    if isinstance(place.type, Array | Map):
        return own + _transformed(place, lambda element: _deep(element, rest, texts))
    return own


def of_row(columns: Sequence[Place], steps: Sequence[Step], texts: TextReader) -> list[Values]:
    """What `**` and the steps behind it lead to from the row itself, whose columns these are by name."""
    first, rest = steps[0], steps[1:]
    own: list[Values] = []
    for column in columns:
        if isinstance(first, Each) or (isinstance(first, Name) and column.called(first.name)):
            own += values_of(replace(column, origin=None), rest, texts)
    return plain_first(own + [one for column in columns for one in _deep(replace(column, origin=None), steps, texts)])


def plain_first(found: list[Values]) -> list[Values]:
    """At any depth a name may stand for a number here and for something nested there: then numbers and texts count."""
    plain = [one for one in found if isinstance(one.type, Plain)]
    return plain or found


def listed(found: Sequence[Values]) -> tuple[str, Type]:
    """One array of all values, missing ones included as NULL, and the type of its elements. It is never NULL."""
    element = common(one.type for one in found)
    parts: list[str] = []
    singles: list[str] = []
    for one in (*found, None):
        if one is not None and not one.many:
            singles.append(converted(one.value, one.type, element))
            continue
        if singles:
            parts.append(f"array({', '.join(singles)})")
            singles = []
        if one is not None:
            value = converted_all(one.value, one.type, element)
            parts.append(f"coalesce({value}, array())")
    if not parts:
        return "array()", UNDECIDED
    return (parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"), element


def converted_all(array: str, given: Type, wanted: Type) -> str:
    if given == wanted:
        return array
    return f"transform({array}, _velo_c -> {converted('_velo_c', given, wanted)})"


def one_value(found: Sequence[Values]) -> str | None:
    """The expression of a path without a wildcard; None if it has many values after all, through a name in an array."""
    if not found:
        return "NULL"
    return found[0].value if len(found) == 1 and not found[0].many else None
