"""Replace a small table by the rows that it should hold; where it holds just those, nothing is written.

A load that changes nothing then starts no load of what reads the table. A few thousand rows are fetched and compared
here: Spark would take longer to plan the comparison than to compute the rows.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velo_dagster.engine.columns import check_unique, exact_text, holds_floats, orderable
from velo_dagster.engine.refresh.differences import types, write_nothing
from velo_dagster.engine.refresh.work import Work, Write, replace_all
from velo_dagster.sql.names import quote
from velo_dagster.store.reader import OpenTable, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

FEW = 10_000
"""Up to so many rows are compared outside of Spark."""
SIDE = "_velo_side"


def replace_unless_same(work: Work, rows: DataFrame, method: str, reason: str) -> Write:
    """`method` is what is said where nothing is written."""
    held = open_table(work.target.path)
    if held.count() <= FEW and all(_is_plain(one.dataType) for one in rows.schema):
        made, same = _fetched(work, rows, held)
    else:
        made = work.keep(rows)
        same = _holds_just(work, made)
    if same:
        return write_nothing(work, method, 0)
    check_unique(made, work.plan)
    return replace_all(work, made, reason)


def _fetched(work: Work, rows: DataFrame, held: OpenTable) -> tuple[DataFrame, bool]:
    """The rows, computed, and whether the table holds just them. More than the table has are not fetched: they are
    not the same, and there may be any number of them."""
    found = rows.limit(FEW + 1).toArrow()
    if found.num_rows > FEW:
        return rows, False
    made = work.spark.createDataFrame(found, schema=rows.schema)
    if types(rows) != types(work.target.snapshot(work.spark)):
        return made, False
    try:
        return made, counted(found) == counted(held.to_arrow(rows.columns))
    except UnicodeDecodeError:
        # Bytes that were cast to text and are none: they are written again.
        return made, False


def _holds_just(work: Work, rows: DataFrame) -> bool:
    """Whether the table holds these rows, as often, in these columns. Rows that can't be compared never are it."""
    from pyspark.sql import functions as f

    held = work.target.snapshot(work.spark)
    if types(rows) != types(held) or not all(orderable(one.dataType) for one in rows.schema):
        return False
    both = rows.withColumn(SIDE, f.lit(1)).union(held.withColumn(SIDE, f.lit(-1)))
    names = [f.col(quote(name)) for name in rows.columns]
    signs = [f.expr(exact_text(quote(one.name), one.dataType)) for one in rows.schema if holds_floats(one.dataType)]
    counts = both.groupBy(*names, *signs).agg(f.sum(SIDE).alias(SIDE))
    return counts.where(f"{SIDE} <> 0").isEmpty()


def _is_plain(type_: DataType, *, nested: bool = False) -> bool:
    """Whether Arrow carries the type both ways unchanged, and Python can tell all of its values apart.

    A date or a timestamp inside another value may be one that Python has none for.
    """
    from pyspark.sql import types as t

    if isinstance(type_, t.ArrayType):
        return _is_plain(type_.elementType, nested=True)
    if isinstance(type_, t.StructType):
        return all(_is_plain(one.dataType, nested=True) for one in type_)
    if isinstance(type_, t.DateType | t.TimestampType | t.TimestampNTZType):
        return not nested
    return isinstance(type_, t.NumericType | t.BooleanType | t.BinaryType) or type_ == t.StringType()


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows of a table, each with how often it is there; NaN is itself, and -0.0 is not 0.0.

    >>> one, other = pa.table({"x": [0.0, None]}), pa.table({"x": [None, -0.0]})
    >>> counted(one) == counted(other), counted(one) == counted(one.take([1, 0]))
    (False, True)
    """
    columns = [_values(column) for column in table.columns]
    return Counter(zip(*columns, strict=True))


def _values(column: pa.ChunkedArray) -> Iterable[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return map(_hashable, column.to_pylist())


def _hashable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple(map(_hashable, value.values()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
