"""Column lineage: a wrong origin sends whoever changes a column to the wrong table."""

from __future__ import annotations

import pytest

from velo_dagster.plan.lineage import column_lineage
from velo_dagster.sql.parse import parse

INPUTS = {
    "orders": ["id", "user_id", "amount"],
    "users": ["user_id", "city"],
    "_input_0": ["k", "v"],
    "_input_1": ["k"],
}
CASES = [
    (
        "SELECT u.city, SUM(o.amount) AS s, COUNT(*) AS n FROM orders o JOIN users u ON o.id = u.user_id GROUP BY 1",
        {"city": ["users.city"], "s": ["orders.amount"], "n": []},
    ),
    (
        "SELECT * EXCEPT (amount), (SELECT MAX(p.amount) FROM orders p WHERE p.id = o.id) AS m FROM orders o",
        {"id": ["orders.id"], "user_id": ["orders.user_id"], "m": ["orders.amount"]},
    ),
    (
        "WITH a AS (SELECT id AS k, amount * 2 AS v FROM orders) SELECT k, v + 1 AS w FROM a "
        "UNION ALL SELECT user_id, city FROM users",
        {"k": ["orders.id", "users.user_id"], "w": ["orders.amount", "users.city"]},
    ),
    ("SELECT k PRIMARY KEY, v AS w FROM file://a.csv", {"k": ["_input_0.k"], "w": ["_input_0.v"]}),
    (
        "SELECT a.k, b.k AS other FROM file://a.csv a JOIN file://b.csv b ON a.k = b.k",
        {"k": ["_input_0.k"], "other": ["_input_1.k"]},
    ),
    (
        "SELECT s.amount.x AS c, q.* FROM (SELECT * FROM users) q JOIN orders s ON true",
        {"c": ["orders.amount"], "user_id": ["users.user_id"], "city": ["users.city"]},
    ),
    (
        "SELECT city, amount FROM users JOIN orders USING (user_id)",
        {"city": ["users.city"], "amount": ["orders.amount"]},
    ),
    (
        "SELECT id, CASE WHEN amount > 1 THEN city ELSE 'x' END AS c FROM orders, users",
        {"id": ["orders.id"], "c": ["orders.amount", "users.city"]},
    ),
    (
        "SELECT user_id, row_number() OVER (PARTITION BY user_id ORDER BY amount) AS r FROM orders",
        {"user_id": ["orders.user_id"], "r": ["orders.amount", "orders.user_id"]},
    ),
    # A window's start and end are made of the time, which the clause names, or the input.
    (
        "SELECT window_start, _WINDOW_END AS e, date(window_start) AS d, SUM(amount) AS s FROM orders "
        "WINDOW TUMBLING(id, 5m)",
        {"window_start": ["orders.id"], "e": ["orders.id"], "d": ["orders.id"], "s": ["orders.amount"]},
    ),
    (
        "SELECT u.city, window_end FROM orders o JOIN users u ON true WINDOW SESSION(5m) GROUP BY u.city EMIT FINAL",
        {"city": ["users.city"], "window_end": ["orders.amount"]},
    ),
    (
        "SELECT q.w FROM (SELECT window_end AS w FROM file://a.csv WINDOW SLIDING(5m, 1m)) q",
        {"w": ["_input_0.v"]},
    ),
    ("SELECT window_start FROM (SELECT id AS window_start FROM orders)", {"window_start": ["orders.id"]}),
]
TIMES = {"orders": "amount", "_input_0": "v.at"}


@pytest.mark.parametrize(("select", "expected"), CASES)
def test_origins(select: str, expected: dict[str, list[str]]):
    (statement,), problems = parse(f"CREATE TABLE t AS {select}", "f")
    assert not problems
    found = column_lineage(statement, INPUTS, list(expected), TIMES)  # pyright: ignore[reportArgumentType]
    assert {name: [".".join(origin) for origin in origins] for name, origins in found.items()} == expected


def test_declared_names_follow_their_places():
    (statement,), _ = parse("CREATE TABLE t (a INT, b INT) AS SELECT id, amount FROM orders", "f")
    found = column_lineage(statement, INPUTS, ["a", "b"])  # pyright: ignore[reportArgumentType]
    assert found == {"a": [("orders", "id")], "b": [("orders", "amount")]}
