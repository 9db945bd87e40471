"""Columns that are added to an order to tell rows apart never cost a user a statement that Spark takes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.harness import Play
from velo_dagster.engine.refresh import full as refresh
from velo_dagster.sql.spark import Ties


def test_an_order_is_completed_only_where_the_statement_still_means_the_same(play: Play):
    """Columns added where groups or an order inside forbid it make a load fail, or give other rows than Spark does."""
    play.write("data/a.csv", "id,amount\n1,8\n2,1\n3,5\n")
    play.write(
        "t.sql",
        """
        CREATE TABLE total AS SELECT sum(amount) AS s, row_number() OVER (ORDER BY sum(amount)) AS r FROM file://data/*.csv;
        CREATE TABLE groups AS SELECT id % 2 AS b, row_number() OVER (ORDER BY count(*)) AS r FROM file://data/*.csv
            GROUP BY b;
        CREATE TABLE top AS SELECT id FROM (SELECT * FROM file://data/*.csv ORDER BY amount DESC) LIMIT 2;
        """,
    )
    reports = play.loaded()
    assert play.rows("total") == Counter({(1, 14): 1})
    assert play.rows("groups") == Counter({(0, 1): 1, (1, 2): 1})
    assert play.rows("top") == Counter({(1,): 1, (3,): 1})
    assert not any("told apart" in report.reason for report in reports.values())


def test_what_spark_takes_only_as_it_is_written_is_loaded_so_and_said(play: Play, monkeypatch: pytest.MonkeyPatch):
    """A statement that is right must not fail because of our additions; that its order stays open is in the report."""
    play.write("data/a.csv", "id,amount\n1,8\n")
    play.write("t.sql", "CREATE TABLE t AS SELECT id FROM file://data/*.csv ORDER BY id LIMIT 1;")
    monkeypatch.setattr(refresh, "_ties", lambda *_: Ties([99], {}))
    report = play.loaded()["t"]
    assert play.rows("t") == Counter({(1,): 1})
    assert report.reason.endswith(refresh.OPEN)
