"""append: a row-by-row SELECT without a key over one table; rows that are new there are mapped and appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.engine.columns import output
from velo_dagster.engine.fetched import fetched
from velo_dagster.engine.nested import JSON_TEXT
from velo_dagster.engine.refresh.differences import types
from velo_dagster.engine.refresh.rows import mapped, reads_text
from velo_dagster.engine.refresh.work import COLUMNS_MOVED, Work, Write, columns_moved, replace_all
from velo_dagster.store.few_rows import FewRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REASON = "only new rows"


def append(work: Work) -> Write:
    (only,) = work.inputs
    if work.restart:
        return replace_all(work, _output(work, only.snapshot(work.spark)), work.restart)
    if reads_text(work.plan.statement, only.snapshot(work.spark), only.system):
        return replace_all(work, _output(work, only.snapshot(work.spark)), JSON_TEXT)
    changes = only.changes(work.spark, work.keep)
    obstacle = changes.obstacle or (changes.removed and f"rows of {only.label} were changed or removed") or ""
    if changes.rows is None or obstacle:
        return replace_all(work, _output(work, only.snapshot(work.spark)), obstacle)
    rows = _output(work, changes.rows)
    if columns_moved(work, rows):
        return replace_all(work, _output(work, only.snapshot(work.spark)), COLUMNS_MOVED)

    if types(rows) == types(work.target.snapshot(work.spark)) and work.target.takes_few_rows():
        few = fetched(rows)
        if few is not None:
            return Write("append", REASON, FewRows(few, codec=work.codec), changes.count)

    def run() -> None:
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(str(work.target.path))

    return Write("append", REASON, run, changes.count)


def _output(work: Work, rows: DataFrame) -> DataFrame:
    (only,) = work.inputs
    return output(mapped(work.spark, work.plan.statement, rows, only.system), work.plan.statement)
