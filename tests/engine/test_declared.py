"""Declared types over computed values: each value is kept exactly, or the load fails and names it."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

from tests.harness import Play
from velo_dagster.engine.errors import DuplicateKey
from velo_dagster.store.table import Warehouse

KEPT = [
    ("DATE", "trim(v)", "2025-06-01", date(2025, 6, 1)),
    ("TIMESTAMP", "trim(v)", "2025-06-01 10:11:12.123456", datetime(2025, 6, 1, 10, 11, 12, 123456)),
    ("BOOLEAN", "trim(v)", "true", True),
    (
        "DECIMAL(38,0)",
        "concat(v, '')",
        "12345678901234567890123456789012345678",
        12345678901234567890123456789012345678,
    ),
    ("DECIMAL(38,20)", "concat(v, '')", "0.12345678901234567890", Decimal("0.12345678901234567890")),
    ("INT", "concat(v, '')", "7.00", 7),
    ("BIGINT", "concat(v, 'e2')", "7", 700),
    ("DOUBLE", "concat(v, '')", "0.1", 0.1),
    ("STRING", "v", "7", "7"),
    ("DATE", "CAST(v AS TIMESTAMP)", "2025-06-01", date(2025, 6, 1)),
    ("INT", "CAST(v AS DOUBLE)", "7", 7),
]
REFUSED = [
    ("DATE", "trim(v)", "2025-06-01 10:00:00"),
    ("TIMESTAMP", "trim(v)", "2025-06-01 10:11:12.1234567"),
    ("DECIMAL(38,0)", "concat(v, '')", "1.5"),
    ("DECIMAL(38,18)", "concat(v, '')", "0.1234567890123456789"),
    ("INT", "concat(v, '')", "7.25"),
    ("INT", "concat(v, '')", "3000000000"),
    ("INT", "concat(v, 'e-1')", "7"),
    ("DATE", "CAST(v AS TIMESTAMP)", "2025-06-01 10:00:00"),
    ("INT", "CAST(v AS DOUBLE)", "7.5"),
]


def declare(play: Play, type_: str, expression: str, value: str) -> None:
    play.write("t.sql", f"CREATE TABLE t (d {type_}) AS SELECT {expression} AS d FROM file://d.csv")
    play.write("d.csv", f"v\n{value}\n")


@pytest.mark.parametrize(("type_", "expression", "value", "kept"), KEPT)
def test_kept(play: Play, type_: str, expression: str, value: str, kept: object):
    declare(play, type_, expression, value)
    play.loaded()
    (held,) = play.table("t").column("d").to_pylist()
    if isinstance(held, datetime):
        held = held.replace(tzinfo=None)
    assert held == kept


@pytest.mark.parametrize(("type_", "expression", "value"), REFUSED)
def test_refused(play: Play, type_: str, expression: str, value: str):
    declare(play, type_, expression, value)
    error = play.load()["t"].error
    assert error is not None
    assert value.split()[0][:7] in str(error), error
    assert Warehouse(str(play.folder / "warehouse")).table("t").record() is None


def test_a_null_is_kept(play: Play):
    play.write("t.sql", "CREATE TABLE t (d DATE, n INT) AS SELECT trim(v) AS d, concat(w, '') AS n FROM file://d.csv")
    play.write("d.csv", "k,v,w\n1,,\n2,2025-01-01,5\n")
    play.loaded()
    assert play.table("t").to_pylist() == [{"d": None, "n": None}, {"d": date(2025, 1, 1), "n": 5}]


def test_a_key_that_a_join_doubles_fails_the_load_and_names_it(play: Play):
    play.write(
        "t.sql", "CREATE TABLE t AS SELECT a.k PRIMARY KEY, b.v FROM file://a.csv a JOIN file://b.csv b ON a.k = b.k"
    )
    play.write("a.csv", "k\n1\n2\n")
    play.write("b.csv", "k,v\n1,1\n2,1\n2,2\n")
    error = play.load()["t"].error
    assert isinstance(error, DuplicateKey)
    assert "k=2 has 2 rows" in str(error)
    play.write("b.csv", "k,v\n1,1\n2,2\n")
    play.loaded()
    assert sum(play.rows("t").values()) == 2
