"""Paths into nested data as Spark is told them: every kind of column, every place in a query.

If one of these fails, a path finds other values than it should, or an aggregate beside it counts rows twice.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from velo_dagster.engine.nested import nested
from velo_dagster.plan.lineage import column_lineage
from velo_dagster.sql.parse import parse, parse_select
from velo_dagster.sql.spark import spark_select
from velo_dagster.sql.statements import CreateTableAs

ROWS = """
    SELECT 1 AS id, 'g' AS g,
      map('AAPL', named_struct('shares', 150L, 'price', 150.25BD),
        'MSFT', named_struct('shares', 75L, 'price', 330.25BD)) AS held,
      named_struct('a', 1, 'b', 2.50BD, 'c', CAST(NULL AS INT)) AS s,
      named_struct('level2', named_struct('level3', named_struct('deep_value', 42))) AS root,
      array(array(1, 2), array(), array(3)) AS grid,
      map(0, 'zero', 7, 'seven') AS by_number,
      array(named_struct('items', array(named_struct('n', 1), named_struct('n', 2))), named_struct('items', NULL))
        AS carts,
      '{"x": [{"y": 1.10}, {"y": 2}, {"z": 0}], "user": {"Name": "ann"}}' AS doc,
      named_struct('doc', '{"k": 5}') AS wrapped
    UNION ALL SELECT 2, 'g', map(), NULL, NULL, array(), map(), array(), 'x', NULL
    UNION ALL SELECT 3, 'h', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""
OF_FIRST_ROW: dict[str, Any] = {
    "held.*.shares": [150, 75],
    "t.held.*.price": [Decimal("150.25"), Decimal("330.25")],
    "held.**.price": [Decimal("150.25"), Decimal("330.25")],
    "held.MSFT.shares": 75,
    "held['MSFT'].*": [Decimal("75.00"), Decimal("330.25")],
    "held.*.nothing": [],
    "s.* AS v": [Decimal(1), Decimal("2.50")],
    "size(held.*)": 2,
    "array_max(grid[*][*])": 3,
    "grid[*]": [[1, 2], [], [3]],
    "grid[0][1]": 2,
    "grid[5][1]": None,
    "grid[*][0]": [1, 3],
    "root.**.deep_value": [42],
    "**.deep_value": [42],
    "**.level3.deep_value": [42],
    "**.shares": [150, 75],
    "root.*.level3.deep_value": [42],
    "root.**": [42],
    "by_number[7]": "seven",
    "by_number[8]": None,
    "carts[*].items[*].n": [1, 2],
    "carts[0].items.n": [1, 2],
    "carts[0].items[1].n": 2,
    "carts.**.n": [1, 2],
    "doc.x[*].y": [Decimal("1.10"), Decimal("2.00")],
    "doc.x[0].y + 1": Decimal("2.10"),
    "doc.user.name": "ann",
    "t.doc.user.name": "ann",
    "doc.**.y": [Decimal("1.10"), Decimal("2.00")],
    "doc.nothing[3]": None,
    "doc.x[*].nothing": [],
    "wrapped.doc.k": 5,
    "wrapped.doc.*": [5],
    "transform(held.*.shares, x -> x + id)": [151, 76],
    "CASE WHEN grid[0][0] = 1 THEN held.*.shares END": [150, 75],
    "struct(s.*).a": 1,
    "greatest(s.*)": Decimal("2.50"),
}


@pytest.fixture
def t(spark):
    spark.sql(ROWS).createOrReplaceTempView("t")
    return spark


def run(spark, sql: str) -> list[Any]:
    query = parse_select(sql)
    known = nested(spark, {"t": spark.table("t")})
    return spark.sql(spark_select(query, {"t": "t"}, nested=known)).collect()


def test_values_of_a_row(t):
    """What is there is found; a row without it has none, and is no error."""
    names = [f"c{n}" for n in range(len(OF_FIRST_ROW))]
    items = [item if " AS " in item else f"{item} AS v" for item in OF_FIRST_ROW]
    listed = ", ".join(item.replace(" AS v", f" AS {name}") for item, name in zip(items, names, strict=True))
    first, second, third = run(t, f"SELECT {listed} FROM t ORDER BY id")
    found = dict(zip(OF_FIRST_ROW, first, strict=True))
    assert found == OF_FIRST_ROW
    for item, a, b in zip(OF_FIRST_ROW, second, third, strict=True):
        assert a in ([], None, 0) and b in ([], None, 0), item


