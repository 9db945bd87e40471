"""Unknown columns are told before a load; but a statement that Spark takes is never refused for one."""

from __future__ import annotations

import re

import pytest

from tests.sql.test_spark_corpus import TABLES, corpus
from velo_dagster.plan.columns import unknown_columns
from velo_dagster.sql.parse import parse_select

KNOWN = {
    table: tuple(re.findall(r"\w+", found[1]))
    for table, query in TABLES.items()
    if (found := re.search(r"AS x\(([^)]*)\)", query))
}
"""The columns of the corpus' tables."""


def told(sql: str) -> list[str]:
    return [f"{p.span.column} {p.message}" for p in unknown_columns(parse_select(sql), KNOWN)]


def test_nothing_that_spark_takes_is_refused():
    assert KNOWN.keys() == TABLES.keys()
    wrong = [(sql, found) for sql in corpus() if (found := told(sql))]
    assert not wrong


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, sum(b) FROM t GROUP BY a ORDER BY `sum(b)`",
        "SELECT a, count(*) FROM t GROUP BY a HAVING `count(1)` > 1",
        "SELECT id, a + b FROM t ORDER BY `(a + b)`",
        "SELECT t.id FROM t, LATERAL (SELECT perhaps FROM u WHERE u.id = t.id) l",
        "SELECT o.perhaps FROM t o JOIN unknown x ON x.id = o.id",
    ],
)
def test_what_cannot_be_told_is_left_to_the_load(sql: str):
    assert not told(sql)


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT idd FROM t", 8),
        ("SELECT sum(bb) FROM t", 12),
        ("SELECT a, count(*), sum(bb) FROM t GROUP BY a", 25),
        ("SELECT a, a * 2 FROM t WHERE bb > 1", 30),
        ("SELECT explode(arr) FROM t WHERE bb > 1", 34),
        ("SELECT 'a text' FROM t JOIN u ON t.id = u.kk", 43),
        ("SELECT bb AS bb FROM t", 8),
        ("SELECT a, sum(b) FROM t GROUP BY a ORDER BY bb", 45),
        ("SELECT a AS x FROM t WHERE x > 1", 28),
        ("SELECT *, a + 1 AS more FROM t ORDER BY mor", 41),
        ("SELECT t.*, u.name FROM t JOIN u ON t.id = u.id ORDER BY nam", 58),
        ("SELECT id FROM t WHERE EXISTS (SELECT 'x' FROM u WHERE u.id = t.id AND nam = 'x')", 72),
        ("SELECT id FROM t WHERE id IN (SELECT kk AS q FROM u UNION SELECT k FROM w ORDER BY q)", 38),
    ],
)
def test_a_typo_is_told_with_its_place(sql: str, column: int):
    assert [int(one.split()[0]) for one in told(sql)] == [column]
