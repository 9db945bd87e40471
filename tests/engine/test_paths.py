"""Paths into nested data, through loads. If one fails, numbers that stand inside of a document are wrong or missing."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from tests.harness import Play, plain
from velo_dagster.engine.query import understand
from velo_dagster.store.table import Warehouse

APPLE = {"AAPL": {"shares": 150, "price": 150.25}, "MSFT": {"shares": 75, "price": 330.25}}
TESLA = {"TSLA": {"shares": 25, "price": 450.50}}
LINES = [
    {"id": 1, "who": "ann", "positions": {**APPLE, **TESLA}, "orders": [{"amount": 100.50}, {"amount": 250.75}]},
    {"id": 2, "who": "bob", "positions": {"MSFT": {"shares": 5, "price": 1.00}}, "orders": []},
    {"id": 3, "who": "bob"},
]
MORE = [{"id": 4, "who": "ann", "positions": {"NVDA": {"shares": 7, "price": 900.125}}, "orders": [{"amount": 75.25}]}]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_text(rows: list[dict[str, Any]]) -> str:
    """The same rows as CSV, with what is nested in one column of JSON text."""
    out = []
    for row in rows:
        nested = {key: value for key, value in row.items() if key not in ("id", "who")}
        text = json.dumps(nested).replace('"', '""')
        out.append(f'{row["id"]},{row["who"]},"{text}"\n')
    return "".join(out)


def both(play: Play, select: str) -> None:
    """The same statement over nested columns and over JSON text."""
    text = select.replace("positions", "doc.positions").replace("orders", "doc.orders")
    play.write("a.sql", f"CREATE TABLE a AS {select.replace('INPUT', 'file://a.jsonl')};")
    play.write("b.sql", f"CREATE TABLE b AS {text.replace('INPUT', 'file://b.csv')};")


def step(play: Play, rows: list[dict[str, Any]], first: bool = False) -> None:
    play.append("a.jsonl", lines(rows))
    play.append("b.csv", ("id,who,doc\n" if first else "") + as_text(rows))
    play.loaded()


def values(play: Play, table: str) -> dict[Any, tuple[Any, ...]]:
    rows = play.table(table).to_pylist()
    return {row.pop("id"): tuple(plain(value) for value in row.values()) for row in rows}


CASES = {
    "positions.*.shares AS v": {1: (150, 75, 25), 2: (5,), 3: (), 4: (7,)},
    "positions.**.price AS v": {
        1: (Decimal("150.25"), Decimal("330.25"), Decimal("450.5")),
        2: (Decimal(1),),
        3: (),
        4: (Decimal("900.125"),),
    },
    "orders[*].amount AS v": {1: (Decimal("100.5"), Decimal("250.75")), 2: (), 3: (), 4: (Decimal("75.25"),)},
    "orders[1].amount AS v": {1: Decimal("250.75"), 2: None, 3: None, 4: None},
    "orders[0].nothing.at.all AS v": {1: None, 2: None, 3: None, 4: None},
    "size(positions.*.nothing) AS v": {1: 0, 2: 0, 3: 0, 4: 0},
    "CASE WHEN orders[0].amount > 80 THEN 'much' ELSE 'little' END AS v": {
        1: "much",
        2: "little",
        3: "little",
        4: "little",
    },
    "aggregate(positions.*.shares, 0L, (s, x) -> s + x) AS v": {1: 250, 2: 5, 3: 0, 4: 7},
}


@pytest.mark.parametrize("key", ["", " PRIMARY KEY"])
def test_values_of_each_row(play: Play, key: str):
    """Row by row, with a key and without: all paths at once, before and after a load of more rows."""
    items = ", ".join(item.replace("AS v", f"AS v{n}") for n, item in enumerate(CASES))
    both(play, f"SELECT id{key}, {items} FROM INPUT")
    step(play, LINES, first=True)
    step(play, MORE)
    for table in ("a", "b"):
        found = values(play, table)
        for number, (item, expected) in enumerate(CASES.items()):
            assert {row: value[number] for row, value in found.items()} == expected, (table, item)
    assert play.rows("a") == play.reloaded("a").rows("a")


def test_paths_decide_which_rows_there_are(play: Play):
    both(play, "SELECT id, who FROM INPUT WHERE orders[0].amount > 80 OR array_contains(positions.*.shares, 5)")
    step(play, LINES, first=True)
    step(play, MORE)
    assert play.rows("a") == play.rows("b") == Counter({(Decimal(1), "ann"): 1, (Decimal(2), "bob"): 1})


AGGREGATES = """
SELECT who AS id, count(*) AS n, SUM(positions.*.shares) AS s, COUNT(positions.*.shares) AS c,
  MIN(orders[*].amount) AS lo, MAX(positions.**.price) AS hi, COUNT(DISTINCT positions.*.shares) AS d,
  AVG(positions.*.shares) AS m, SUM(positions.*.shares * positions.*.price) AS worth, SUM(id) AS ids,
  SUM(positions.*.nothing) AS none,
  COUNT(positions.*.nothing) AS zero, sum(size(orders[*].amount)) AS k
