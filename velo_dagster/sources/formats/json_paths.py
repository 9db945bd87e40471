"""Paths into JSON text: the values found, and the least type that holds them, as the readers of files type them.

A text that is not JSON has no values, nor has one in which a path leads nowhere. The rules are those that
`velo_dagster.sql.path_values` has for typed columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from velo_dagster.sources.formats import types
from velo_dagster.sources.formats.json_values import NotARecord, decode_value, fit, observe
from velo_dagster.sources.formats.lexical import DOES_NOT_FIT
from velo_dagster.sources.formats.types import Evidence
from velo_dagster.sql.marks import Deep, Each, Index, Name, Step


def find(value: Any, steps: Sequence[Step]) -> list[Any]:
    """What the steps lead to; None where one of several has no value, so that two paths go side by side.

    >>> find({"p": {"A": {"n": 1}, "B": {}}}, (Name("p"), Each(), Name("n")))
    [1, None]
    >>> find({"a": {"x": [{"x": 5}]}}, (Deep(), Name("x")))
    [[{'x': 5}], 5]
    """
    if not steps:
        return [value]
    step, rest = steps[0], steps[1:]
    if isinstance(step, Deep):
        return [one for one in _deep(value, rest) if one is not None]
    if isinstance(step, Each) or (isinstance(step, Name) and isinstance(value, list)):
        following = rest if isinstance(step, Each) else steps
        one_each = not any(isinstance(other, Each | Deep) for other in following)
        return [found for child in _children(value) for found in find(child, following) or ([None] if one_each else [])]
    if isinstance(step, Index):
        return find(value[step.at], rest) if isinstance(value, list) and step.at < len(value) else []
    child = _named(value, step.name)
    return [] if child is None else find(child, rest)


def _deep(value: Any, rest: Sequence[Step]) -> list[Any]:
    if rest:
        # A name means every element of an array; these come below anyway.
        own = [] if isinstance(value, list) and isinstance(rest[0], Name) else find(value, rest)
    else:
        own = [] if isinstance(value, dict | list) else [value]
    return own + [found for child in _children(value) for found in _deep(child, rest)]


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _named(value: Any, name: str) -> Any:
    """The field of that name, else of that name in another case: columns' fields are found in any."""
    if not isinstance(value, dict):
        return None
    if name in value:
        return value[name]
    return next((item for key, item in value.items() if key.casefold() == name.casefold()), None)


@dataclass(frozen=True)
class Seen:
    """The evidence of a path's values: of plain ones, and of nested ones. `many`: a text has several of them."""

    plain: Evidence = types.NOTHING
    nested: Evidence = types.NOTHING
    many: bool = False

    def join(self, other: Seen) -> Seen:
        return Seen(self.plain.join(other.plain), self.nested.join(other.nested), self.many or other.many)


@dataclass(frozen=True)
class Found:
    """How the values of a path are given: their type, whether nested ones are left out, whether a text has several."""

    type: str
    plain_only: bool
    many: bool


def survey(texts: Iterable[str | None], steps: Sequence[Step]) -> Seen:
    """What the values of a path are, over all texts."""
    seen = Seen()
    for text in texts:
        found = _found(text, steps)
        seen = replace(seen, many=seen.many or len(found) > 1)
        for value in found:
            evidence = observe(value, "decimal")
            seen = seen.join(Seen(nested=evidence) if isinstance(value, dict | list) else Seen(plain=evidence))
    return seen


def decided(seen: Seen, steps: Sequence[Step]) -> Found | None:
    """The least type of all values; None if there are none. After `**`, nested values count if there are no others."""
    plain_only = any(isinstance(step, Deep) for step in steps) and seen.plain.type() is not None
    type_ = (seen.plain if plain_only else seen.plain.join(seen.nested)).type()
    return None if type_ is None else Found(type_, plain_only, seen.many)


def values(texts: Iterable[str | None], steps: Sequence[Step], type_: pa.DataType, plain_only: bool) -> pa.Array:
    """Per text the array of the path's values, which must fit the type."""
    return pa.array([_typed(text, steps, type_, plain_only) for text in texts], pa.list_(type_))


def _typed(text: str | None, steps: Sequence[Step], type_: pa.DataType, plain_only: bool) -> list[Any]:
    found = [None if plain_only and isinstance(one, dict | list) else one for one in _found(text, steps)]
    fitted = [fit(one, type_, declared=False, ignore_unknown=False) for one in found]
    assert not any(one is DOES_NOT_FIT for one in fitted), "the type was found from all values"
    return fitted


def _found(text: str | None, steps: Sequence[Step]) -> list[Any]:
    if text is None:
        return []
    try:
        return find(decode_value(text), steps)
    except NotARecord:  # any text may stand in the column: what is no JSON has no values
        return []
