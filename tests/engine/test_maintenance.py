"""Tidying up, and changes that are no longer there: the table stays what one full load gives, and says why it was
recomputed."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Thread

import pytest

from tests.harness import Play
from tests.store.test_table import record, rows
from velo_dagster.engine import maintenance
from velo_dagster.engine.report import Outcome
from velo_dagster.engine.scale import Size
from velo_dagster.engine.status import table_status
from velo_dagster.store.table import Overtaken, Table, Warehouse

STATEMENTS = """
CREATE TABLE orders AS SELECT * FROM file://d/*.csv;
CREATE TABLE large AS SELECT id, v FROM orders WHERE v > 1;
"""


@pytest.fixture
def orders(play: Play) -> Play:
    play.write("t.sql", STATEMENTS)
    play.write("d/1.csv", "id,v\n1,1\n2,2\n")
    play.loaded()
    return play


def follow(play: Play) -> str:
    """Load on, compare with a full load, and give the reason that `large` tells."""
    report = play.loaded()["large"]
    assert play.rows("large") == play.reloaded().rows("large")
    assert report.method == "full"
    return report.reason


def test_changes_that_a_vacuum_took_are_recomputed(orders: Play, spark):
    orders.write("d/2.csv", "id,v\n3,3\n")
    orders.loaded("orders")
    path = orders.folder / "warehouse/orders"
    with_care(spark, False)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    with_care(spark, True)
    assert follow(orders) == "changes of orders are no longer there (FAILED_READ_FILE.FILE_NOT_EXIST)"


def test_changes_that_cannot_be_read_for_another_reason_fail_the_load(orders: Play, monkeypatch):
    """Recomputing would hide a full disk, and meet it again."""

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    orders.write("d/2.csv", "id,v\n3,3\n")
    orders.loaded("orders")
    with monkeypatch.context() as broken:
        broken.setattr(Table, "changes", no_space)
        report = orders.load()["large"]
    assert report.outcome is Outcome.FAILED
    assert "No space left on device" in str(report.error)
    assert orders.loaded()["large"].method == "append"


def with_care(spark, on: bool) -> None:
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", str(on).lower())


def test_a_table_that_was_made_anew_is_read_anew(orders: Play):
    shutil.rmtree(orders.folder / "warehouse/orders")
    orders.write("d/2.csv", "id,v\n3,3\n")
    assert "another table than before" in follow(orders)


def test_a_log_that_no_longer_reaches_back_is_no_reason_to_miss_rows(orders: Play, spark):
    for number in range(2, 6):
        orders.write(f"d/{number}.csv", f"id,v\n{number}5,{number}\n")
        orders.loaded("orders")
    table = Warehouse(str(orders.folder / "warehouse")).table("orders").opened()
    assert table is not None
    table.create_checkpoint()
    for file in sorted((orders.folder / "warehouse/orders/_delta_log").glob("0*.json"))[:-1]:
        file.unlink()
    assert "no longer holds all of its changes" in follow(orders)


def test_failing_to_tidy_up_does_not_make_a_committed_load_a_failed_one(orders: Play, monkeypatch):
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(maintenance, "EVERY", 1)
    monkeypatch.setattr(Table, "compact", no_space)
    orders.write("d/2.csv", "id,v\n3,3\n")
    reports = orders.loaded()
    assert reports["orders"].outcome is Outcome.INCREMENT
    assert any("could not be tidied up" in note and "No space" in note for note in reports["orders"].notes)
    assert orders.rows("orders") == orders.reloaded("orders").rows("orders")


def test_every_load_tidied_up_is_still_followed_row_by_row(orders: Play, monkeypatch):
    monkeypatch.setattr(maintenance, "EVERY", 1)
    for number in range(2, 5):
        orders.write(f"d/{number}.csv", f"id,v\n{number}5,{number}\n")
        reports = orders.loaded()
        assert reports["large"].method == "append", reports["large"]
    assert orders.rows("large") == orders.reloaded().rows("large")


def seen(file: Path) -> bool:
    """Wait for another thread or process to make a file."""
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

    return Retrying(stop=stop_after_delay(60), wait=wait_fixed(0.05), retry=retry_if_result(lambda there: not there))(
        file.exists
    )


def test_tidying_up_in_the_middle_of_a_load_makes_it_start_again(engine, tmp_path: Path):
    """The load reads the table's files, which are replaced before it commits: nothing is lost, it is done again."""
    table = Table("t", tmp_path / "t")
    reading, tidied = tmp_path / "reading", tmp_path / "tidied"
    with engine.session() as spark, engine.session() as other:
        for load in (1, 2):
            table.commit(spark, record(load, f"a{load}"), rows(spark, table, 2))

        def tidy_up() -> None:
            assert seen(reading)
            table.compact(other, keep_hours=168)
            tidied.touch()

        def held_up(batches):
            reading.touch()
            assert seen(tidied)
            yield from batches

        def merge() -> None:
            spark.range(0, 3, 1, 1).mapInArrow(held_up, "id BIGINT").createOrReplaceTempView("slow")
            spark.sql(
                f"MERGE INTO delta.`{table.path}` t USING slow s ON t.id = s.id WHEN MATCHED THEN DELETE "
                "WHEN NOT MATCHED THEN INSERT *"
            )

        tidying = Thread(target=tidy_up)
        tidying.start()
        with pytest.raises(Overtaken, match="tidied up"):
            table.commit(spark, record(3, "a3"), merge)
        tidying.join()
        table.commit(spark, record(3, "a3"), rows(spark, table, 2))
        assert table.last_load() == 3


def test_settings_follow_the_size_of_the_data_but_not_against_the_user():
    many = Size(10 * 2**30, 120_000).settings()
    assert many == {"spark.sql.shuffle.partitions": "160", "spark.databricks.delta.snapshotPartitions": "3"}
    assert Size().settings()["spark.databricks.delta.snapshotPartitions"] == "1"


def test_scaled_settings_reach_the_session(engine, play: Play):
    from velo_dagster.engine.session import Session

    with Session(engine, {}) as session:
        session.scale(Size(10 * 2**30, 120_000).settings())
        assert session.spark.conf.get("spark.databricks.delta.snapshotPartitions") == "3"
        # The tests' own engine sets this one, as a user may.
        assert session.spark.conf.get("spark.sql.shuffle.partitions") == "2"
    play.write("d.csv", "id\n1\n")
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://d.csv")
    play.loaded()
    size = Size().with_table(Warehouse(str(play.folder / "warehouse")).table("t"))
    assert (size.files, size.bytes > 0) == (1, True)


def test_status_tells_of_a_landing_that_somebody_changed_and_whose_it_is(play: Play, spark):
    play.write("d.csv", "id\n1\n")
    play.write("t.sql", "CREATE TABLE t AS SELECT id PRIMARY KEY FROM file://d.csv")
    play.loaded()
    landing = Warehouse(str(play.folder / "warehouse")).landing("t", 0)
    spark.sql(f"DELETE FROM delta.`{landing.path}`")
    status = table_status(play.project(), Warehouse(str(play.folder / "warehouse")), play.project().table("t"))
    assert "changed at version" in status.inputs[0].health
    assert not status.well
    assert "--select t --full-refresh" in str(play.load()["t"].error)
    play.loaded(full_refresh=True)
    assert sum(play.rows("t").values()) == 1
