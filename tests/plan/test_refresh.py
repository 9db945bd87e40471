"""Which refresh method a table gets, and why. A wrong one is a table that is wrong after its first increment."""

from __future__ import annotations

import pytest

from tests.cases import answered
from velo_dagster.plan.refresh import plan_refresh
from velo_dagster.sql.parse import parse
from velo_dagster.sql.rows import row_select
from velo_dagster.sql.statements import CreateTableAs

CASES = answered("plan/refresh.sql")


def test_there_are_many_cases():
    assert len(CASES) >= 150
    assert sum("\n" in answer for _, answer in CASES) >= 40


@pytest.mark.parametrize(("select", "answer"), CASES)
def test_refresh(select: str, answer: str):
    statements, problems = parse(f"CREATE TABLE x AS {select}", "a.sql")
    assert not problems
    assert isinstance(statements[0], CreateTableAs)
    refresh = plan_refresh(statements[0])
    expected, *touches = answer.splitlines()
    method, keys, reason = [*expected.split(" ", 2), "", ""][:3]
    assert refresh.method == method
    assert refresh.keys == tuple(key for key in keys.split(",") if key not in ("", "-"))
    assert refresh.reason.startswith(reason)
    assert refresh.cost
    if method == "groups":
        assert [f"{name}: {words}" for name, words in refresh.touches.items()] == touches


@pytest.mark.parametrize(
    ("statement", "method", "keys"),
    [
        ("CREATE TABLE x (ID INT) AS SELECT id PRIMARY KEY, v FROM input", "merge", ("ID",)),
        ("CREATE TABLE x (id INT PRIMARY KEY, v INT) AS SELECT ID, v FROM input", "merge", ("id",)),
        ("CREATE TABLE x (id INT, v INT) AS SELECT a PRIMARY KEY, b FROM input", "groups", ("id",)),
        ("CREATE TABLE x (id INT PRIMARY KEY, v INT) AS SELECT a, b FROM input", "groups", ("id",)),
    ],
)
def test_a_key_is_the_column_that_the_table_shows(statement: str, method: str, keys: tuple[str, ...]):
    """Else rows are matched by another column of the input, or a load fails on a column that is not there."""
    (parsed,), _ = parse(statement, "a.sql")
    assert isinstance(parsed, CreateTableAs)
    refresh = plan_refresh(parsed)
    assert (refresh.method, refresh.keys) == (method, keys)


def test_a_relations_properties_are_no_part_of_its_rows():
    text = "CREATE TABLE x AS SELECT k PRIMARY KEY, v FROM file://d/*.csv WITH ('delimiter'=';') WHERE v > 1"
    (parsed,), _ = parse(text, "a.sql")
    assert isinstance(parsed, CreateTableAs)
    select = row_select(parsed)
    assert select is not None
    assert (select.items, select.where, select.keys) == ("k, v", "v > 1", (("k", "k"),))
