"""merge: a row-by-row SELECT with a PRIMARY KEY; per key the last row in source order is the one that counts.

The winner of a touched key is always found among all rows of that key, so an earlier row comes back when the winner
goes, a late row changes nothing, and a key whose winner fails the WHERE has no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.engine.columns import output, same_value
from velo_dagster.engine.nested import JSON_TEXT
from velo_dagster.engine.refresh.rows import has_misfits, key_name, keys_of, mapped, reads_text, winners, with_keys
from velo_dagster.engine.refresh.work import COLUMNS_MOVED, Work, Write, columns_moved, replace_all
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOUND = "_velo_found"
MISFITS = "a key that came or went does not fit its declared type"


def merge(work: Work) -> Write:
    (only,) = work.inputs
    statement, spark = work.plan.statement, work.spark
    snapshot = only.snapshot(spark)
    if work.restart:
        return replace_all(work, _output(work, snapshot), work.restart)
    if reads_text(statement, snapshot):
        return replace_all(work, _output(work, snapshot), JSON_TEXT)
    changes = only.changes(spark, work.keep)
    if changes.rows is None:
        return replace_all(work, _output(work, snapshot), changes.obstacle)
    if has_misfits(spark, statement, changes.rows):
        # It may have gone again meanwhile. If it has not, the SELECT over all rows refuses it.
        return replace_all(work, _output(work, snapshot), MISFITS)
    touched = work.keep(keys_of(spark, statement, changes.rows))
    rows = _output(work, with_keys(spark, statement, snapshot, touched))
    if _types(rows) != _types(work.target.snapshot(spark)):
        return replace_all(work, _output(work, snapshot), "the columns changed")
    if columns_moved(work, rows):
        return replace_all(work, _output(work, snapshot), COLUMNS_MOVED)
    return Write("merge", "keys of new or changed rows", lambda: _merge(work, touched, rows), changes.count)


def _output(work: Work, rows: DataFrame) -> DataFrame:
    statement = work.plan.statement
    return output(mapped(work.spark, statement, winners(work.spark, statement, rows)), statement)


def _types(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema}


def _merge(work: Work, touched: DataFrame, rows: DataFrame) -> None:
    """One row per touched key: gone, changed, unchanged (left alone, so that nothing downstream moves) or new."""
    from pyspark.sql import functions as f

    spelled = {name.casefold(): name for name in rows.columns}
    names = [spelled[key.casefold()] for key in work.plan.refresh.keys]
    rows.withColumn(FOUND, f.lit(True)).createOrReplaceTempView("velo_new")
    touched.createOrReplaceTempView("velo_touched")
    others = ", ".join(f"n.{quote(name)}" for name in rows.columns if name not in names)
    # As its row has it, if it has one: a distinct key shows 0.0 where the row may have -0.0.
    keys = ", ".join(
        f"if(n.{FOUND}, n.{quote(name)}, k.{key_name(n)}) AS {quote(name)}" for n, name in enumerate(names)
    )
    match = " AND ".join(f"k.{key_name(n)} <=> n.{quote(name)}" for n, name in enumerate(names))
    on = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in names)
    differs = " OR ".join(
        f"NOT ({same_value(f't.{quote(one.name)}', f's.{quote(one.name)}', one.dataType)})" for one in rows.schema
    )
    sets = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in rows.columns)
    columns = ", ".join(quote(name) for name in rows.columns)
    values = ", ".join(f"s.{quote(name)}" for name in rows.columns)
    items = ", ".join(part for part in (keys, others, f"n.{FOUND}") if part)
    source = f"SELECT {items} FROM velo_touched k LEFT JOIN velo_new n ON {match}"
    work.spark.sql(
        f"MERGE INTO delta.`{work.target.path}` t USING ({source}) s ON {on} "
        f"WHEN MATCHED AND s.{FOUND} IS NULL THEN DELETE "
        f"WHEN MATCHED AND ({differs}) THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND s.{FOUND} THEN INSERT ({columns}) VALUES ({values})"
    )
