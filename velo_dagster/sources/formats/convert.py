"""Whole columns of text to typed Arrow arrays, and to evidence, without a Python step per value where possible.

`lexical` defines which text fits which type. Arrow's casts take more than that (hexadecimal integers, leading zeros,
a day without minutes, infinities), so before a cast is used the bytes of the column are checked for everything that
the cast would take and `lexical` would not. A column that fails a check, or the cast, is read value by value instead:
the checks may refuse too much, never too little. tests/sources/formats/test_convert.py compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from velo_dagster.sources.formats import lexical, types
from velo_dagster.sources.formats.ddl import TIMESTAMP
from velo_dagster.sources.formats.lexical import BLANKS, DOES_NOT_FIT, NumberFormat
from velo_dagster.sources.formats.types import MOST_DIGITS, SHORT_DIGITS, Evidence

pc: Any = pyarrow.compute  # its functions are made at run time, out of a type checker's sight
_FEW = 64
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_MINUS, _POINT, _SLASH, _COLON, _ZERO, _NINE = (ord(mark) for mark in "-./:09")
_FIRST_INSTANT, _PAST_INSTANT = -62135596800000000, 253402300800000000  # 0001-01-01 and 10000-01-01 in microseconds
_FIRST_DAY, _PAST_DAY = -719162, 2932897
_POWERS = np.array([10**exponent for exponent in range(SHORT_DIGITS + 1)], dtype=np.int64)


def convert(strings: pa.Array, type_: pa.DataType, declared: bool = False) -> tuple[pa.Array, Mask | None]:
    """The typed column, and which rows do not fit (None: all do); those are NULL in the column."""
    if pa.types.is_string(type_):
        return strings, None
    if strings.null_count == len(strings):
        return pa.nulls(len(strings), type_), None
    array = _at_once(strings, type_)
    if array is None:
        array = _at_once(pc.utf8_trim(strings, BLANKS), type_)
    return (array, None) if array is not None else _one_by_one(strings, type_, declared)


def observe(strings: pa.Array, number_format: NumberFormat) -> Evidence:
    """The evidence of a column of text."""
    if strings.null_count == len(strings):
        return types.NOTHING
    evidence = _observe_each(strings.slice(0, _FEW), number_format)
    if evidence is types.TEXT or len(strings) <= _FEW:
        return evidence
    return _observe_at_once(strings, number_format) or _observe_each(strings, number_format)


def _observe_at_once(strings: pa.Array, number_format: NumberFormat) -> Evidence | None:
    evidence = _observe_numbers(strings, number_format)
    if evidence is not None:
        return evidence
    for type_, found in ((pa.date32(), types.ON_DATE), (TIMESTAMP, types.AT_TIME), (pa.bool_(), types.BOOLEAN)):
        if _at_once(strings, type_) is not None:
            return found
    return None


def _observe_each(strings: pa.Array, number_format: NumberFormat) -> Evidence:
    evidence = types.NOTHING
    for text in dict.fromkeys(strings.to_pylist()):
        if text is not None:
            evidence = evidence.join(lexical.observe(text, number_format))
            if evidence is types.TEXT:
                break
    return evidence


def _one_by_one(strings: pa.Array, type_: pa.DataType, declared: bool) -> tuple[pa.Array, Mask | None]:
    texts = strings.to_pylist()
    values = {text: lexical.parse(text, type_, declared) for text in dict.fromkeys(texts) if text is not None}
    misfits = np.fromiter((text is not None and values[text] is DOES_NOT_FIT for text in texts), np.bool_, len(texts))
    column = [None if text is None or values[text] is DOES_NOT_FIT else values[text] for text in texts]
    return pa.array(column, type_), misfits if misfits.any() else None


def _at_once(strings: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """The column under the type by Arrow's casts, or None if that cannot be told to be right."""
    for applies, reader in _READERS:
        if applies(type_):
            try:
                return reader(strings, type_)
            except pa.ArrowInvalid:  # some value does not fit, or is written in a way that the cast does not know
                return None
    return None


