"""What a load says about itself: a row left out, a source waited for, or a table that waits must not go unmentioned."""

from __future__ import annotations

import shutil

import pytest

from tests.harness import Play
from velo_dagster.cli_output import status_lines
from velo_dagster.engine.report import LoadReport, Outcome
from velo_dagster.engine.status import table_status
from velo_dagster.errors import VeloError
from velo_dagster.store.table import Warehouse

BAD = "id,amount\n1,2.50\n2\n3,1.00,x\n4,3.00\n"


def status_of(play: Play, name: str) -> list[str]:
    project = play.project()
    place = Warehouse(str(play.folder / play.warehouse))
    return status_lines(table_status(project, place, project.table(name)))


@pytest.mark.parametrize("key", ["", " PRIMARY KEY"])
def test_rows_left_out_are_counted_and_the_first_is_named(play: Play, key: str):
    play.write("orders.csv", BAD)
    with_ = "WITH ('failure_strategy' = 'LogAndContinue')"
    play.write("a.sql", f"CREATE TABLE t AS SELECT id{key}, amount FROM file://orders.csv {with_};")
    report = play.loaded()["t"]
    assert report.skipped == 2 and ", 2 bad rows skipped, " in str(report)
    (note,) = report.notes
    assert note.startswith("2 bad rows were left out of file://orders.csv (LogAndContinue); the first: ")
    assert "orders.csv:3: 2 fields are expected, 1 found" in note
    play.append("orders.csv", "5,9.00\n")
    report = play.loaded()["t"]
    assert (report.skipped, report.notes) == (0, ())


def test_tries_are_in_the_report(play: Play):
    """Without them nobody sees that a source gets slower every night, until it times out."""
    play.write(
        "a.sql",
        "CREATE TABLE t AS\nSELECT * FROM file://missing.csv\n"
        "WITH ('file.wait.timeout' = '300ms', 'file.retry.interval' = '100ms', 'retry.strategy' = 'fixed');",
    )
    report = play.load()["t"]
    counted = report.retries["file://missing.csv"]
    assert report.outcome is Outcome.BLOCKED and report.retried == counted["retries"] >= 1
    assert counted["attempts"] == counted["retries"] + 1 and counted["errors"] == {"missing": counted["attempts"]}
    assert isinstance(report.error, VeloError)
    assert report.error.render().startswith(f"{play.folder}/a.sql:2:15: error E301 Timeout waiting for file")


def test_tries_are_shown():
    counted = {"attempts": 3, "retries": 2, "waited_seconds": 4.5}
    report = LoadReport("t", Outcome.UNCHANGED, retries={"file://a.csv": counted}, seconds=4.6)
    assert str(report) == "t: unchanged, 2 retries in 4.5 s, 4.6 s"


def test_a_table_that_waits_for_another_is_not_sent_in_a_circle(play: Play):
    """'Load it first' is no help where that has just been tried."""
    play.write("a.sql", "CREATE TABLE t AS SELECT * FROM file://missing.csv;\nCREATE TABLE u AS SELECT * FROM t;\n")
    error = play.load()["u"].error
    assert isinstance(error, VeloError) and error.code == "L402"
    assert error.what.endswith("which is not ready: it was never loaded (in this run: blocked).")
    assert "What is said about 't' above" in error.steps[0]
    alone = play.load("u")["u"].error
    assert isinstance(alone, VeloError)
    assert alone.steps == (f"Load it first: velo-dagster load {play.folder} --select t",)


def test_a_table_that_waits_for_the_rest_of_a_bounded_load_says_load_again(play: Play):
    """Of the other table only that its load goes on is said above."""
    source = "file://a.csv WITH ('loading.bulk.max_records' = '1')"
    play.write("a.sql", f"CREATE TABLE t AS SELECT * FROM {source};\nCREATE TABLE u AS SELECT * FROM t;\n")
    play.write("a.csv", "id\n1\n2\n")
    error = play.load()["u"].error
    assert isinstance(error, VeloError) and error.code == "L402"
    assert error.steps == ("Load again: the first load of 't' goes on where it was cut; 'u' follows it.",)
    assert play.loaded()["u"].rows_changed == 2


