"""JSON lines to typed columns at once, by Arrow's JSON reader, where that cannot differ from `json_values`.

Arrow's reader keeps numbers as text until it converts them, so it is exact; but it takes more than it should, and some
input ends the process. What is checked before it sees a block, and after:

- Every line starts with { and ends with }. So a line end never stands inside a record (between } and { there can be
  none in valid JSON), and as many rows as lines means one row per line. It also keeps away lines such as `null`, on
  which the reader crashes.
- No line can be nested too deeply, on which it crashes as well.
- No decimal is quoted, or written with more digits behind the point than its column has: it would take "1" for 1 and
  drop the last digit of 1.50. Searched for by the column's name, so a name with an escape in it is refused, too.
- No integer of more than 38 digits stands where there are doubles; no NaN or Infinity was read.
- Fields beyond the schema, at any depth, hold nothing that decides a type; where there are any at the top, the caller
  is told their names.

Whatever fails a check, or the reader itself, is read value by value. The checks may refuse too much, never too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from velo_dagster.sources.formats import convert, types
from velo_dagster.sources.formats.json_values import MOST_DEPTH
from velo_dagster.sources.formats.records import Offsets
from velo_dagster.sources.formats.types import MOST_DIGITS, Evidence

pc: Any = pyarrow.compute  # its functions are made at run time, out of a type checker's sight

_OPEN, _CLOSE = ord("{"), ord("}")
_BLANKS = r"[ \t\r]*"
_ESCAPED_NAME = rf'\\[^"]*"{_BLANKS}:'


@dataclass(frozen=True)
class Column:
    """A column to read: its type (the null type while undecided), and whether the user declared it."""

    name: str
    type: pa.DataType
    declared: bool = False


class ColumnReader:
    """Reads blocks of JSON lines as the same columns."""

    def __init__(self, columns: Sequence[Column], ignore_unknown: bool) -> None:
        self.columns = columns
        self.ignore_unknown = ignore_unknown
        self.names = frozenset(column.name for column in columns)
        self.usable = all(_is_readable(column.type) for column in columns)
        leaves = [leaf for column in columns for leaf in _leaves(column.name, column.type)]
        self._refused = _refused_pattern(leaves, ignore_unknown)
        fields = [(column.name, _read_type(column.type)) for column in columns if not pa.types.is_null(column.type)]
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(fields),
            unexpected_field_behavior="ignore" if ignore_unknown else "infer",
        )

    def read(self, data: bytes, starts: Offsets, ends: Offsets) -> tuple[list[pa.Array], dict[str, pa.Array]] | None:
        """The columns of these lines, and what Arrow read them from; None if they must be read value by value."""
        table = self._table(data, starts, ends)
        if table is None:
            return None
        raw = {name: _one_chunk(table[name]) for name in table.column_names}
        if not all(name in self.names or is_undecided(array.type) for name, array in raw.items()):
            return None
        arrays: list[pa.Array] = []
        for column in self.columns:
            array = pa.nulls(len(starts), column.type)
            if column.name in raw:
                array = conform(raw[column.name], column.type, column.declared)
            if array is None:
                return None
            arrays.append(array)
        return arrays, raw

    def _table(self, data: bytes, starts: Offsets, ends: Offsets) -> pa.Table | None:
        if not self.usable or not self._looks_safe(data, starts, ends):
            return None
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=self._options,
            )
        except pa.ArrowInvalid:  # something is not JSON, or does not fit: `json_values` will say what
            return None
        return table if table.num_rows == len(starts) else None

    def _looks_safe(self, data: bytes, starts: Offsets, ends: Offsets) -> bool:
        octets = np.frombuffer(data, np.uint8)
        if not (octets[starts] == _OPEN).all() or not (octets[ends - 1] == _CLOSE).all():
            return False
        for index in np.flatnonzero(ends - starts > 2 * MOST_DEPTH).tolist():
            start, end = int(starts[index]), int(ends[index])
            if data.count(b"{", start, end) + data.count(b"[", start, end) > MOST_DEPTH:
                return False
        if self._refused is None:
            return True
        whole = pa.Array.from_buffers(
            pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
        )
        patterns = [self._refused] if b"\\" not in data else [self._refused, _ESCAPED_NAME]
        return not any(pc.match_substring_regex(whole, pattern)[0].as_py() for pattern in patterns)


def _one_chunk(chunks: pa.ChunkedArray) -> pa.Array:
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def conform(array: pa.Array, type_: pa.DataType, declared: bool) -> pa.Array | None:
    """An array that Arrow's JSON reader made, as the type it was read for; None if it must be read value by value."""
    if pa.types.is_null(type_):
        return pa.nulls(len(array), type_) if is_undecided(array.type) else None
    if pa.types.is_temporal(type_):
        typed, misfits = convert.convert(array, type_, declared)
        return None if misfits is not None else typed
    if pa.types.is_struct(type_):
        return _conform_struct(array, type_, declared)
    if pa.types.is_list(type_):
        values = conform(array.values, type_.value_type, declared)
        mask = array.is_null() if array.null_count else None
        return None if values is None else pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=mask)
    if pa.types.is_floating(type_):
        array = array.cast(type_)
        return array if pc.all(pc.is_finite(array), min_count=0).as_py() else None
    if pa.types.is_decimal(type_):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:  # more digits than the type has
            return None
    return array


