"""Few rows are committed without Spark: what Spark then reads, or passes over, is what it would have written."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.store.test_table import newest, record, version
from velo_dagster.crash import crash_point
from velo_dagster.store import few_rows
from velo_dagster.store.few_rows import FewRows
from velo_dagster.store.reader import to_arrow
from velo_dagster.store.table import Overtaken, Table, TidiedUp, Warehouse
from velo_dagster.store.values import counted

SQL = """
SELECT * FROM VALUES
    (1L, 'a', 1.5D, DATE'2024-01-31', TIMESTAMP'2024-01-31 10:00:00.000001', 12345678901234567890.12BD, array(1, 2),
        true),
    (2L, 'Zoë', DOUBLE('NaN'), DATE'0044-03-15', TIMESTAMP'1900-01-01 00:00:00', -1BD, array(), false),
    (2L, 'Zoë', DOUBLE('NaN'), DATE'0044-03-15', TIMESTAMP'1900-01-01 00:00:00', -1BD, array(), false),
    (3L, NULL, -0.0D, NULL, NULL, NULL, NULL, NULL),
    (NULL, 'long {}', 0.0D, DATE'9999-12-31', NULL, 0BD, array(CAST(NULL AS INT)), NULL)
AS t(id, s, x, d, t, n, l, b)
""".format("x" * 50)


@pytest.fixture
def table(tmp_path: Path, spark) -> Table:
    """Rows of many types, written by Spark as the first load."""
    made = Warehouse(str(tmp_path)).table("orders")
    made.commit(spark, record(1, "a"), lambda: spark.sql(SQL).write.format("delta").save(str(made.path)))
    return made


def held(table: Table) -> pa.Table:
    return to_arrow(table.path)


def read_by_spark(spark, table: Table) -> Counter:
    return counted(table.snapshot(spark).toArrow())


def fed(spark, table: Table, since: int) -> Counter[str]:
    feed = table.changes(spark, since, version(table)).collect()
    return Counter(f"{row['_change_type']} {row['id']}" for row in feed)


def empty(spark, table: Table) -> None:
    """The first load, without a row."""
    rows = spark.sql(SQL).where("false").write.format("delta")
    table.commit(spark, record(1, "a"), lambda: rows.save(str(table.path)))


def test_rows_are_added(spark, table: Table):
    before = held(table)
    assert table.takes_few_rows()
    made = table.commit(spark, record(2, "b"), FewRows(before.slice(0, 2)))
    assert (made.version, made.load, made.attempt, made.rows_changed) == (1, 2, "b", 2)
    assert read_by_spark(spark, table) == counted(pa.concat_tables([before, before.slice(0, 2)]))
    assert sum(fed(spark, table, 0).values()) == 2


def test_equal_rows_go_together_and_no_other(spark, table: Table):
    """-0.0 stays where 0.0 goes, NaN and NULL are found, and the feed tells what happened."""
    before = held(table)
    rows = before.to_pylist()
    twice = [n for n, row in enumerate(rows) if row["id"] == 2]
    zero = next(n for n, row in enumerate(rows) if row["id"] is None)
    gone = before.take([*twice, zero])
    came = before.take([zero]).set_column(1, "s", pa.array(["new"]))
    few = FewRows(came, gone, ["update_postimage"], ["delete", "delete", "update_preimage"])
    made = table.commit(spark, record(2, "b"), few)
    assert made.rows_changed == 3
    assert read_by_spark(spark, table) == counted(before) - counted(gone) + counted(came)
    assert fed(spark, table, 0) == {"delete 2": 2, "update_preimage None": 1, "update_postimage None": 1}


def test_all_rows_are_replaced_by_rows_with_other_columns(spark, table: Table):
    other = spark.sql("SELECT 1L AS id, CAST(2.50 AS DECIMAL(18,2)) AS price, named_struct('a', 1, 'b', 'x') AS s")
    few = FewRows(other.toArrow(), whole=True, schema=other.schema.json())
    made = table.commit(spark, record(2, "b", method="full"), few)
    assert made.rows_changed == 5, "those that went are more"
    assert [tuple(row) for row in table.snapshot(spark).collect()] == [(1, Decimal("2.50"), (1, "x"))]
    assert [one.dataType for one in table.snapshot(spark).schema][:2] == [one.dataType for one in other.schema][:2]
    other.drop("price").write.format("delta").mode("append").save(str(table.path))
    assert table.snapshot(spark).where("price IS NULL").count() == 1, "Spark writes to it as before"


def test_nothing_is_a_commit_too(spark, table: Table):
    made = table.commit(spark, record(2, "b", positions={"at": 2}), FewRows(held(table).slice(0, 0)))
    assert (made.rows_changed, newest(table).positions) == (0, {"at": 2})
    assert fed(spark, table, 0) == {}


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("x > 1000", 2),
        ("x = DOUBLE('NaN')", 2),
        ("x = 0", 2),
        ("n > 12345678901234567890.11", 1),
        ("n < 12345678901234567890.13", 4),
        ("t > TIMESTAMP'2024-01-31 10:00:00'", 1),
        ("s > 'long x'", 1),
        ("s IS NULL", 1),
        ("id = 2", 2),
        ("id > 2", 1),
        ("d < DATE'0100-01-01'", 2),
        ("b", 1),
    ],
)
def test_spark_passes_over_no_file_that_it_needs(spark, tmp_path: Path, condition: str, count: int):
    """NaN is greater than all other numbers, and a decimal has more digits than a float: a wrong bound loses rows."""
    table = Warehouse(str(tmp_path)).table("orders")
    empty(spark, table)
    for n, row in enumerate(spark.sql(SQL).toArrow().to_batches(max_chunksize=1), 2):
        table.commit(spark, record(n, f"a{n}"), FewRows(pa.Table.from_batches([row])))
    assert table.snapshot(spark).where(condition).count() == count
    together = Warehouse(str(tmp_path / "one")).table("orders")
    empty(spark, together)
    together.commit(spark, record(2, "b"), FewRows(spark.sql(SQL).toArrow()))
    assert together.snapshot(spark).where(condition).count() == count


def test_a_load_that_was_made_is_not_made_again(spark, table: Table):
    one = held(table).slice(0, 1)
    table.commit(spark, record(2, "b"), FewRows(one))
    with pytest.raises(Overtaken, match="Another run made load 2"):
        table.commit(spark, record(2, "c"), FewRows(one))
    with pytest.raises(Overtaken):
        table.commit(spark, record(2, "d"), lambda: table.snapshot(spark).write.mode("append").save(str(table.path)))
    assert held(table).num_rows == 6


def test_whoever_comes_second_changes_nothing(spark, table: Table, monkeypatch: pytest.MonkeyPatch):
    """Another run commits between the look at the log and the commit: it may have replaced what was looked at."""
    one = held(table).slice(0, 1)

    def another_run(name: str) -> None:
        crash_point(name)
        monkeypatch.undo()
        table.commit(spark, record(load, "other"), FewRows(one))

    load = 2
    monkeypatch.setattr(few_rows, "crash_point", another_run)
    with pytest.raises(Overtaken):
        table.commit(spark, record(2, "mine"), FewRows(one))
    assert (newest(table).attempt, held(table).num_rows) == ("other", 6)

    def tidying(name: str) -> None:
        crash_point(name)
        monkeypatch.undo()
        table.compact(spark, keep_hours=168)

    monkeypatch.setattr(few_rows, "crash_point", tidying)
    with pytest.raises(TidiedUp):
        table.commit(spark, record(3, "mine"), FewRows(one))
    assert held(table).num_rows == 6
    left = {file.name for file in (table.path / "data").iterdir() if file.suffix == ".parquet"}
    told = {Path(uri).name for v in range(version(table) + 1) for uri in _files(table, v)}
    assert left <= told, "what was written for nothing is gone again"


def _files(table: Table, at: int) -> list[str]:
    from deltalake import DeltaTable

    return DeltaTable(str(table.path), version=at).file_uris()


def test_many_commits_are_summed_up_as_they_are(spark, table: Table):
    """Every tenth version is a checkpoint, from which Spark and others read all that was before."""
    one = held(table).slice(0, 1)
    before = None
    for load in range(2, 14):
        if load == 12:
            before = _statistics(table)
        table.commit(spark, record(load, f"a{load}"), FewRows(one))
    assert list((table.path / "_delta_log").glob("*.checkpoint*.parquet"))
    assert before is not None and before.items() <= _statistics(table).items()
    assert table.last_load() == 13
    with_spark = table.commit(
        spark, record(14, "s"), lambda: spark.sql(SQL).write.format("delta").mode("append").save(str(table.path))
    )
    assert with_spark.load == 14
    assert table.snapshot(spark).count() == 22 == held(table).num_rows
    with pytest.raises(Overtaken):
        table.commit(spark, record(14, "again"), FewRows(one))


def _statistics(table: Table) -> dict[str, tuple]:
    opened = table.opened()
    assert opened is not None
    rows = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    return {row["path"]: tuple(sorted((k, str(v)) for k, v in row.items() if v is not None)) for row in rows}


def test_a_table_with_what_is_not_known_here_is_left_to_spark(spark, tmp_path: Path):
    path = tmp_path / "mapped"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    assert not Warehouse(str(tmp_path)).table("mapped").takes_few_rows()
    assert not Warehouse(str(tmp_path)).table("nothing").takes_few_rows()


def test_days_that_python_does_not_know(spark, table: Table):
    """Spark's years reach beyond 9999: they are stored, and their file is never passed over."""
    far = spark.sql("SELECT date_add(DATE'9999-12-31', 400) AS d")
    late = spark.createDataFrame(held(table)).limit(1).drop("d").crossJoin(far).select(held(table).column_names)
    table.commit(spark, record(2, "b"), FewRows(late.toArrow()))
    assert table.snapshot(spark).where("d > DATE'9999-12-31'").count() == 1
    assert datetime.date.max == datetime.date(9999, 12, 31)


