"""Rows of large tables go by their places: no file is read or written anew for it, and every reader sees them gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.test_few_rows import fed, held, read_by_spark
from tests.store.test_table import newest, record, version
from velo_dagster.crash import crash_point
from velo_dagster.store import few_rows
from velo_dagster.store.few_rows import FewRows
from velo_dagster.store.places import placed, still_there
from velo_dagster.store.query import query
from velo_dagster.store.reader import open_table
from velo_dagster.store.table import Overtaken, Table, TidiedUp, Warehouse
from velo_dagster.store.values import counted

ROWS = (
    "SELECT id, id % 7 AS k, CAST(id AS STRING) AS s, IF(id % 5 = 0, -0.0D, DOUBLE('NaN')) AS x "
    "FROM range(0, 100, 1, 4)"
)


@pytest.fixture
def table(tmp_path: Path, spark) -> Table:
    """Four files of 25 rows, in a folder whose name is written otherwise in addresses."""
    made = Warehouse(str(tmp_path / "a b")).table("orders")
    made.commit(spark, record(1, "a"), lambda: spark.sql(ROWS).write.format("delta").save(str(made.path)))
    return made


def few(spark, table: Table, condition: str, *, kind: str = "delete", came: str | None = None) -> FewRows:
    """Rows that meet a condition go; `came`: others come, by their columns."""
    at = version(table)
    rows = placed(spark, table.path, at, table.snapshot(spark, at).schema, None).where(condition)
    gone, places = still_there(rows.toArrow(), table.path, at)
    new = spark.createDataFrame(gone).selectExpr(*came.split(";")).toArrow() if came else gone.slice(0, 0)
    return FewRows(new, gone, ["update_postimage"] * new.num_rows, [kind] * gone.num_rows, places=places)


def files(table: Table) -> set[str]:
    return {one.name for one in table.path.rglob("*.parquet") if "_change_data" not in one.parts}


def same_everywhere(spark, table: Table, rows: int) -> None:
    """Spark, the JVM-free reader, DuckDB over it and the log's counts agree."""
    assert counted(held(table)) == read_by_spark(spark, table)
    opened = open_table(table.path)
    told = query("SELECT count(*) AS n FROM orders a JOIN orders b ON a.id = b.id", warehouse(table))
    assert told["n"].to_pylist() == [rows]
    assert {opened.count(), opened.dataset().count_rows(), table.row_count(), held(table).num_rows} == {rows}


def warehouse(table: Table) -> Warehouse:
    return Warehouse(str(table.path.parent))


def test_rows_are_marked_and_no_file_is_written_anew(spark, table: Table):
    before = read_by_spark(spark, table)
    first = files(table)
    one = few(spark, table, "id IN (3, 30, 31, 99)")
    assert one.gone is not None
    table.commit(spark, record(2, "b"), one)
    assert files(table) == first, "only a vector was written"
    assert read_by_spark(spark, table) == before - counted(one.gone)
    assert fed(spark, table, 0) == {"delete 3": 1, "delete 30": 1, "delete 31": 1, "delete 99": 1}
    same_everywhere(spark, table, 96)


def test_a_file_is_marked_again_and_again(spark, table: Table):
    """The vector of a file grows; the versions before stay as they were; all that is left is checkpointed too."""
    for load in range(2, 14):
        update = few(spark, table, f"id = {load * 3}", kind="update_preimage", came="id;k + 1 AS k;s;x")
        table.commit(spark, record(load, f"a{load}"), update)
        assert fed(spark, table, load - 2) == {f"update_preimage {load * 3}": 1, f"update_postimage {load * 3}": 1}
        same_everywhere(spark, table, 100)
    assert list((table.path / "_delta_log").glob("*.checkpoint*.parquet"))
    assert table.snapshot(spark).where("k = id % 7 + 1").count() == 12
    for at, changed in ((0, 0), (5, 5), (10, 10)):
        assert table.snapshot(spark, at).where("k = id % 7 + 1").count() == changed, at
        assert open_table(table.path, at).to_arrow().num_rows == 100


def test_a_file_without_rows_is_gone(spark, table: Table):
    table.commit(spark, record(2, "b"), few(spark, table, "id < 20"))
    table.commit(spark, record(3, "c"), few(spark, table, "id < 25"))
    assert len(open_table(table.path).delta.file_uris()) == 3
    same_everywhere(spark, table, 75)


def test_spark_goes_on_where_rows_were_marked(spark, table: Table):
    """Spark merges into, appends to, tidies up and replaces what was marked here; and marks go on behind it."""
    table.commit(spark, record(2, "b"), few(spark, table, "id % 10 = 1"))
    merged = (
        f"MERGE INTO delta.`{table.path}` t USING (SELECT explode(array(2L, 3L, 11L)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    table.commit(spark, record(3, "c"), lambda: spark.sql(merged))
    same_everywhere(spark, table, 89)
    table.commit(spark, record(4, "d"), few(spark, table, "id IN (4, 11)"))
    same_everywhere(spark, table, 87)
    table.compact(spark, keep_hours=168)
    same_everywhere(spark, table, 87)
    table.commit(spark, record(5, "e"), few(spark, table, "id = 5"))
    same_everywhere(spark, table, 86)
    whole = spark.sql(ROWS).toArrow()
    table.commit(spark, record(6, "f", method="full"), FewRows(whole, whole=True))
    same_everywhere(spark, table, 100)


def test_places_are_those_of_one_version(spark, table: Table, monkeypatch: pytest.MonkeyPatch):
    """Files were joined since, before the commit began or while it was made: nothing is changed, and a load tries
    again."""
    known = few(spark, table, "id = 1")
    table.compact(spark, keep_hours=168)
    with pytest.raises(TidiedUp):
        table.commit(spark, record(2, "b"), known)
    same_everywhere(spark, table, 100)

    def another_run(name: str) -> None:
        crash_point(name)
        monkeypatch.undo()
        table.commit(spark, record(2, "other"), few(spark, table, "id = 2"))

    monkeypatch.setattr(few_rows, "crash_point", another_run)
    with pytest.raises(Overtaken):
        table.commit(spark, record(2, "mine"), few(spark, table, "id = 1"))
    assert newest(table).attempt == "other"
    same_everywhere(spark, table, 99)


def test_large_tables_need_places(spark, table: Table):
    assert table.needs_places(100) and not table.needs_places(100_000)
    table.commit(spark, record(2, "b"), few(spark, table, "id = 1"))
    assert table.needs_places(100_000), "and so does what has vectors"