def _conform_struct(array: pa.StructArray, type_: pa.StructType, declared: bool) -> pa.Array | None:
    known = {field.name for field in type_}
    if not all(field.name in known or is_undecided(field.type) for field in array.type):
        return None
    children = [conform(array.field(field.name), field.type, declared) for field in type_]
    if any(child is None for child in children):
        return None
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)


def is_undecided(type_: pa.DataType) -> bool:
    """Whether what Arrow inferred holds nothing that decides a type: only NULLs, {} and []."""
    if pa.types.is_list(type_):
        return is_undecided(type_.value_type)
    if pa.types.is_struct(type_):
        return all(is_undecided(field.type) for field in type_)
    return pa.types.is_null(type_)


def evidence_of(array: pa.Array, guess: Evidence) -> Evidence:
    """The evidence of all values, given that they were read with the type of the guess, made from some of them.

    The guess has kinds and scales right, or a value would not have fitted. Values may have more digits than it says,
    and there may be more that decides nothing: {}, [], NULL.
    """
    if is_undecided(array.type):
        return _shape(array.type)
    if guess.kind == "number" and not guess.double:
        bounds = [abs(int(value)) for value in pc.min_max(array).as_py().values() if value is not None]
        digits = max((len(str(bound)) for bound in bounds if bound), default=0)
        return Evidence("number", digits, guess.scale, guess.point, guess.wide).join(guess)
    if guess.kind == "object":
        known = dict(guess.fields)
        fields = [(field.name, known.get(field.name, types.NOTHING)) for field in array.type]
        return types.record({name: evidence_of(array.field(name), field) for name, field in fields}).join(guess)
    if guess.kind == "array" and guess.element is not None:
        return types.array([evidence_of(array.values, guess.element)]).join(guess)
    return guess


def _shape(type_: pa.DataType) -> Evidence:
    """The evidence of what decides nothing."""
    if pa.types.is_list(type_):
        return types.array([_shape(type_.value_type)])
    if pa.types.is_struct(type_):
        return types.record({field.name: _shape(field.type) for field in type_})
    return types.NOTHING


def _is_readable(type_: pa.DataType) -> bool:
    """Whether Arrow's JSON reader reads the type as `json_values` defines it."""
    if pa.types.is_struct(type_):
        return all(_is_readable(field.type) for field in type_)
    if pa.types.is_list(type_):
        return _is_readable(type_.value_type)
    return not (pa.types.is_map(type_) or pa.types.is_binary(type_))


def _read_type(type_: pa.DataType) -> pa.DataType:
    """What to ask of Arrow's reader: dates and timestamps as text, for `convert` to read; floats as doubles."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _read_type(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(pa.field(type_.value_field.name, _read_type(type_.value_type)))
    if pa.types.is_temporal(type_):
        return pa.string()
    return pa.float64() if pa.types.is_floating(type_) else type_


def _leaves(name: str | None, type_: pa.DataType) -> Iterator[tuple[str | None, pa.DataType]]:
    """The plain types within a type, each with the name it is written behind; None for elements of an array."""
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(field.name, field.type)
    elif pa.types.is_list(type_):
        yield from _leaves(None, type_.value_type)
    else:
        yield name, type_


def _refused_pattern(leaves: Sequence[tuple[str | None, pa.DataType]], ignore_unknown: bool) -> str | None:
    """What the bytes must not hold, as one expression."""
    refused = {_refused_decimal(name, type_.scale) for name, type_ in leaves if pa.types.is_decimal(type_)}
    if any(pa.types.is_floating(type_) for _, type_ in leaves):
        refused.add(f"[0-9]{{{MOST_DIGITS + 1}}}")
    if ignore_unknown:
        # A field that is passed over is not looked at, yet its record is bad.
        refused.add(rf"[:,\[]{_BLANKS}-?(?:NaN|Inf)")
    return "|".join(sorted(refused)) or None


def _refused_decimal(name: str | None, scale: int) -> str:
    """A decimal that is quoted, has more digits behind the point than its column, or a negative exponent."""
    number = rf"-?[0-9]+(?:\.[0-9]*[eE]-|\.[0-9]{{{scale + 1}}}|[eE]-)"
    if name is None:
        quoted = rf'"(?:[^"\\]|\\.)*"{_BLANKS}[,\]]'
        return rf"[\[,]{_BLANKS}(?:{number}|{quoted})"
    plain = name.isascii() and name.isprintable() and not set(name) & set('"\\')
    key = re.escape(name) if plain else ""
    return f'{key}"{_BLANKS}:{_BLANKS}(?:"|{number})'
