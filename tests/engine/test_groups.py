"""Tables that are computed in parts, through loads: what is written, what is not, and when all of it is computed.

What a user loses if this fails: rows that are wrong after an increment, or loads of what did not change.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.harness import Interpreting, Play
from velo_dagster.engine.errors import DuplicateKey
from velo_dagster.engine.refresh import exactly, groups
from velo_dagster.engine.refresh.differences import computed
from velo_dagster.engine.session import EmbeddedEngine

SOURCES = """
CREATE TABLE orders AS SELECT * FROM file://orders*.csv;
CREATE TABLE users AS SELECT user_id PRIMARY KEY, city FROM file://users.csv;
"""
FORMS = {
    "tumbling": "SELECT user_id, window_start, COUNT(*) AS n FROM orders WINDOW TUMBLING(at, 5m) GROUP BY user_id",
    "timed": "SELECT user_id, window_start, COUNT(*) AS n FROM orders WITH ('event.time.field' = 'at') "
    "WINDOW TUMBLING(5m) GROUP BY user_id",
    "sliding": "SELECT window_start, SUM(amount) AS s FROM orders WINDOW SLIDING(at, 10m, 5m)",
    "session": "SELECT user_id, window_start, COUNT(*) AS n FROM orders WINDOW SESSION(at, 5m) GROUP BY user_id",
    "maps": "SELECT o.id, map('city', u.city) AS m FROM orders o LEFT JOIN users u ON o.user_id = u.user_id",
    "keyed": "SELECT o.id PRIMARY KEY, u.city FROM orders o JOIN users u ON o.user_id = u.user_id",
    "floats": "SELECT user_id, AVG(amount::DOUBLE) AS a, SUM(amount::DOUBLE) AS s FROM orders GROUP BY user_id",
    "spread": "SELECT user_id, STDDEV(amount::DOUBLE) d, SUM(DISTINCT amount::DOUBLE) s FROM orders GROUP BY user_id",
    "any": "SELECT o.id FROM orders o WHERE o.amount > ANY (SELECT p.amount FROM orders p WHERE p.id <> o.id)",
    "all": "SELECT o.id FROM orders o WHERE o.id >= ALL (SELECT p.id FROM orders p WHERE p.user_id = o.user_id)",
    "named": "SELECT upper(city), COUNT(*) FROM users GROUP BY upper(city)",
    "many": "SELECT o.id, e FROM orders o LATERAL VIEW explode(array(o.amount, o.amount + 1)) x AS e",
}
DECLARED = """
CREATE TABLE counted (user_id STRING, n DECIMAL(10,0)) AS SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id;
CREATE TABLE seen (user_id STRING) AS SELECT DISTINCT user_id FROM orders;
CREATE TABLE every (user_id STRING) AS SELECT user_id, 1 AS one, MAX(amount) AS m FROM orders GROUP BY ALL;
CREATE TABLE dotted AS SELECT user_id AS `user.id` PRIMARY KEY, MIN(city) AS `c-c` FROM users GROUP BY user_id;
"""


@pytest.fixture
def shop(tmp_path: Path, engine: EmbeddedEngine) -> Play:
    play = Play(tmp_path, Interpreting(engine), small=0)
    play.write(
        "orders-1.csv",
        "id,user_id,amount,at\n1,1,10.50,2025-01-01T10:00:00\n2,2,0.10,2025-01-01T10:04:00\n3,,7.00,2025-01-01T10:06:00\n",
    )
    play.write("users.csv", "user_id,city\n1,Rome\n2,Oslo\n")
    return play


def test_every_form_equals_a_full_reload(shop: Play):
    made = [f"CREATE TABLE {name} AS {select};" for name, select in FORMS.items()]
    shop.write("t.sql", "\n".join([SOURCES, DECLARED, *made]))
    tables = [*FORMS, "counted", "seen", "every", "dotted"]
    methods = dict.fromkeys(tables, "groups")
    # Orders only come, and of these nothing is asked but what new rows can be added to.
    methods |= dict.fromkeys(("tumbling", "timed", "sliding", "floats", "counted", "every"), "merge")
    shop.loaded()
    for number, more in enumerate(
        ["4,1,0.20,2025-01-01T10:02:00\n5,3,1.00,2025-01-01T10:09:00\n", "6,2,5.00,2025-01-01T10:07:30\n"]
    ):
        shop.append("orders-1.csv", more)
        shop.append("users.csv", f"2,Bern\n{number + 3},Rome\n")
        reports = shop.loaded()
        assert {name: reports[name].method for name in tables} == methods
        fresh = shop.reloaded()
        for name in tables:
            assert shop.rows(name) == fresh.rows(name), name


JOINED = {
    "matched": "SELECT o.id, u.city FROM orders o JOIN users u ON o.user_id = u.user_id",
    "kept": "SELECT o.user_id, u.city FROM users u RIGHT JOIN orders o ON o.user_id = u.user_id WHERE o.amount > 0.15",
    "crossed": "SELECT o.amount, x.city FROM orders o CROSS JOIN (SELECT MIN(city) AS city FROM towns) x",
    "several": "SELECT o.id, t.city, o.amount + 0.0D AS a FROM orders o JOIN towns t ON t.id <= o.user_id",
}
TOWNS = "CREATE TABLE towns AS SELECT id, city FROM file://towns.csv WITH ('file.deleted' = 'remove');"


@pytest.mark.parametrize(
    ("few", "in_parts"),
    [
        (exactly.NOT_MANY, [[], ["kept"], ["crossed", "several"], ["kept"]]),
        (0, [[], ["kept", "matched"], ["crossed", "several"], ["kept", "matched"]]),
    ],
    ids=["few rows", "many rows"],
)
def test_rows_go_and_come_by_what_changed_rows_give(
    shop: Play, monkeypatch: pytest.MonkeyPatch, few: int, in_parts: list[list[str]]
):
    """Rows come in what is joined, change in what they are joined with, and go where others of the same row stay.

    `in_parts`: by step, what is computed anew to be compared.
    """
    monkeypatch.setattr(exactly, "NOT_MANY", few)
    asked: list[str] = []
    monkeypatch.setattr(
        groups, "computed", lambda work, frame: (asked.append(work.plan.name), computed(work, frame))[1]
    )
    shop.write("towns.csv", "id,city\n1,Rome\n1,Rome\n2,Bern\n")
    shop.write("t.sql", SOURCES + TOWNS + "".join(f"CREATE TABLE {name} AS {of};" for name, of in JOINED.items()))
    shop.loaded()
    found = []
    for step in (
        lambda: shop.append("orders-1.csv", "4,1,0.20,2025-01-01T10:02:00\n4,1,0.20,2025-01-01T10:02:00\n"),
        lambda: shop.append("users.csv", "1,Bonn\n"),
        lambda: shop.write("towns.csv", "id,city\n1,Rome\n2,Bern\n2,Oslo\n"),
        lambda: shop.append("users.csv", "1,Rome\n2,Rome\n1,Bonn\n"),
    ):
        step()
        asked.clear()
        reports = shop.loaded()
        found.append(sorted(asked))
        assert {reports[name].method for name in JOINED if reports[name].rows_changed} == {"groups"}
        fresh = shop.reloaded()
        for name in JOINED:
            assert shop.rows(name) == fresh.rows(name), name
    assert found == in_parts


def test_what_changes_nothing_loads_nothing_downstream(shop: Play):
    shop.write(
        "t.sql",
        SOURCES + "CREATE TABLE top AS SELECT user_id, MAX(amount) AS m FROM orders GROUP BY user_id;"
        "CREATE TABLE spread AS SELECT m, COUNT(*) AS n FROM top GROUP BY m;"
        "CREATE TABLE all_of_it AS SELECT DISTINCT n FROM spread;",
    )
    shop.loaded()
    shop.append("orders-1.csv", "4,1,0.20,2025-01-01T10:02:00\n")
    for small in (0, 2**40):
        shop.small = small
        shop.append("orders-1.csv", "5,1,0.30,2025-01-01T10:02:00\n")
        reports = shop.loaded()
        assert (reports["top"].outcome.value, reports["top"].rows_changed) == ("increment", 0)
        assert [reports[name].outcome.value for name in ("spread", "all_of_it")] == ["unchanged", "unchanged"]
    shop.append("orders-1.csv", "6,1,99.00,2025-01-01T10:02:00\n")
    reports = shop.loaded()
    assert all(report.rows_changed for report in reports.values() if report.table in ("top", "spread"))
    assert shop.rows("spread") == shop.reloaded().rows("spread")


def test_a_key_that_another_part_has_already_fails_the_load(shop: Play):
    select = "SELECT u.city PRIMARY KEY, u.user_id FROM users u JOIN orders o ON o.user_id = u.user_id"
    shop.write("t.sql", SOURCES + f"CREATE TABLE cities AS {select};")
    shop.loaded()
    before = shop.rows("cities")
    shop.append("users.csv", "4,Rome\n")
    shop.append("orders-1.csv", "4,4,1.00,2025-01-01T10:02:00\n")
    error = shop.load()["cities"].error
    assert isinstance(error, DuplicateKey) and "Rome" in str(error)
    assert shop.rows("cities") == before


def test_an_old_version_that_is_gone_means_computing_all(shop: Play):
    shop.write("t.sql", SOURCES + "CREATE TABLE n AS SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id;")
    shop.loaded()
    shop.loaded("orders", full_refresh=True)
    report = shop.loaded()["n"]
    assert (report.method, "orders was recomputed" in report.reason) == ("full", True)
    shop.append("orders-1.csv", "4,1,0.20,2025-01-01T10:02:00\n")
    assert shop.loaded()["n"].method == "merge"
    assert shop.rows("n") == shop.reloaded().rows("n")


def test_a_sign_of_zero_is_a_change(tmp_path: Path, engine: EmbeddedEngine):
    """0.0 and -0.0 are equal to Spark, and are not the same: texts that are made of them differ."""
    play = Play(tmp_path, Interpreting(engine), small=0)
    tables = {
        "joined": "SELECT r.id, r.f, u.name FROM r JOIN u ON u.k = r.k",
        "inside": "SELECT r.id, array(r.f) AS fs, u.name FROM r JOIN u ON u.k = r.k",
        "keyed": "SELECT id PRIMARY KEY, f FROM r",
        "newest": "SELECT k, MAX_BY(f, id) AS f FROM r GROUP BY k",
        "told": "SELECT CAST(f AS STRING) AS t, COUNT(*) AS n FROM joined GROUP BY CAST(f AS STRING)",
    }
    play.write(
        "t.sql",
        "CREATE TABLE r AS SELECT * FROM file://r.csv WITH ('number.format' = 'double');"
        "CREATE TABLE u AS SELECT k PRIMARY KEY, name FROM file://u.csv;"
        + "".join(f"CREATE TABLE {name} AS {select};" for name, select in tables.items()),
    )
    # So many other names that r, which is small beside them, is compared with what it was.
    others = "".join(f"{n},{random.Random(n).randbytes(400).hex()}\n" for n in range(50))
    play.write("u.csv", f"k,name\na,Ann\n{others}")
    play.write("r.csv", "id,k,f\n1,a,0.0\n2,a,0.0\n")
    play.loaded()
    for text in ("id,k,f\n1,a,0.0\n2,a,-0.0\n", "id,k,f\n1,a,-0.0\n2,a,-0.0\n3,a,0.0\n3,a,-0.0\n"):
        play.write("r.csv", text)
        play.loaded()
        fresh = play.reloaded()
        for name in tables:
            ours, theirs = (sorted(map(repr, one.table(name).to_pylist())) for one in (play, fresh))
            assert ours == theirs, name


def test_names_inside_of_values_that_need_quotes(tmp_path: Path, engine: EmbeddedEngine):
    play = Play(tmp_path, Interpreting(engine), small=0)
    tables = {
        "added": "SELECT k, MAX(s) AS s, COUNT(*) AS n FROM r GROUP BY k",
        "twice": "SELECT s AS one, s AS other, COUNT(*) AS n FROM r GROUP BY s",
        "mapped": "SELECT r.k, r.s, map('q', u.q) AS m FROM r LEFT JOIN u ON u.k = r.k",
    }
    made = [f"CREATE TABLE {name} AS {select};" for name, select in tables.items()]
    sources = "CREATE TABLE r AS SELECT * FROM file://r.jsonl; CREATE TABLE u AS SELECT * FROM file://u.csv;"
    play.write("u.csv", "k,q\na,1\n")
    first = '{"k": "a", "s": {"first-name": "x", "n": 1}}\n'
    play.grown(sources + "".join(made), {"r.jsonl": first}, {"r.jsonl": first.replace("x", "z"), "u.csv": "b,2\n"})
    fresh = play.reloaded()
    for name in tables:
        assert play.rows(name) == fresh.rows(name), name
