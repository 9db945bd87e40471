"""Time windows over files that grow late: after every load each table is what one full load and DuckDB give.

If one of these fails, a user's sums per minute are wrong as soon as a row comes late, and nothing tells them.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal

import pytest

from tests.harness import Play
from velo_dagster.engine.report import Outcome
from velo_dagster.errors import VeloError

# The time comes from the clause, from the source's property, or from the table that is read. What is late counts as
# everything else does.
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


DOTTED = ("01.01.1970 00:01:00.0000", "01.01.1970 00:02:00.0000", "01.01.1970 00:06:00.0005")
FORMATS = (
    ("millis", "csv", "epoch_millis", ("60000", "120000", "360000.5")),
    ("millis_text", "jsonl", "epoch_millis", ("60000", "120000", "360000.5")),
    ("seconds", "csv", "epoch_seconds", ("60", "120", "360.0005")),
    ("iso_text", "jsonl", "iso8601", ("1970-01-01T00:01:00", "1970-01-01 00:02", "1970-01-01T00:06:00.0005Z")),
    ("pattern", "csv", "dd.MM.yyyy HH:mm:ss.SSSS", DOTTED),
    ("number", "csv", "yyyyMMddHHmmss", ("19700101000100", "19700101000200", "19700101000600")),
)


def test_the_time_is_read_in_its_format(play: Play):
    """A time that is read wrongly puts rows into the wrong windows, for years."""
    tables = []
    for name, kind, form, times in FORMATS:
        play.write(f"{name}.{kind}", ("at,amount\n" if kind == "csv" else "") + record(kind, times[0], 100))
        play.append(f"{name}.{kind}", record(kind, times[1], 200))
        tables.append(
            f"CREATE TABLE {name} AS SELECT window_start, SUM(amount) AS total FROM file://{name}.{kind} "
            f"WINDOW TUMBLING(5m) WITH ('event.time.field' = 'at', 'event.time.format' = '{form}');"
        )
    play.write("t.sql", "\n".join(tables))
    play.loaded()
    for name, kind, _, times in FORMATS:
        play.append(f"{name}.{kind}", record(kind, times[2], 500))
    play.loaded()
    expected = Counter({(Decimal(300), datetime(1970, 1, 1)): 1, (Decimal(500), datetime(1970, 1, 1, 0, 5)): 1})
    for name, *_ in FORMATS:
        assert play.rows(name) == expected, name


def record(kind: str, time: str, amount: int) -> str:
    """In JSON a quoted number stays text."""
    return f"{time},{amount}\n" if kind == "csv" else f'{{"at": "{time}", "amount": {amount}}}\n'


def test_a_format_counts_for_the_column_that_a_clause_names(play: Play):
    play.grown(
        "CREATE TABLE by_clause AS SELECT window_start, COUNT(*) AS n FROM file://t.csv WINDOW TUMBLING(at, 5m) "
        "WITH ('event.time.format' = 'epoch_seconds');\n"
        # Another column than the event time has no format, and is taken as it is.
        "CREATE TABLE by_other AS SELECT window_start, COUNT(*) AS n FROM file://t.csv WINDOW TUMBLING(seen, 5m) "
        "WITH ('event.time.field' = 'at', 'event.time.format' = 'epoch_seconds');\n",
        {"t.csv": "at,seen\n60,1970-01-01T00:06:00\n"},
        {"t.csv": "61,1970-01-01T00:07:00\n"},
    )
    assert play.rows("by_clause") == Counter({(Decimal(2), datetime(1970, 1, 1)): 1})
    assert play.rows("by_other") == Counter({(Decimal(2), datetime(1970, 1, 1, 0, 5)): 1})


@pytest.mark.parametrize(
    ("form", "value", "told"),
    [
        ("", "12345", "E137 The column `t`.`at` is BIGINT, which can't be read as a time as it is."),
        ("epoch_millis", "1970-01-01T00:00:00", "E137 The column `t`.`at` is TIMESTAMP"),
        ("yyyy-dd-MM", "1970-01-02", "E137 The column `t`.`at` is DATE"),
        ("", "yesterday", "This is no time in ISO 8601: yesterday"),
        ("", "12:30 h", "This is no time in ISO 8601: 12:30 h"),
        ("epoch_seconds", "soon", "soon"),
    ],
)
def test_what_is_no_time_fails_the_load(play: Play, form: str, value: str, told: str):
    """A row in no window, or in that of today, would be missed by nobody."""
    given = f", 'event.time.format' = '{form}'" if form else ""
    play.write(
        "t.sql",
        "CREATE TABLE t AS SELECT COUNT(*) AS n FROM file://t.csv t WINDOW TUMBLING(5m) "
        f"WITH ('event.time.field' = 'at'{given});",
    )
    play.write("t.csv", f"at\n{value}\n")
    error = play.load()["t"].error
    assert isinstance(error, VeloError) and told in error.render()


MORE = """
CREATE TABLE events AS SELECT ts AS at, who, amount, ok FROM file://data/*.csv WITH ('event.time.field' = 'ts');
CREATE TABLE people AS SELECT * FROM file://people.csv;
CREATE TABLE passed_on AS SELECT who, window_end, SUM(amount) AS total FROM events WINDOW TUMBLING(5m) GROUP BY who;
CREATE TABLE grouped AS SELECT window_start, who, COUNT(*) AS n FROM events
  GROUP BY window_start, who, window_end WINDOW TUMBLING(at, 5m) HAVING COUNT(*) > 1 AND window_end IS NOT NULL;
