"""A commit that is lost, doubled or misattributed is a wrong table for ever: nothing downstream would notice."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from velo_dagster.store.record import INLINE_LIMIT, Record, UnreadablePositions
from velo_dagster.store.table import ForeignChange, Overtaken, Table, TidiedUp, UnreadableLog, Warehouse


def record(load: int, attempt: str, **values) -> Record:
    fields = {"kind": "load", "mode": "bulk", "method": "append", "reason": "", "fingerprint": "f", "positions": {}}
    return Record(load=load, attempt=attempt, **(fields | values))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Warehouse(str(tmp_path)).table("orders")


def newest(table: Table) -> Record:
    found = table.record()
    assert found is not None
    return found


def version(table: Table) -> int:
    opened = table.opened()
    assert opened is not None
    return opened.version()


def rows(spark, table: Table, count: int, mode: str = "append"):
    return lambda: spark.range(count).write.format("delta").mode(mode).save(str(table.path))


def test_no_table_has_no_record(table: Table):
    assert table.record() is None
    assert table.last_load() == 0
    assert table.history() == []


def test_record_comes_back_as_it_was_committed(spark, table: Table):
    positions = {"source": {"files": {"a.csv": {"read": 3}}}}
    made = table.commit(
        spark, record(1, "a", positions=positions, schema=(("id", "BIGINT"), ("x", None))), rows(spark, table, 3)
    )
    assert made == newest(table)
    assert (made.version, made.positions, made.schema) == (0, positions, (("id", "BIGINT"), ("x", None)))
    assert made.rows_changed == 3


def test_same_load_twice_is_made_once(spark, table: Table):
    """Delta skips a known token without a word: without reading back, the second run would claim rows it never made."""
    table.commit(spark, record(1, "a"), rows(spark, table, 3))
    with pytest.raises(Overtaken, match="Another run made load 1 of table 'orders'"):
        table.commit(spark, record(1, "b"), rows(spark, table, 5))
    assert table.snapshot(spark).count() == 3
    assert newest(table).attempt == "a"


def test_stale_increment_after_a_full_refresh_changes_nothing(spark, table: Table):
    table.commit(spark, record(1, "a"), rows(spark, table, 3))
    table.commit(spark, record(2, "b"), rows(spark, table, 20, "overwrite"))
    with pytest.raises(Overtaken):
        table.commit(spark, record(2, "c"), rows(spark, table, 10))
    assert table.snapshot(spark).count() == 20


def test_of_many_runs_at_once_one_makes_the_load(engine, table: Table):
    """Also the very first load, when there is no table yet to conflict on."""
    won: list[str] = []
    lost: list[str] = []
    start = threading.Barrier(4)

    def run(attempt: str) -> None:
        with engine.session() as spark:
            start.wait()
            try:
                table.commit(spark, record(1, attempt), rows(spark, table, 7))
                won.append(attempt)
            except Overtaken:
                lost.append(attempt)

    threads = [threading.Thread(target=run, args=(f"run-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 3
    assert newest(table).attempt == won[0]
    with engine.session() as spark:
        assert table.snapshot(spark).count() == 7


def test_long_positions_go_into_a_file_that_must_not_change(spark, table: Table):
    positions = {"source": {"x" * 10: "y" * INLINE_LIMIT}}
    table.commit(spark, record(1, "a", positions=positions), rows(spark, table, 1))
    assert newest(table).positions == positions
    (file,) = (table.path / "_velo").glob("*.json")
    file.write_text(json.dumps({"positions": {}, "goal": None, "schema": []}))
    with pytest.raises(UnreadablePositions, match="not what the commit names"):
        table.record()
    file.unlink()
    with pytest.raises(UnreadablePositions, match="No such file"):
        table.record()
    assert table.last_load() == 1, "a full refresh must still know which number comes next"


def test_compaction_keeps_positions_rows_and_changes(spark, table: Table):
    for load in range(1, 6):
        table.commit(spark, record(load, f"a{load}", positions={"at": load}), rows(spark, table, 2))
    before = newest(table)
    table.compact(spark, keep_hours=168)
    after = newest(table)
    assert (after.load, after.positions, after.attempt) == (5, {"at": 5}, before.attempt)
    assert version(table) > before.version
    assert table.snapshot(spark).count() == 10
    assert table.changes(spark, before.version, version(table)).count() == 0
    assert table.changes(spark, 2, version(table)).count() == 4
    table.commit(spark, record(6, "a6", positions={"at": 6}), rows(spark, table, 2))
    assert newest(table).positions == {"at": 6}


def test_maintenance_that_lands_after_a_newer_load_does_not_turn_positions_back(spark, table: Table):
    table.commit(spark, record(1, "a", positions={"at": 1}), rows(spark, table, 2))
    stale = newest(table).as_maintenance()
    table.commit(spark, record(2, "b", positions={"at": 2}), rows(spark, table, 2))
    from velo_dagster.store.record import encode
    from velo_dagster.store.table import METADATA

    spark.conf.set(METADATA, encode(stale, table.path / "_velo"))
    spark.sql(f"OPTIMIZE delta.`{table.path}`")
    assert newest(table).positions == {"at": 2}


def test_rows_written_by_others_are_noticed(spark, table: Table):
    table.commit(spark, record(1, "a"), rows(spark, table, 2))
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('note' = 'harmless')")
    assert newest(table).attempt == "a"
    rows(spark, table, 1)()
    with pytest.raises(ForeignChange, match="version 2 by WRITE"):
        table.record()


def test_change_feed_is_on_from_the_first_version_and_after_a_replacement(spark, table: Table):
    table.commit(spark, record(1, "a"), rows(spark, table, 2))
    assert table.changes(spark, -1, 0).count() == 2
    renamed = spark.range(3).withColumnRenamed("id", "n").write.format("delta")
    replace = renamed.mode("overwrite").option("overwriteSchema", "true")
    table.commit(spark, record(2, "b"), lambda: replace.save(str(table.path)))
    table.commit(spark, record(3, "c"), lambda: renamed.mode("append").save(str(table.path)))
    assert table.changes(spark, 1, 2).count() == 3


def test_names_are_those_that_users_know(spark, tmp_path: Path):
    warehouse = Warehouse(str(tmp_path))
    for table in (warehouse.table("b"), warehouse.table("a"), warehouse.landing("a", 0), warehouse.rejected("a")):
        table.commit(spark, record(1, "x"), rows(spark, table, 1))
    assert warehouse.names() == ["a", "b"]


def test_what_fails_after_the_commit_does_not_unmake_it(spark, table: Table):
    """A checkpoint that fails would else look like maintenance, and whoever tries again would write the rows twice."""

    def failing(write):
        def run() -> None:
            write()
            raise RuntimeError("the checkpoint failed")

        return run

    first = table.commit(spark, record(1, "a"), failing(rows(spark, table, 3)))
    second = table.commit(spark, record(2, "b"), failing(rows(spark, table, 2)))
    assert [(made.load, made.attempt, made.rows_changed) for made in (first, second)] == [(1, "a", 3), (2, "b", 2)]
    assert not list((table.path / "_velo/writing").iterdir()), "the write is over"


def test_what_fails_beside_maintenance_keeps_its_cause(engine, spark, table: Table):
    table.commit(spark, record(1, "a"), rows(spark, table, 3))

    def failing() -> None:
        with engine.session() as other:
            other.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('note' = 'moved')")
        raise ZeroDivisionError("1/0")

    with pytest.raises(TidiedUp) as tidied:
        table.commit(spark, record(2, "b"), failing)
    assert isinstance(tidied.value.failure, ZeroDivisionError)
    conflict = RuntimeError("[DELTA_CONCURRENT_DELETE_READ] …")
    assert isinstance(TidiedUp("t", 1, conflict).failure, TidiedUp), "maintenance was indeed in the way"


def test_a_damaged_log_is_told_in_our_words(tmp_path: Path):
    table = Warehouse(str(tmp_path)).table("orders")
    (table.path / "_delta_log").mkdir(parents=True)
    (table.path / "_delta_log/00000000000000000000.json").write_text("junk{")
    for look in (table.record, table.last_load, table.history):
        with pytest.raises(UnreadableLog, match="The log of table 'orders' cannot be read"):
            look()
