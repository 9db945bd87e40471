"""merge: a row-by-row SELECT with a PRIMARY KEY; per key the last row in source order is the one that counts.

The winner of a touched key is always found among all rows of that key, so an earlier row comes back when the winner
goes, a late row changes nothing, and a key whose winner fails the WHERE has no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.engine.columns import output
from velo_dagster.engine.nested import JSON_TEXT
from velo_dagster.engine.refresh.differences import How, computed, held_with, write_differences
from velo_dagster.engine.refresh.rows import has_misfits, keys_of, mapped, reads_text, winners, with_keys
from velo_dagster.engine.refresh.work import COLUMNS_MOVED, Work, Write, columns_moved, replace_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = "keys of new or changed rows"
MISFITS = "a key that came or went does not fit its declared type"


def merge(work: Work) -> Write:
    (only,) = work.inputs
    statement, spark = work.plan.statement, work.spark
    snapshot = only.snapshot(spark)
    if work.restart:
        return replace_all(work, _output(work, snapshot), work.restart)
    if reads_text(statement, snapshot, only.system):
        return replace_all(work, _output(work, snapshot), JSON_TEXT)
    changes = only.changes(spark, work.keep)
    if changes.rows is None:
        return replace_all(work, _output(work, snapshot), changes.obstacle)
    if has_misfits(spark, statement, changes.rows, only.system):
        # It may have gone again meanwhile. If it has not, the SELECT over all rows refuses it.
        return replace_all(work, _output(work, snapshot), MISFITS)
    touched, few = computed(work, keys_of(spark, statement, changes.rows, only.system))
    rows = _output(work, with_keys(spark, statement, snapshot, touched, only.system))
    if _types(rows) != _types(work.target.snapshot(spark)):
        return replace_all(work, _output(work, snapshot), "the columns changed")
    if columns_moved(work, rows):
        return replace_all(work, _output(work, snapshot), COLUMNS_MOVED)
    spelled = {name.casefold(): name for name in rows.columns}
    names = [spelled[key.casefold()] for key in work.plan.refresh.keys]
    keys = touched.toDF(*names)
    held = held_with(work, names, keys, None if few is None else few.rename_columns(names))
    return write_differences(
        work, rows=rows, held=held, keys=names, unique=True, rows_read=changes.count, how=How("merge", KEYS)
    )


def _output(work: Work, rows: DataFrame) -> DataFrame:
    (only,) = work.inputs
    statement = work.plan.statement
    return output(
        mapped(work.spark, statement, winners(work.spark, statement, rows, only.system), only.system), statement
    )


def _types(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema}