FROM INPUT GROUP BY who HAVING SUM(positions.*.shares) > 0
"""


def test_aggregates_over_all_values_of_all_rows(play: Play):
    """COUNT(*) beside them still counts rows."""
    both(play, AGGREGATES)
    step(play, LINES, first=True)
    worth = Decimal("150") * Decimal("150.25") + 75 * Decimal("330.25") + 25 * Decimal("450.5")
    low, high, mean = Decimal("100.5"), Decimal("450.5"), Decimal("83.3333333")
    expected = {
        "ann": (1, 250, 3, low, high, 3, mean, worth, 1, None, 0, 2),
        "bob": (2, 5, 1, None, Decimal(1), 1, 5, 5, 5, None, 0, 0),
    }
    assert values(play, "a") == values(play, "b") == expected
    step(play, MORE)
    more = Decimal("900.125")
    expected["ann"] = (
        *(2, 257, 4, Decimal("75.25"), more, 4, Decimal("64.25")),
        *(worth + 7 * more, 5, None, 0, 3),
    )
    assert values(play, "a") == values(play, "b") == expected
    types = {one.name: str(one.type) for one in play.table("b").schema}
    assert (types["s"], types["worth"]) == ("int64", "decimal128(38, 3)"), "no digit goes through a float"


def test_a_global_aggregate_over_no_values(play: Play):
    both(play, "SELECT 1 AS id, COUNT(positions.*.shares) AS c, SUM(positions.*.shares) AS s, COUNT(*) AS n FROM INPUT")
    step(play, [{"id": 3, "who": "bob", "positions": None}], first=True)
    assert values(play, "b") == {1: (0, None, 1)}


def test_digits_of_json_text_are_kept_and_types_widen(play: Play):
    play.write(
        "t.sql",
        "CREATE TABLE t AS SELECT id PRIMARY KEY, doc.a.b AS v, doc.list[*] AS w, doc.d AS d FROM file://t.csv;",
    )
    rows = ['1,"{""a"": {""b"": 1}, ""list"": [1, 2], ""d"": ""2024-01-05""}"', "2,not json", "3,"]
    play.write("t.csv", "id,doc\n" + "\n".join(rows) + "\n")
    play.loaded()
    assert [str(one.type) for one in play.table("t").schema][1:] == ["int64", "list<element: int64>", "date32[day]"]
    play.append("t.csv", '4,"{""a"": {""b"": 12345678901234567.25}, ""list"": [""x""]}"\n')
    report = play.loaded()["t"]
    assert (report.method, report.reason) == ("full", "a path reads JSON text, whose type is that of all its values")
    found = {row["id"]: (row["v"], row["w"]) for row in play.table("t").to_pylist()}
    assert found == {
        1: (Decimal("1.00"), ["1", "2"]),
        2: (None, []),
        3: (None, []),
        4: (Decimal("12345678901234567.25"), ["x"]),
    }


def test_a_name_may_stand_for_several_things(play: Play):
    """`x` is an object in one row and a number in another: no row loses its value."""
    play.write("t.sql", "CREATE TABLE t AS SELECT id, doc.x.y AS y, doc.**.y AS all_y FROM file://t.csv;")
    rows = ['1,"{""x"": {""y"": 5}}"', '2,"{""x"": 7, ""z"": [{""y"": 6}, {""y"": {""y"": 8}}]}"', '3,"[{""y"": 1}]"']
    play.write("t.csv", "id,doc\n" + "\n".join(rows) + "\n")
    play.loaded()
    found = {row["id"]: (row["y"], row["all_y"]) for row in play.table("t").to_pylist()}
    assert found == {1: (5, [5]), 2: (None, [6, 8]), 3: (None, [1])}


def test_joins_subqueries_and_groups(play: Play):
    """With an alias, in ON, in GROUP BY, through a subquery and WITH."""
    play.write("a.jsonl", lines(LINES))
    play.write("u.csv", "email,amount\nx,100.50\ny,1.00\n")
    play.write(
        "t.sql",
        """
        CREATE TABLE joined AS SELECT t.id, u.email FROM file://a.jsonl t JOIN file://u.csv u
          ON t.orders[0].amount = u.amount;
        CREATE TABLE grouped AS SELECT t.orders[1].amount AS second, COUNT(*) AS n, SUM(t.positions.*.shares) AS s
          FROM file://a.jsonl t GROUP BY t.orders[1].amount;
        CREATE TABLE passed AS WITH c AS (SELECT id, positions AS p FROM file://a.jsonl)
          SELECT x.id, (SELECT SUM(y.p.*.shares) FROM c y WHERE y.id = x.id) AS s FROM (SELECT * FROM c) x;
        CREATE TABLE found AS SELECT id, **.price AS prices FROM file://a.jsonl;
        """,
    )
    play.loaded()
    assert play.rows("joined") == Counter({("x", Decimal(1)): 1})
    assert play.rows("grouped") == Counter({(1, 250, Decimal("250.75")): 1, (2, 5, None): 1})
    assert play.rows("passed") == Counter({(1, 250): 1, (2, 5): 1, (3, None): 1})
    asked = "SELECT SUM(x.prices[*]) AS s, COUNT(*) AS n, MAX(prices[0]) AS m FROM found x"
    answer = understand(asked, Warehouse(str(play.folder / play.warehouse))).run(play.engine).to_pylist()
    assert answer == [{"s": Decimal("932.00"), "n": 3, "m": Decimal("150.25")}]
    prices = {row["id"]: [float(price) for price in row["prices"]] for row in play.table("found").to_pylist()}
    assert prices == {1: [150.25, 330.25, 450.5], 2: [1.0], 3: []}
