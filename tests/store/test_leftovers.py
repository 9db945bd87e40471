"""A load that fails for lack of space must give back what it took; one file too many removed, and a table is broken."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from tests.store.test_table import newest, record, rows
from velo_dagster.store import leftovers
from velo_dagster.store.leftovers import announced
from velo_dagster.store.reader import to_arrow
from velo_dagster.store.table import Table, Warehouse


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Warehouse(str(tmp_path)).table("orders")


def files(table: Table) -> set[str]:
    return {str(path.relative_to(table.path)) for path in table.path.rglob("*.parquet")}


def fails_late(spark, table: Table):
    """A write whose first tasks have written their files when its last one fails."""
    last = "CASE WHEN id = 39999 THEN CAST(raise_error('no') AS BIGINT) ELSE id END AS id"
    return lambda: (
        spark.range(0, 40000, 1, 4).selectExpr(last).write.format("delta").mode("append").save(str(table.path))
    )


def test_failed_write_leaves_no_file(spark, table: Table):
    with pytest.raises(Exception, match="no"):
        table.commit(spark, record(1, "a"), fails_late(spark, table))
    assert files(table) == set()
    table.commit(spark, record(1, "b"), rows(spark, table, 3))
    before = files(table)
    with pytest.raises(Exception, match="no"):
        table.commit(spark, record(2, "c"), fails_late(spark, table))
    assert files(table) == before
    assert to_arrow(table.path).num_rows == 3


def test_changes_compaction_and_other_readers_know_the_folder(spark, table: Table):
    table.commit(spark, record(1, "a"), rows(spark, table, 3))
    table.commit(
        spark,
        record(2, "b"),
        lambda: spark.sql(
            f"MERGE INTO delta.`{table.path}` t USING (SELECT explode(array(1L, 9L)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET id = 7 WHEN NOT MATCHED THEN INSERT *"
        ),
    )
    assert sorted(to_arrow(table.path).column("id").to_pylist()) == [0, 2, 7, 9]
    changes = table.changes(spark, 0, 1).groupBy("_change_type").count().collect()
    assert {row[0]: row[1] for row in changes} == {"insert": 1, "update_preimage": 1, "update_postimage": 1}
    table.compact(spark, 168)
    assert sorted(row[0] for row in table.snapshot(spark).collect()) == [0, 2, 7, 9]
    assert newest(table).load == 2
    assert all("data/" in name for name in files(table))


def written(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("rows")
    return path


def test_committed_files_and_those_of_others_stay(tmp_path: Path):
    with announced(tmp_path, "mine") as mine:
        ours = [written(tmp_path, "data/part-0.parquet"), written(tmp_path, "data/.part-0.parquet.crc")]
        theirs = [
            written(tmp_path, "part-1.parquet"),
            written(tmp_path, "data/part 2.parquet"),
            written(tmp_path, "data/.part 2.parquet.crc"),
        ]
        written(tmp_path, "_delta_log/00000000000000000001.json").write_text(
            json.dumps({"commitInfo": {}}) + "\n" + json.dumps({"add": {"path": "data/part%202.parquet"}}) + "\n"
        )
        assert mine.remove_leftovers() == 2
    assert [path.exists() for path in [*ours, *theirs]] == [False, False, True, True, True]


def test_files_from_before_stay(tmp_path: Path):
    old = written(tmp_path, "data/part-0.parquet")
    os.utime(old, (time.time() - 60, time.time() - 60))
    with announced(tmp_path, "mine") as mine:
        assert mine.remove_leftovers() == 0


def test_nothing_is_removed_while_another_write_is_announced(tmp_path: Path):
    with announced(tmp_path, "mine") as mine:
        new = written(tmp_path, "data/part-0.parquet")
        with announced(tmp_path, "other"):
            assert mine.remove_leftovers() == 0
        assert new.exists()
        assert mine.remove_leftovers() == 1


def test_killed_run_keeps_its_files_for_a_while_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(KeyboardInterrupt), announced(tmp_path, "killed"):
        raise KeyboardInterrupt
    killed = tmp_path / "_velo/writing/killed"
    monkeypatch.setattr(leftovers, "_runs", lambda process: False)
    with announced(tmp_path, "mine") as mine:
        written(tmp_path, "data/part-0.parquet")
        assert mine.remove_leftovers() == 0
        os.utime(killed, (time.time() - 700, time.time() - 700))
        assert mine.remove_leftovers() == 1
        killed.write_text(json.dumps({"host": f"not-{socket.gethostname()}", "process": 1}))
        written(tmp_path, "data/part-0.parquet")
        os.utime(killed, (time.time() - 700, time.time() - 700))
        assert mine.remove_leftovers() == 0, "nobody here knows whether a process of another machine still runs"


def test_failed_write_withdraws_its_announcement(tmp_path: Path):
    with pytest.raises(OSError, match="full"), announced(tmp_path, "mine"):
        raise OSError("full")
    assert list((tmp_path / "_velo/writing").iterdir()) == []
