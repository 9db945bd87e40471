"""`retention`: rows older than that, counted back from the greatest time delivered, go with the load that finds them.

If one of these fails, rows are kept that should be gone, or gone that should be kept, and a reload shows others.
"""

from __future__ import annotations

from tests.harness import Play

DAYS = "'event.time.field' = 'ts', 'retention' = '2 days'"
TABLES = f"""
CREATE TABLE plain AS SELECT id, v FROM file://data/*.csv WHERE v > 0 WITH ({DAYS});
CREATE TABLE keyed AS SELECT id PRIMARY KEY, v, ts FROM events WHERE v > 0 WITH ('retention' = '2 days');
CREATE TABLE daily AS SELECT window_end AS until, SUM(v) AS v FROM events
  WINDOW TUMBLING(1 day) HAVING SUM(v) > 0 WITH ('retention' = '2 days');
CREATE TABLE joined AS SELECT e.ts AS at, e.id, n.name FROM events e JOIN names n ON e.id = n.id
  WITH ('retention' = '2 days');
CREATE TABLE events AS SELECT * FROM file://data/*.csv WITH ('event.time.field' = 'ts');
CREATE TABLE names AS SELECT * FROM file://names.csv;
"""
ROWS = """(SELECT *, regexp_extract(filename, '[a-z]+.csv') AS f, row_number() OVER () AS n FROM read_csv(
    '{data}/data/*.csv', filename = true, types = {'ts': 'TIMESTAMP', 'id': 'BIGINT', 'v': 'BIGINT'}))"""
SINCE = f"(SELECT MAX(ts) - INTERVAL 2 DAY FROM {ROWS})"
ANSWERS = {
    "plain": f"SELECT id, v FROM {ROWS} WHERE v > 0 AND (ts >= {SINCE} OR ts IS NULL)",
    "keyed": f"""SELECT id, v, ts FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY f DESC, n DESC) AS r
        FROM {ROWS}) WHERE r = 1 AND v > 0 AND (ts >= {SINCE} OR ts IS NULL)""",
    "daily": f"""SELECT until, v FROM (SELECT CAST(date_trunc('day', ts) + INTERVAL 1 DAY AS TIMESTAMP) AS until,
        SUM(v) AS v FROM {ROWS} WHERE ts IS NOT NULL GROUP BY 1) WHERE v > 0 AND until >= {SINCE}""",
    "joined": f"""SELECT ts AS at, id, name FROM {ROWS} JOIN read_csv('{{data}}/names.csv',
        types = {{'id': 'BIGINT', 'name': 'VARCHAR'}}) USING (id) WHERE ts >= {SINCE} OR ts IS NULL""",
}


def check(play: Play, step: str) -> None:
    for name, query in ANSWERS.items():
        assert play.rows(name) == play.duckdb(query), f"{name} after {step}"


def test_old_rows_go_as_time_goes_on(play: Play):
    play.write("t.sql", TABLES)
    play.write("names.csv", "id,name\n1,one\n2,two\n3,three\n")
    play.write("data/m.csv", "ts,id,v\n2025-01-01T12:00:00,1,5\n2025-01-02T00:00:00,2,7\n,3,9\n")
    play.loaded()
    check(play, "bulk")

    # The first row is exactly as old as may be; a row that comes too late is gone at once; a key's newest row fails.
    play.append("data/m.csv", "2025-01-03T12:00:00,3,1\n2024-12-31T00:00:00,4,1\n2025-01-03T00:00:00,2,-7\n")
    play.loaded()
    check(play, "a row on the edge")

    # A later time in a file that sorts first: the keys' winners stay, and the time goes on.
    play.write("data/a.csv", "ts,id,v\n2025-01-03T12:00:00.000001,1,6\n")
    play.loaded()
    check(play, "a microsecond more")

    # The greatest time goes again with the file that had it: what was too old is back.
    play.write("data/a.csv", "ts,id,v\n2025-01-02T06:00:00,1,8\n")
    play.loaded()
    check(play, "a rewritten file")
    fresh = play.reloaded()
    for name in ANSWERS:
        assert play.rows(name) == fresh.rows(name), name
