"""Tables that wait for the tables they read: as long as their statements say, and not when nothing can come of it."""

from __future__ import annotations

from threading import Thread

from tests.harness import Play
from velo_dagster.engine.errors import NotReady


def statements(properties: str) -> str:
    return f"CREATE TABLE a AS SELECT id FROM file://a.csv; CREATE TABLE b AS SELECT id FROM a WITH ({properties});"


def test_a_table_is_waited_for(play: Play):
    play.write("t.sql", statements("'wait.timeout' = '60s', 'retry.interval' = '0.2s', 'retry.strategy' = 'fixed'"))
    play.write("a.csv", "id\n1\n")
    other = Thread(target=lambda: play.loaded("a"))
    other.start()
    report = play.loaded("b")["b"]
    other.join()
    assert sum(play.rows("b").values()) == 1
    assert any("which is not ready" in note and "Looking again" in note for note in report.notes)


def test_time_is_up(play: Play):
    play.write("t.sql", statements("'wait.timeout' = '0.3s', 'retry.interval' = '0.1s'"))
    report = play.load("b")["b"]
    assert isinstance(report.error, NotReady)


def test_not_where_it_must_not_or_where_this_run_has_tried(play: Play):
    play.write("t.sql", statements("'wait.timeout' = '10m', 'missing.reference' = 'fail'"))
    assert isinstance(play.load("b")["b"].error, NotReady)
    play.write("t.sql", statements("'wait.timeout' = '10m'"))
    play.write("a.csv", "")
    reports = play.load()
    assert isinstance(reports["b"].error, NotReady)
    assert "in this run: no rows yet" in str(reports["b"].error)