def test_a_table_is_made(spark, tmp_path: Path):
    """The first load, without Spark: the table is as Spark would have made it."""
    tables = [Warehouse(str(tmp_path)).table(name) for name in ("here", "by_spark")]
    rows = spark.sql(SQL)
    first = FewRows(rows.toArrow(), whole=True, schema=rows.schema.json())
    assert tables[0].takes_whole(rows.schema.json()) and not tables[0].takes_few_rows()
    moments = spark.sql("SELECT array(TIMESTAMP_NTZ'2024-01-31 10:00:00') AS t")
    assert not tables[0].takes_whole(moments.schema.json()), "a table must say that it has such"
    made = tables[0].commit(spark, record(1, "a"), first)
    tables[1].commit(spark, record(1, "a"), lambda: rows.write.format("delta").save(str(tables[1].path)))
    assert (made.version, made.load, made.attempt, made.rows_changed) == (0, 1, "a", 5)
    assert read_by_spark(spark, tables[0]) == read_by_spark(spark, tables[1]) == counted(held(tables[0]))
    one, other = (table.opened() for table in tables)
    assert one is not None and other is not None
    assert one.schema().to_json() == other.schema().to_json()
    assert one.metadata().configuration == other.metadata().configuration
    assert set(one.protocol().writer_features or ()) == set(other.protocol().writer_features or ())
    assert one.protocol().min_reader_version == other.protocol().min_reader_version
    with pytest.raises(Overtaken):
        tables[0].commit(spark, record(1, "again"), first)
    tables[0].commit(spark, record(2, "b"), lambda: rows.write.format("delta").mode("append").save(str(tables[0].path)))
    assert sum(fed(spark, tables[0], -1).values()) == tables[0].row_count() == 10


def test_of_two_that_make_a_table_one_does(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = Warehouse(str(tmp_path)).table("orders")
    rows = spark.sql(SQL)
    first = FewRows(rows.toArrow(), whole=True, schema=rows.schema.json())

    def another_run(name: str) -> None:
        crash_point(name)
        monkeypatch.undo()
        table.commit(spark, record(1, "other"), first)

    monkeypatch.setattr(few_rows, "crash_point", another_run)
    with pytest.raises(Overtaken):
        table.commit(spark, record(1, "mine"), first)
    assert (newest(table).attempt, held(table).num_rows) == ("other", 5)
