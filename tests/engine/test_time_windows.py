"""Time windows over files that grow late: after every load each table is what one full load and DuckDB give.

If one of these fails, a user's sums per minute are wrong as soon as a row comes late, and nothing tells them.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal

from tests.harness import Play
from velo_dagster.engine.report import Outcome
from velo_dagster.sql.problems import NotSupportedYet

# The time comes from the clause, from the source's property, or from the table that is read. What is late counts as
# everything else does: only EMIT FINAL would leave it out, and that is refused.
TABLES = """
CREATE TABLE events AS SELECT * FROM file://data/*.csv;
CREATE TABLE tumbling AS SELECT window_start, window_end, COUNT(*) AS n, SUM(amount) AS total
  FROM file://data/*.csv WINDOW TUMBLING(ts, 5m);
CREATE TABLE by_field AS SELECT who, _WINDOW_START AS s, SUM(amount) AS total
  FROM file://data/*.csv WINDOW TUMBLING(5m) GROUP BY who WITH ('event.time.field' = '${EVENT_TIME:-ts}');
CREATE TABLE sliding AS SELECT who, window_start, SUM(amount) AS total
  FROM events WINDOW SLIDING(ts, 4m, 2m) GROUP BY who;
CREATE TABLE session AS SELECT who, window_start, window_end, COUNT(*) AS n, SUM(amount) AS total
  FROM events WINDOW SESSION(ts, 2m, who) GROUP BY who;
"""
EVENTS = "read_csv('{data}/data/*.csv', types = {'ts': 'TIMESTAMP', 'who': 'VARCHAR', 'amount': 'BIGINT'})"
# The remainder is made positive: a window of 1969 begins before its rows, too.
STARTS = "make_timestamp(epoch_us(ts) - (epoch_us(ts) % {us} + {us}) % {us})"
FIVE = STARTS.replace("{us}", "300000000")
TWO = STARTS.replace("{us}", "120000000")
ANSWERS = {
    "events": f"SELECT * FROM {EVENTS}",
    "tumbling": f"SELECT {FIVE} AS window_start, {FIVE} + INTERVAL 5 MINUTE AS window_end, COUNT(*) AS n, "
    f"SUM(amount) AS total FROM {EVENTS} WHERE ts IS NOT NULL GROUP BY ALL",
    "by_field": f"SELECT who, {FIVE} AS s, SUM(amount) AS total FROM {EVENTS} WHERE ts IS NOT NULL GROUP BY ALL",
    "sliding": f"SELECT who, {TWO} - k * INTERVAL 2 MINUTE AS window_start, SUM(amount) AS total "
    f"FROM {EVENTS}, range(2) r(k) WHERE ts IS NOT NULL GROUP BY ALL",
    "session": f"""
        WITH begun AS (SELECT *, coalesce(ts - lag(ts) OVER w > INTERVAL 2 MINUTE, true) AS first
                       FROM {EVENTS} WHERE ts IS NOT NULL WINDOW w AS (PARTITION BY who ORDER BY ts)),
        counted AS (SELECT *, SUM(first::INT) OVER (PARTITION BY who ORDER BY ts) AS session FROM begun)
        SELECT who, MIN(ts) AS window_start, MAX(ts) + INTERVAL 2 MINUTE AS window_end, COUNT(*) AS n,
               SUM(amount) AS total FROM counted GROUP BY who, session""",
}
MINUTES = "ts,who,amount\n1970-01-01T00:01:00,a,100\n1970-01-01T00:02:00,a,200\n1970-01-01T00:06:00,a,500\n"


def check(play: Play, step: str) -> None:
    for name, query in ANSWERS.items():
        assert play.rows(name) == play.duckdb(query), f"{name} after {step}, against DuckDB"


def check_reload(play: Play, step: str) -> None:
    fresh = play.reloaded()
    for name in ANSWERS:
        assert play.rows(name) == fresh.rows(name), f"{name} after {step}, against a full reload"


def test_windows_follow_late_rows(play: Play):
    play.write("tables.sql", TABLES)
    play.write("data/m.csv", MINUTES)
    play.loaded()
    assert {row["total"] for row in play.table("tumbling").to_pylist()} == {300, 500}
    check(play, "bulk")

    # One closes the gap between two sessions, one is as old as can be, one stands on the edge of a window, and one has
    # no time at all, so no window either.
    play.append("data/m.csv", "1970-01-01T00:04:00,a,7\n1969-12-31T23:59:59,b,1\n1970-01-01T00:05:00,b,2\n,b,4\n")
    reports = play.loaded()
    assert {report.outcome for report in reports.values()} == {Outcome.INCREMENT}
    check(play, "late rows")
    check_reload(play, "late rows")

    play.write("data/a.csv", "ts,who,amount\n1970-01-01T00:01:30.999999,a,11\n1970-01-01T00:09:59.999999,c,13\n")
    play.loaded()
    check(play, "a late file")

    play.write("data/m.csv", MINUTES.replace("a,200", "b,-200"))
    play.loaded()
    check(play, "a rewritten file")
    check_reload(play, "a rewritten file")


def test_windows_are_half_open(play: Play):
    play.write(
        "t.sql", "CREATE TABLE t AS SELECT COUNT(*) AS n, SUM(v) AS v FROM file://t.jsonl WINDOW TUMBLING(ts, 1s);"
    )
    play.write("t.jsonl", '{"ts": "1970-01-01T00:00:00.100", "v": 10}\n{"ts": "1970-01-01T00:00:00.500", "v": 20}\n')
    play.loaded()
    play.append("t.jsonl", '{"ts": "1970-01-01T00:00:01.000", "v": 30}\n')
    play.loaded()
    assert play.rows("t") == Counter({(Decimal(2), Decimal(30)): 1, (Decimal(1), Decimal(30)): 1})


def test_windows_that_wait_for_their_end_are_refused(play: Play):
    """EMIT FINAL done as EMIT CHANGES would show sums that still change to somebody who asked for final ones."""
    play.write(
        "t.sql",
        "CREATE TABLE final AS SELECT COUNT(*) AS n FROM file://t.csv WINDOW TUMBLING(ts, 1s) EMIT FINAL;\n"
        "CREATE TABLE changes AS SELECT COUNT(*) AS n, window_end FROM file://t.csv\n"
        "WINDOW TUMBLING(ts, 1s) EMIT CHANGES;\n",
    )
    play.write("t.csv", "ts\n1970-01-01T00:00:00\n")
    reports = play.load()
    error = reports["final"].error
    assert (
        isinstance(error, NotSupportedYet)
        and "t.sql:1:86: error E207 EMIT FINAL is not supported yet." in error.render()
    )
    assert not list((play.folder / play.warehouse).glob("final*"))
    assert play.rows("changes") == Counter({(Decimal(1), datetime(1970, 1, 1, 0, 0, 1)): 1})