@dataclass(frozen=True)
class _Bytes:
    """The bytes of a column of text: all of them, and where each value starts and ends. NULLs are empty."""

    data: np.ndarray[Any, np.dtype[np.uint8]]
    starts: np.ndarray[Any, np.dtype[np.int64]]
    ends: np.ndarray[Any, np.dtype[np.int64]]

    @staticmethod
    def of(strings: pa.Array) -> _Bytes:
        if strings.null_count:
            strings = strings.fill_null("")
        _, offsets_buffer, data_buffer = strings.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[strings.offset : strings.offset + len(strings) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.frombuffer(data_buffer, np.uint8)[first:last] if last > first else np.empty(0, np.uint8)
        ends = offsets.astype(np.int64) - first
        return _Bytes(data, ends[:-1], ends[1:])

    def first(self, skip: Any = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The byte at `skip` of each value; 0 where the value is shorter."""
        at = self.starts + skip
        inside = at < self.ends
        if inside.all():
            return self.data[at]
        if not inside.any():
            return np.zeros(len(at), np.uint8)
        return np.where(inside, self.data[np.minimum(at, len(self.data) - 1)], 0).astype(np.uint8)

    def leading_zeros(self) -> bool:
        """Does a value have a zero before another digit of its whole part?"""
        minus = self.first() == _MINUS
        zero = self.first(minus) == _ZERO
        if not zero.any():
            return False
        after = self.first(minus + 1)
        return bool((zero & (after >= _ZERO) & (after <= _NINE)).any())


@dataclass(frozen=True)
class _Numbers:
    """A column of plain numbers: digits, a minus only at the start, at most one point. NULLs are empty."""

    bytes: _Bytes
    points: np.ndarray[Any, np.dtype[np.int64]]  # where the points are
    has_point: Mask
    fraction: np.ndarray[Any, np.dtype[np.int64]]  # digits after the point

    @staticmethod
    def of(strings: pa.Array) -> _Numbers | None:
        """None if some value is written in another way."""
        text = _Bytes.of(strings)
        data = text.data
        # Between minus, point and the digits stands only the slash.
        if not len(data) or int(data.max()) > _NINE or int(data.min()) < _MINUS or (data == _SLASH).any():
            return None
        minus = np.count_nonzero(data == _MINUS)
        if (minus and minus != np.count_nonzero(text.first() == _MINUS)) or text.leading_zeros():
            return None
        points = np.flatnonzero(data == _POINT)
        rows = len(text.starts)
        fraction = np.zeros(rows, np.int64)
        has_point = np.zeros(rows, np.bool_)
        if len(points) == rows and (points >= text.starts).all() and (points < text.ends).all():
            has_point[:] = True
        elif len(points):
            owners = np.searchsorted(text.ends, points, side="right")
            if len(points) > 1 and (owners[1:] == owners[:-1]).any():
                return None
            has_point[owners] = True
        fraction[has_point] = text.ends[has_point] - points - 1
        return _Numbers(text, points, has_point, fraction)

    def whole_digits(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Digits before the point of each value; a lone 0 counts none, as 0.5 needs none."""
        minus = self.bytes.first() == _MINUS
        digits = self.bytes.ends - self.bytes.starts - minus - self.has_point - self.fraction
        return np.where(self.bytes.first(minus) == _ZERO, 0, digits)

    def without_points(self, strings: pa.Array) -> pa.Array:
        """The same texts with the points left out, as Arrow text; NULLs stay."""
        kept = np.delete(self.bytes.data, self.points) if len(self.points) else self.bytes.data
        gone = np.cumsum(self.has_point)
        offsets = np.empty(len(strings) + 1, np.int32)
        offsets[0] = 0
        offsets[1:] = self.bytes.ends - gone
        plain = pa.StringArray.from_buffers(len(strings), pa.py_buffer(offsets), pa.py_buffer(kept))
        if not strings.null_count:
            return plain
        return pc.if_else(strings.is_valid(), plain, pa.scalar(None, pa.string()))


def _observe_numbers(strings: pa.Array, number_format: NumberFormat) -> Evidence | None:
    numbers = _Numbers.of(strings)
    if numbers is None:
        return None
    whole = numbers.whole_digits()
    written = whole + numbers.fraction > 0
    written |= numbers.bytes.first(numbers.bytes.first() == _MINUS) == _ZERO
    if np.count_nonzero(written) != len(strings) - strings.null_count:
        return None  # an empty text, a lone minus or a lone point is among them
    digits, scale = int(whole.max()), int(numbers.fraction.max())
    if digits > SHORT_DIGITS:
        return None
    if not numbers.has_point.any():
        return types.integer(digits)
    if number_format == "decimal":
        return types.number(digits, scale)
    integers = whole[~numbers.has_point]
    return types.DOUBLE.join(types.integer(int(integers.max()))) if len(integers) else types.DOUBLE


def _read_integers(strings: pa.Array, type_: pa.DataType) -> pa.Array | None:
    text = _Bytes.of(strings)
    if len(text.data) and (int(text.data.max()) > _NINE or text.leading_zeros()):
        return None
    return strings.cast(type_)


def _read_decimals(strings: pa.Array, type_: pa.DataType) -> pa.Array | None:
    numbers = _Numbers.of(strings)
    if numbers is None or int(numbers.fraction.max()) > type_.scale:
        return None
    if int(numbers.whole_digits().max()) > type_.precision - type_.scale:
        return None
    if type_.precision > SHORT_DIGITS:
        return strings.cast(type_)
    unscaled = numbers.without_points(strings).cast(pa.int64())
    values = unscaled.fill_null(0).to_numpy()
    if int(numbers.fraction.min()) != type_.scale:
        values = values * _POWERS[type_.scale - numbers.fraction]
    halves = np.empty((len(values), 2), np.int64)
    halves[:, 0] = values
    halves[:, 1] = values >> 63
    return pa.Array.from_buffers(type_, len(values), [_validity(unscaled), pa.py_buffer(halves)], unscaled.null_count)


def _validity(array: pa.Array) -> pa.Buffer | None:
    return pc.is_valid(array).buffers()[1] if array.null_count else None


def _read_floats(strings: pa.Array, type_: pa.DataType) -> pa.Array | None:
    text = _Bytes.of(strings)
    letters = text.data[text.data > _NINE]
    if len(letters) and not np.isin(letters, (ord("e"), ord("E"))).all():
        return None
    if text.leading_zeros() or (text.first() == ord("+")).any() or int((text.ends - text.starts).max()) > MOST_DIGITS:
        return None
    array = strings.cast(pa.float64()).cast(type_)
    return None if pc.any(pc.is_inf(array)).as_py() else array


def _read_dates(strings: pa.Array, type_: pa.DataType) -> pa.Array | None:
    array = strings.cast(type_)
    return array if _between(array.cast(pa.int32()), _FIRST_DAY, _PAST_DAY) else None


def _read_timestamps(strings: pa.Array, type_: pa.DataType) -> pa.Array | None:
    text = _Bytes.of(strings)
    longer_than_a_day = text.ends - text.starts > len("2025-01-01")
    if (text.first(len("2025-01-01T00"))[longer_than_a_day] != _COLON).any():
        return None
    zoned = type_.tz is not None and bool((text.data == ord("Z")).any() or (text.data == ord("+")).any())
    array = strings.cast(TIMESTAMP if zoned else pa.timestamp("us")).cast(type_)
    return array if _between(array.cast(pa.int64()), _FIRST_INSTANT, _PAST_INSTANT) else None


def _between(array: pa.Array, first: int, past: int) -> bool:
    bounds = cast(dict[str, int | None], pc.min_max(array).as_py())
    return bounds["min"] is None or (bounds["min"] >= first and cast(int, bounds["max"]) < past)


def _read_booleans(strings: pa.Array, type_: pa.DataType) -> pa.Array | None:
    lengths = pc.min_max(pc.binary_length(strings)).as_py()
    if lengths["min"] is not None and lengths["min"] < len("true"):
        return None
    return strings.cast(type_)


def _read_binary(strings: pa.Array, type_: pa.DataType) -> pa.Array:
    return strings.cast(type_)


_Reader = Callable[[pa.Array, pa.DataType], "pa.Array | None"]
_READERS: tuple[tuple[Callable[[pa.DataType], bool], _Reader], ...] = (
    (pa.types.is_integer, _read_integers),
    (pa.types.is_decimal128, _read_decimals),
    (pa.types.is_timestamp, _read_timestamps),
    (pa.types.is_date32, _read_dates),
    (pa.types.is_floating, _read_floats),
    (pa.types.is_boolean, _read_booleans),
    (pa.types.is_binary, _read_binary),
)
