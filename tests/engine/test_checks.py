"""Checks of tables as they stand. One that can't fail is worse than none: each is seen failing here."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.harness import Play
from velo_dagster.engine.checks import Check, Finding, Standing, checks_of, run_check
from velo_dagster.engine.verify import _compare
from velo_dagster.store.table import Warehouse

SQL = """
-- dagster: freshness=1s verify=all
-- check positive: SELECT id FROM orders WHERE v < 0
CREATE TABLE orders AS SELECT * FROM file://d/*.csv WITH ('failure_strategy' = 'SendToDLQ');
-- dagster: verify=1
CREATE TABLE latest AS SELECT id PRIMARY KEY, v FROM file://d/*.csv;
-- dagster: verify=all
CREATE TABLE totals AS SELECT id, SUM(v) AS v, map('a', COUNT(*)) AS m, AVG(CAST(v AS DOUBLE)) AS a FROM orders
GROUP BY id;
"""


@pytest.fixture
def shop(play: Play) -> Play:
    play.write("t.sql", SQL)
    play.write("d/1.csv", "id,v\n1,10\n2,20\n1,30\n")
    play.loaded()
    return play


def found(play: Play, table: str) -> dict[str, Finding]:
    project = play.project()
    plan = project.table(table)
    standing = Standing(project, Warehouse(str(play.folder / "warehouse")), plan, play.engine)
    return {check.name: run_check(check, standing) for check in checks_of(plan)}


def failed(play: Play, table: str) -> set[str]:
    return {name for name, finding in found(play, table).items() if not finding.passed}


def test_all_is_well_after_a_load(shop: Play):
    for table in ("orders", "latest", "totals"):
        assert not failed(shop, table), found(shop, table)
    assert set(found(shop, "latest")) == {
        "key_unique",
        "rows_as_loaded",
        "nothing_rejected",
        "source_ready",
        "equals_full_reload",
    }
    shop.append("d/1.csv", "3,-5\n2,1\n")
    shop.loaded()
    assert failed(shop, "orders") == {"positive"}
    assert not failed(shop, "totals") | failed(shop, "latest")
    assert not list((shop.folder / "warehouse").glob("_velo_check_*"))


GONE = """
CREATE TABLE plain AS SELECT * FROM file://one/1.csv;
CREATE TABLE latest AS SELECT id PRIMARY KEY, v FROM file://one/1.csv;
CREATE TABLE several AS SELECT * FROM file://d/*.csv;
CREATE TABLE emptied AS SELECT * FROM file://one/1.csv WITH ('file.deleted' = 'remove');
"""


def test_a_source_that_is_gone_is_told_though_its_rows_stay(play: Play):
    play.write("t.sql", GONE)
    for name in ("one/1.csv", "d/1.csv", "d/2.csv"):
        play.write(name, "id,v\n1,10\n")
    play.loaded()
    (play.folder / "one/1.csv").unlink()
    (play.folder / "d/1.csv").unlink()
    for _ in ("before a load", "after a load"):
        told = {table: found(play, table)["source_ready"] for table in ("plain", "latest", "several", "emptied")}
        assert {table: finding.passed for table, finding in told.items()} == {
            "plain": False,
            "latest": False,
            "several": True,
            "emptied": False,
        }
        for table, how in (("plain", "keep"), ("latest", "keep"), ("emptied", "remove")):
            said = told[table].message
            assert said.startswith("file://one/1.csv: File 'one/1.csv' does not exist.")
            assert f"(file.deleted = {how})" in said
            assert re.search(r"Last loaded at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.", said)
        play.loaded()
    assert (play.rows("plain").total(), play.rows("latest").total(), play.rows("emptied").total()) == (1, 1, 0)
    (play.folder / "d/2.csv").unlink()
    assert "No files match pattern 'd/*.csv'." in found(play, "several")["source_ready"].message
    play.write("one/1.csv", "id,v\n1,10\n")
    assert all(found(play, table)["source_ready"].passed for table in ("plain", "latest", "emptied"))


def test_a_table_that_was_never_loaded_passes_nothing(play: Play):
    play.write("t.sql", SQL)
    findings = found(play, "orders")
    assert not any(finding.passed for finding in findings.values())
    assert "never loaded" in findings["rows_as_loaded"].message


def test_what_arrives_later_does_not_count_as_missing(shop: Play):
    """The comparison is with what was delivered, never with the source's present end."""
    shop.append("d/1.csv", "9,9\n")
    shop.write("d/2.csv", "id,v\n8,8\n")
    assert found(shop, "orders")["equals_full_reload"].passed
    assert found(shop, "latest")["equals_full_reload"].passed
    assert "fresh" not in failed(shop, "totals")


def test_rows_that_somebody_took_away_are_found(shop: Play, spark):
    """Behind the log's back: Delta itself would tell of a DELETE."""
    spark.sql(f"DELETE FROM delta.`{shop.folder / 'warehouse/totals'}` WHERE id = 1")
    assert {"rows_as_loaded", "equals_full_reload"} <= failed(shop, "totals")
    assert "changed at version" in found(shop, "totals")["rows_as_loaded"].message


def test_a_landing_and_a_table_that_disagree_are_found(shop: Play, monkeypatch: pytest.MonkeyPatch):
    from velo_dagster.engine import verify

    made = verify._compare

    def tampered(held, reloaded, keys, sample):
        return made(held.where("id <> 1"), reloaded, keys, None)

    monkeypatch.setattr(verify, "_compare", tampered)
    finding = found(shop, "latest")["equals_full_reload"]
    assert not finding.passed and finding.told
    assert "0 rows too many, 1 missing" in finding.message