@pytest.mark.parametrize(
    ("select", "declared"),
    [("*", True), ("id, name AS called", True), ("id PRIMARY KEY, name", True), ("id + 1 AS id", False)],
)
def test_a_table_that_waits_for_rows_of_another_says_where_from(play: Play, select: str, declared: bool):
    """Of a table without rows nothing is said above: 'what is said about it' would be no help."""
    play.write("a.sql", f"CREATE TABLE t AS SELECT {select} FROM file://e.csv;\nCREATE TABLE n AS SELECT * FROM t;\n")
    play.write("e.csv", "")
    error = play.load()["n"].error
    assert isinstance(error, VeloError) and error.code == "L402"
    assert error.what.endswith("which is not ready: it was never loaded (in this run: no rows yet).")
    assert error.steps[0] == "Wait for rows in file://e.csv: the load that finds them loads 't' and 'n'."
    declare = "Or declare its columns, so that it is created empty: CREATE TABLE t (column type, …) AS …"
    assert error.steps[1:] == ((declare,) if declared else ())


def test_declaring_the_columns_helps_where_a_table_waits_for_rows(play: Play):
    play.write(
        "a.sql",
        "CREATE TABLE t (id BIGINT, name STRING) AS SELECT id PRIMARY KEY, name FROM file://e.csv;\n"
        "CREATE TABLE n AS SELECT COUNT(*) AS c FROM t;\n",
    )
    play.write("e.csv", "")
    assert play.loaded()["n"].outcome is Outcome.BULK
    assert play.rows("n") == {(0,): 1}


def test_reasons_name_sources_and_not_what_keeps_their_rows(play: Play):
    """Nobody has written the name of a landing, and no command shows one."""
    play.write("a.sql", "CREATE TABLE latest AS SELECT k PRIMARY KEY, x FROM file://a.csv;")
    play.write("a.csv", "k,x\n1,1\n2,2\n")
    play.loaded()
    play.write("a.csv", "k,x\n1,7\n3,3\n")
    report = play.loaded()["latest"]
    assert report.reason == "file://a.csv was read anew (rows were replaced or removed in the source)"
    shutil.rmtree(play.folder / "warehouse/latest__landing_0")
    assert play.loaded()["latest"].reason == "file://a.csv was read anew"
    assert play.rows("latest") == {(1, 7): 1, (3, 3): 1}


def test_status_says_of_a_removed_file_what_a_load_says(play: Play):
    path = play.write("data/orders.csv", "id\n1\n2\n")
    play.write("a.sql", "CREATE TABLE kept AS SELECT * FROM file://data/orders.csv;\n")
    play.write("b.sql", "CREATE TABLE gone AS SELECT * FROM file://data/orders.csv WITH ('file.deleted' = 'remove');\n")
    play.loaded()
    path.unlink()
    table, reads = status_of(play, "kept")
    assert table.endswith("; health: ok")
    assert reads.endswith("nothing waits; orders.csv: gone; its rows are kept (file.deleted = keep)")
    table, reads = status_of(play, "gone")
    assert table.endswith("; health: ok")
    assert reads.endswith("nothing waits; rows were replaced or removed; the next load follows")
    reports = play.loaded()
    assert (reports["kept"].outcome, reports["gone"].outcome) == (Outcome.UNCHANGED, Outcome.INCREMENT)
    assert (play.rows("kept").total(), play.rows("gone").total()) == (2, 0)
    path.parent.rmdir()
    assert "does not exist" in status_of(play, "kept")[0]
    assert play.load("kept")["kept"].outcome is Outcome.BLOCKED


def test_a_damaged_log_is_told_as_the_health_of_its_table(play: Play):
    """One table's trouble must not hide how all the others are."""
    play.write("a.csv", "k,x\n1,1\n")
    play.write(
        "t.sql", "CREATE TABLE t AS SELECT k PRIMARY KEY, x FROM file://a.csv; CREATE TABLE r AS SELECT k FROM t;"
    )
    play.loaded()
    project, warehouse = play.project(), Warehouse(str(play.folder / "warehouse"))
    log = "_delta_log/00000000000000000000.json"
    for name in ("t__landing_0", "t"):
        (warehouse.root / name / log).write_text("junk{")
        status = table_status(project, warehouse, project.table("t"))
        assert not status.well and f"The log of table '{name}' cannot be read" in status.health
    assert (status.state, status.rows) == ("broken", None)
    reader = table_status(project, warehouse, project.table("r"))
    assert reader.state == "ready" and "The log of table 't' cannot be read" in reader.health
    error = play.load()["t"].error
    assert isinstance(error, VeloError) and error.code == "T506"
