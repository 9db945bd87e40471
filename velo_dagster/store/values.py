"""Rows as Python values that are equal only where the rows are the same: so few rows are compared without Spark."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def counted(table: pa.Table) -> Counter[Row]:
    """The rows of a table, each with how often it is there.

    >>> one, other = pa.table({"x": [0.0, None]}), pa.table({"x": [None, -0.0]})
    >>> counted(one) == counted(other), counted(one) == counted(one.take([1, 0]))
    (False, True)
    """
    return Counter(row_values(table))


def row_values(table: pa.Table) -> Iterator[Row]:
    """One value per row; NaN is itself, and -0.0 is not 0.0. A text that is none raises UnicodeDecodeError."""
    if not table.num_columns:
        return iter([()] * table.num_rows)
    return zip(*(_values(column) for column in table.columns), strict=True)


def _values(column: pa.ChunkedArray) -> Iterable[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    plain = not (pa.types.is_floating(column.type) or pa.types.is_nested(column.type))
    return column.to_pylist() if plain else map(_hashable, column.to_pylist())


def _hashable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple(map(_hashable, value.values()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