CREATE TABLE joined AS SELECT p.team, window_start, SUM(e.amount) AS total
  FROM events e JOIN people p ON e.who = p.who WINDOW TUMBLING(e.at, 5m) GROUP BY p.team;
CREATE TABLE nested AS SELECT window_start, MAX(amount) AS most
  FROM (SELECT at AS t, amount FROM events WHERE ok) q WINDOW SLIDING(q.t, 4m, 2m) EMIT CHANGES;
CREATE TABLE windows_of_windows AS SELECT window_start, SUM(total) AS total
  FROM passed_on WINDOW TUMBLING(window_end, 10m);
"""
ROWS = (
    "read_csv('{data}/data/*.csv', types = {'ts': 'TIMESTAMP', 'who': 'VARCHAR', 'amount': 'BIGINT', 'ok': 'BOOLEAN'})"
)
PEOPLE = "read_csv('{data}/people.csv', types = {'who': 'VARCHAR', 'team': 'VARCHAR'})"
PASSED_ON = f"SELECT who, {FIVE} + INTERVAL 5 MINUTE AS window_end, SUM(amount) AS total FROM {ROWS} GROUP BY ALL"
MORE_ANSWERS = {
    "passed_on": PASSED_ON,
    "grouped": f"SELECT {FIVE} AS window_start, who, COUNT(*) AS n FROM {ROWS} GROUP BY ALL HAVING COUNT(*) > 1",
    "joined": f"SELECT team, {FIVE} AS window_start, SUM(amount) AS total FROM {ROWS} "
    f"JOIN {PEOPLE} USING (who) GROUP BY ALL",
    "nested": f"SELECT {TWO} - k * INTERVAL 2 MINUTE AS window_start, MAX(amount) AS most "
    f"FROM {ROWS}, range(2) r(k) WHERE ok GROUP BY ALL",
    "windows_of_windows": f"SELECT {STARTS.replace('{us}', '600000000').replace('ts', 'window_end')} AS window_start, "
    f"SUM(total) AS total FROM ({PASSED_ON}) GROUP BY ALL",
}


def test_windows_over_tables_joins_and_subqueries(play: Play):
    play.write("t.sql", MORE)
    play.write("people.csv", "who,team\na,red\nb,blue\n")
    steps = (
        "1970-01-01T00:01:00,a,100,true\n1970-01-01T00:06:00,b,200,true\n",
        "1970-01-01T00:02:00,a,7,false\n1970-01-01T00:11:00,a,1,true\n",
        "1970-01-01T00:00:00,b,50,true\n1970-01-01T00:04:59.999999,b,60,true\n",
    )
    play.write("data/m.csv", "ts,who,amount,ok\n")
    for number, step in enumerate(steps):
        play.append("data/m.csv" if number < 2 else "data/a.csv", step if number < 2 else f"ts,who,amount,ok\n{step}")
        if number == 1:
            play.append("people.csv", "b,red\n")
        play.loaded()
        for name, query in MORE_ANSWERS.items():
            assert play.rows(name) == play.duckdb(query), f"{name} after step {number}"
    fresh = play.reloaded()
    for name in MORE_ANSWERS:
        assert play.rows(name) == fresh.rows(name), name