def test_aggregates(t):
    """Each value once, each row once: however many values the row has."""
    sql = """
        SELECT g, count(*) AS n, sum(id) AS ids, count(held.*.shares) AS c, sum(t.held.*.shares) AS s,
          avg(held.*.shares) AS a, min(held.**.price) AS lo, max(grid[*][*]) AS hi, count(DISTINCT grid[*][*]) AS d,
          sum(held.*.shares * held.*.price) AS worth, collect_list(grid[*][*]) AS l, first(held.*.shares) AS f,
          count(id) FILTER (WHERE id > 1) AS late, sum(grid[*][*]) FILTER (WHERE id < 9) AS q,
          percentile_cont(held.*.shares, 0.5) AS p, string_agg(held.*.shares, '/') AS j, sum(doc.x[*].y) AS y,
          sum(size(grid[*])) AS z, count(s.*) AS k, stddev_pop(grid[*][*]) AS dev
        FROM t GROUP BY g HAVING count(*) > 0 ORDER BY g
    """
    first, second = run(t, sql)
    worth = 150 * Decimal("150.25") + 75 * Decimal("330.25")
    dev = pytest.approx((2 / 3) ** 0.5)
    assert first[1:12] == (2, 3, 2, 225, 112.5, Decimal("150.25"), 3, 3, worth, [1, 2, 3], 150)
    assert first[12:] == (1, 6, 112.5, "150/75", Decimal("3.10"), 3, 2, dev)
    assert second[1:12] == (1, 3, 0, None, None, None, None, 0, None, [], None)
    assert second[12:] == (1, None, None, None, None, 0, 0, None)


def test_aggregates_over_nothing(t):
    assert run(t, "SELECT count(held.*.shares) AS c, sum(held.*.shares) AS s, count(*) AS n FROM t WHERE id > 9") == [
        (0, None, 0)
    ]


QUERIES = {
    "SELECT id FROM t WHERE held.*.shares = array(150, 75)": [(1,)],
    "SELECT id FROM t WHERE grid[1][0] IS NULL AND grid[0][0] = 1": [(1,)],
    "SELECT grid[0][0] AS k, count(*) AS n FROM t GROUP BY grid[0][0] ORDER BY k": [(None, 2), (1, 1)],
    "SELECT a.id, b.id FROM t a JOIN t b ON a.grid[0][0] = b.s.a": [(1, 1)],
    "SELECT x.h.*.shares AS v FROM (SELECT held AS h, id FROM t) x WHERE x.id = 1": [([150, 75],)],
    "WITH c(i, h) AS (SELECT id, held FROM t) SELECT sum(h.*.shares) AS v FROM c": [(225,)],
    "SELECT (SELECT sum(u.held.*.shares) FROM t u WHERE u.id = t.id) AS v FROM t WHERE id < 3 ORDER BY id": [
        (225,),
        (None,),
    ],
    "SELECT sum(held.*.shares) AS v FROM t UNION ALL SELECT count(grid[*][*]) FROM t WHERE id = 1": [(225,), (3,)],
    "SELECT id, row_number() OVER (ORDER BY grid[0][1], id) AS v FROM t ORDER BY id": [(1, 3), (2, 1), (3, 2)],
    "SELECT sum(t.held.*.shares) AS v FROM t, t AS u WHERE t.id = u.id": [(225,)],
    "SELECT count(struct(t.*)) AS v FROM t": [(3,)],
    "SELECT sum(e.n) AS v FROM t LATERAL VIEW explode(carts[0].items) x AS e": [(3,)],
    "SELECT sum(held.*.shares) AS v, count(*) AS n FROM t LATERAL VIEW explode(array(1, 2)) x AS e": [(450, 6)],
}


@pytest.mark.parametrize("sql", QUERIES)
def test_places_in_a_query(t, sql: str):
    assert [tuple(row) for row in run(t, sql)] == QUERIES[sql]


def test_columns_without_a_name_are_called_as_they_are_written(t):
    query = parse_select("SELECT held.*.shares, sum(id), count(grid[*]) FROM t GROUP BY ALL")
    text = spark_select(query, {"t": "t"}, nested=nested(t, {"t": t.table("t")}))
    assert t.sql(text).columns == ["held.*.shares", "sum_id", "count_grid[*]"]


def test_lineage_sees_the_column_that_a_path_reads():
    sql = "CREATE TABLE x AS SELECT t.a.*.b AS v, sum(c[*].d) AS w, e[0].f AS y, **.g AS z FROM t GROUP BY ALL"
    (statement,), _ = parse(sql, "a.sql")
    assert isinstance(statement, CreateTableAs)
    found = column_lineage(statement, {"t": ["a", "c", "e"]}, ["v", "w", "y", "z"])
    assert found == {
        "v": [("t", "a")],
        "w": [("t", "c")],
        "y": [("t", "e")],
        "z": [("t", "a"), ("t", "c"), ("t", "e")],
    }
