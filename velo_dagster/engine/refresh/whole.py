"""Replace a small table by the rows that it should hold; where it holds just those, nothing is written.

A load that changes nothing then starts no load of what reads the table. A few thousand rows are fetched and compared
here: Spark would take longer to plan the comparison than to compute the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.engine.columns import check_unique, exact_text, holds_floats, orderable
from velo_dagster.engine.fetched import FEW, fetched, given
from velo_dagster.engine.refresh.differences import types, write_nothing
from velo_dagster.engine.refresh.work import Work, Write, replace_all
from velo_dagster.sql.names import quote
from velo_dagster.store.few_rows import FewRows
from velo_dagster.store.reader import OpenTable, open_table
from velo_dagster.store.values import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SIDE = "_velo_side"


def replace_unless_same(work: Work, rows: DataFrame, method: str, reason: str) -> Write:
    """`method` is what is said where nothing is written."""
    held = open_table(work.target.path)
    few = fetched(rows) if held.count() <= FEW else None
    if few is not None:
        return _by_few(work, rows, few, held, method, reason)
    made = work.keep(rows)
    if _holds_just(work, made):
        return write_nothing(work, method, 0)
    check_unique(made, work.plan)
    return replace_all(work, made, reason)


def _by_few(work: Work, rows: DataFrame, few: pa.Table, held: OpenTable, method: str, reason: str) -> Write:
    moved = types(rows) != types(work.target.snapshot(work.spark))
    if not moved and _same(few, held):
        return write_nothing(work, method, 0)
    made = given(rows, few)
    check_unique(made, work.plan)
    if not work.target.takes_whole(rows.schema.json()):
        return replace_all(work, made, reason)
    schema = rows.schema.json() if moved else None
    return Write("full", reason, FewRows(few, whole=True, schema=schema, codec=work.codec))


def _same(few: pa.Table, held: OpenTable) -> bool:
    """Whether the table holds just these rows."""
    try:
        return few.num_rows == held.count() and counted(few) == counted(held.to_arrow(few.column_names))
    except UnicodeDecodeError:
        # Bytes that were cast to text and are none: they are written again.
        return False


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