def test_history_that_nobody_has_any_more_is_not_called_equal(shop: Play):
    shop.write("d/2.csv", "id,v\n8,8\n")
    shop.loaded()
    (shop.folder / "d/2.csv").unlink()
    finding = found(shop, "orders")["equals_full_reload"]
    assert (finding.passed, finding.told) == (False, False)
    assert "Cannot tell: file://d/*.csv no longer has 2.csv" in finding.message
    assert found(shop, "latest")["equals_full_reload"].passed, "its landing has the history"


def test_other_types_and_other_columns_are_not_equal(shop: Play, monkeypatch: pytest.MonkeyPatch):
    """Spark compares a text with a number by casting, and columns by their places."""
    from velo_dagster.engine import verify

    for select in ("'1' AS id, 10 AS v", "10 AS v, 1 AS id", "1 AS id"):

        def other(loader, plan, record, session, scratch, select=select):
            session.spark.sql(f"SELECT {select}").write.format("delta").save(str(scratch.table(plan.name).path))

        monkeypatch.setattr(verify, "_reload", other)
        finding = found(shop, "orders")["equals_full_reload"]
        assert (finding.passed, finding.told) == (False, True)
        assert "its columns are id DECIMAL" in finding.message or "its columns are id BIGINT" in finding.message


def test_keys_that_are_null_are_compared(spark):
    held, made = (spark.createDataFrame([(None, x), (1, 1)], "id BIGINT, x BIGINT") for x in (1, 2))
    found = _compare(held, made, ("id",), 5)
    assert (found.rows, found.extra, found.missing) == (2, 1, 1)


def test_floats_are_compared_exactly(spark):
    def differ(held: list[float], made: list[float]) -> bool:
        one, other = (spark.createDataFrame([(1, x) for x in side], "id INT, x DOUBLE") for side in (held, made))
        return not _compare(one, other, (), None).equal

    nan, infinite = float("nan"), float("inf")
    assert differ([0.1 + 0.2], [0.3]) and differ([5.5e-17], [0.0])
    assert not differ([nan, infinite], [infinite, nan])
    assert differ([nan], [1.0]) and differ([infinite], [-infinite])
    assert differ([1.0, 1.0], [1.0]), "how often counts"


def test_a_statement_that_was_not_loaded_yet_is_not_compared(shop: Play):
    grouped = "CREATE TABLE orders AS SELECT id, COUNT(*) AS n FROM file://d/*.csv GROUP BY id;"
    shop.write("t.sql", f"-- dagster: verify=all\n{grouped}")
    finding = found(shop, "orders")["equals_full_reload"]
    assert (finding.passed, finding.told) == (False, False)
    assert finding.message == "Cannot tell: the statement changed since the last load."


@pytest.mark.parametrize("cut", ["", "id,v\n1,1", None], ids=["emptied", "cut", "gone"])
def test_a_file_that_is_no_longer_what_was_read_is_not_compared(play: Play, cut: str | None):
    play.write("d.csv.gz", gzip.compress(b"id,v\n1,10\n2,20\n"))
    sql = (
        "-- dagster: verify=all\nCREATE TABLE t AS SELECT id, v FROM file://d.csv.gz WITH ('file.deleted' = 'remove');"
    )
    play.write("t.sql", sql)
    play.loaded()
    if cut is None:
        (play.folder / "d.csv.gz").unlink()
    else:
        play.write("d.csv.gz", gzip.compress(cut.encode())[:12])
    finding = found(play, "t")["equals_full_reload"]
    assert (finding.passed, finding.told) == (False, False), finding
    assert finding.message.startswith("Cannot tell: ")


def test_a_check_that_breaks_has_failed(shop: Play):
    def broken(standing: Standing) -> Finding:
        raise AssertionError("what nobody thought of")

    project = shop.project()
    plan = project.table("orders")
    standing = Standing(project, Warehouse(str(shop.folder / "warehouse")), plan, shop.engine)
    finding = run_check(Check("odd", "", "ERROR", False, broken), standing)
    assert not finding.passed and "what nobody thought of" in finding.message


def test_rejected_rows_late_rows_and_missing_sources(shop: Play):
    shop.write("d/2.csv", "id,v\n1,2,3\n")
    shop.loaded("orders")
    assert failed(shop, "orders") == {"nothing_rejected"}
    shop.write("d/3.csv", "id,v\n1,2\n")
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

    late = Retrying(stop=stop_after_delay(30), wait=wait_fixed(0.2), retry=retry_if_result(lambda seen: not seen))
    assert late(lambda: "fresh" in failed_quickly(shop))


def failed_quickly(play: Play) -> set[str]:
    project = play.project()
    plan = project.table("orders")
    standing = Standing(project, Warehouse(str(play.folder / "warehouse")), plan, play.engine)
    return {check.name for check in checks_of(plan) if check.name == "fresh" and not run_check(check, standing).passed}


def test_the_command_refuses_a_selection_without_checks_and_ends_with_1_on_an_error(shop: Play):
    done = shop.command("check", "--warehouse", "warehouse", "--select", "latest")
    assert done.returncode == 0, done.stderr
    assert "latest.key_unique: passed" in done.stdout
    assert "5 checks: 0 failed, 0 warnings" in done.stderr
    shop.append("d/1.csv", "3,-5\n")
    shop.loaded()
    done = shop.command("check", "--warehouse", "warehouse", "--select", "orders")
    assert done.returncode == 1
    assert "orders.positive: failed (ERROR): 1 row, such as: id = 3" in done.stdout
    done = shop.command("check", "--warehouse", "warehouse", "--select", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert "E113" in done.stderr
