"""A statement that changes its form keeps what its table was given, or the load says what would go."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from tests.harness import Play
from velo_dagster.engine.landings import delivered
from velo_dagster.engine.report import LoadReport, Outcome
from velo_dagster.engine.status import table_status
from velo_dagster.errors import VeloError
from velo_dagster.store.table import Warehouse

FILES = "FROM file://d/*.csv"
PLAIN = f"CREATE TABLE t AS SELECT id, x {FILES};"
KEYED = f"CREATE TABLE t AS SELECT id PRIMARY KEY, x {FILES};"
DISTINCT = f"CREATE TABLE t AS SELECT DISTINCT id, x {FILES};"
RAW = f"CREATE TABLE raw AS SELECT id, x {FILES};"
FROM_RAW = f"{RAW} CREATE TABLE t AS SELECT id, x FROM raw;"
BOTH = Counter({(Decimal(1), Decimal(10)): 1, (Decimal(2), Decimal(20)): 1})


def started(play: Play, sql: str) -> None:
    """Two files were loaded, and one of them is gone since."""
    play.write("d/1.csv", "id,x\n1,10\n")
    play.write("d/2.csv", "id,x\n2,20\n")
    play.write("t.sql", sql)
    play.loaded()
    (play.folder / "d/2.csv").unlink()
    play.loaded()


def changed(play: Play, sql: str, **options: bool) -> LoadReport:
    play.write("t.sql", sql)
    return play.load(**options)["t"]


def refused(report: LoadReport) -> None:
    assert report.outcome is Outcome.FAILED and isinstance(report.error, VeloError)
    assert report.error.code == "L401" and "2.csv" in report.error.what


@pytest.mark.parametrize("before", [KEYED, DISTINCT, FROM_RAW], ids=["keyed", "distinct", "table"])
def test_a_table_becomes_a_plain_append_again(play: Play, before: str):
    play.write("d/1.csv", "id,x\n1,10\n")
    play.write("t.sql", before)
    play.loaded()
    assert changed(play, PLAIN).error is None
    play.append("d/1.csv", "2,20\n")
    assert play.loaded()["t"].method == "append"
    assert play.rows("t") == BOTH
    assert changed(play, PLAIN, full_refresh=True).error is None


@pytest.mark.parametrize(
    ("before", "after"),
    [(PLAIN, KEYED), (PLAIN, DISTINCT), (KEYED, PLAIN), (PLAIN, FROM_RAW), (FROM_RAW, PLAIN), (FROM_RAW, KEYED)],
    ids=["plain-keyed", "plain-distinct", "keyed-plain", "source-table", "table-source", "table-keyed"],
)
def test_rows_that_only_the_table_has_do_not_go_with_its_form(play: Play, before: str, after: str):
    started(play, before)
    refused(changed(play, after))
    refused(changed(play, after, full_refresh=True))
    assert play.rows("t") == BOTH
    assert changed(play, after, full_refresh=True, accept_loss=True).error is None
    assert play.rows("t") == Counter({(Decimal(1), Decimal(10)): 1})
    assert changed(play, before).error is None
    left = BOTH if before == FROM_RAW else Counter({(Decimal(1), Decimal(10)): 1})
    assert play.rows("t") == left, "a loss that was accepted is final, but the other table has its rows"


def test_rows_that_another_table_has_are_not_lost(play: Play):
    started(play, f"{PLAIN} {RAW}")
    assert changed(play, FROM_RAW).error is None
    assert play.rows("t") == BOTH


def test_a_landing_stays_with_its_source(play: Play):
    """Whatever place the source has in the statement: its rows are neither lost nor read again."""
    play.write("b.csv", "id,y\n1,7\n2,8\n")
    started(play, "CREATE TABLE t AS SELECT a.id, a.x FROM file://d/*.csv a JOIN file://b.csv b ON a.id = b.id;")
    assert play.rows("t") == BOTH
    report = changed(play, "CREATE TABLE t AS SELECT a.id, a.x FROM file://b.csv b JOIN file://d/*.csv a USING (id);")
    assert (report.error, report.rows_read) == (None, 0)
    assert play.rows("t") == BOTH
    play.write("c.csv", "z\n5\n")
    three = "CREATE TABLE t AS SELECT a.id, a.x FROM file://c.csv c CROSS JOIN file://b.csv b JOIN file://d/*.csv a"
    report = changed(play, f"{three} ON a.id = b.id;")
    assert (report.error, report.rows_read) == (None, 1), "only the new source is read"
    assert play.rows("t") == BOTH
    play.write("d/3.csv", "id,x\n1,30\n")
    assert play.loaded()["t"].rows_read == 1
    project, warehouse = play.project(), Warehouse(str(play.folder / "warehouse"))
    plan = project.table("t")
    status = table_status(project, warehouse, plan)
    assert [(one.name, one.summary) for one in status.inputs] == [
        ("file://c.csv", "1 file, 4 bytes"),
        ("file://b.csv", "1 file, 13 bytes"),
        ("file://d/*.csv", "3 files, 30 bytes, 1 of them gone"),
    ]


def test_a_table_called_source_is_not_a_source(play: Play):
    play.write("d/1.csv", "id,x\n1,10\n")
    sql = f"CREATE TABLE source AS SELECT id, x {FILES}; CREATE TABLE t AS SELECT id, x FROM source;"
    play.write("t.sql", sql)
    play.loaded()
    project, warehouse = play.project(), Warehouse(str(play.folder / "warehouse"))
    record = warehouse.table("t").record()
    status = table_status(project, warehouse, project.table("t"))
    assert (status.health, status.inputs[0].lag) == ("ok", 0)
    play.write("t.sql", PLAIN)
    assert table_status(play.project(), warehouse, play.project().table("t")).inputs[0].position is None
    plan = play.project().table("t")
    assert delivered(warehouse, plan, plan.inputs[0], record) is None
    assert changed(play, PLAIN).error is None
    assert changed(play, sql).error is None
    assert play.rows("t") == Counter({(Decimal(1), Decimal(10)): 1})
