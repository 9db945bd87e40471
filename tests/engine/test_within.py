"""JOIN … WITHIN: rows meet if their times are near.

If it fails, rows are joined that have nothing to do with each other, or those that belong together are not.
"""

from __future__ import annotations

from tests.harness import Play

TABLES = """
CREATE TABLE payments AS SELECT pid, order_id AS oid, paid FROM file://payments.csv
  WITH ('event.time.field' = 'paid', 'event.time.format' = 'epoch_seconds');
CREATE TABLE orders AS SELECT * FROM file://orders.csv;
CREATE TABLE near AS SELECT o.id, p.pid FROM orders o WITH ('event.time.field' = 'ts')
  JOIN payments p ON o.id = p.oid OR o.id = p.pid WITHIN 5 MINUTES;
CREATE TABLE outer_near AS SELECT o.id, p.pid FROM file://orders.csv o WITH ('event.time.field' = 'ts')
  LEFT JOIN payments p ON o.id = p.oid WITHIN '5m' WHERE o.id > 0;
CREATE TABLE near_itself AS SELECT a.id, b.id AS other
  FROM orders a JOIN orders b ON a.id < b.id WITHIN 90s WITH ('event.time.field' = 'ts');
"""
ORDERS = "read_csv('{data}/orders.csv', types = {'ts': 'TIMESTAMP', 'id': 'BIGINT'})"
PAYMENTS = """(SELECT pid, order_id AS oid, make_timestamp(CAST(paid * 1000000 AS BIGINT)) AS paid FROM
    read_csv('{data}/payments.csv', types = {'pid': 'BIGINT', 'order_id': 'BIGINT', 'paid': 'DECIMAL(18,3)'}))"""
APART = "abs(epoch_us(o.ts) - epoch_us(p.paid)) <= 300000000"
ANSWERS = {
    "near": f"SELECT id, pid FROM {ORDERS} o JOIN {PAYMENTS} p ON (o.id = p.oid OR o.id = p.pid) AND {APART}",
    "outer_near": f"SELECT id, pid FROM {ORDERS} o LEFT JOIN {PAYMENTS} p ON o.id = p.oid AND {APART}",
    "near_itself": f"SELECT a.id, b.id AS other FROM {ORDERS} a JOIN {ORDERS} b "
    "ON a.id < b.id AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 90000000",
}


def test_rows_meet_within_their_time(play: Play):
    play.write("t.sql", TABLES)
    play.write("orders.csv", "ts,id\n1970-01-01T01:00:00,1\n1970-01-01T01:01:30,2\n,3\n")
    play.write("payments.csv", "pid,order_id,paid\n7,1,3900\n8,1,3900.001\n9,2,3330\n1,3,3600\n")
    steps = (
        {},
        # Late on either side: one meets what was there, one is exactly at the edge, one has no time.
        {"orders.csv": "1970-01-01T01:06:30,4\n", "payments.csv": "10,4,3690\n11,2,\n"},
        {"orders.csv": "1970-01-01T00:58:30.000001,5\n1970-01-01T00:55:30,2\n"},
    )
    for number, step in enumerate(steps):
        for name, text in step.items():
            play.append(name, text)
        play.loaded()
        for name, query in ANSWERS.items():
            assert play.rows(name) == play.duckdb(query), f"{name} after step {number}"
    fresh = play.reloaded()
    for name in ANSWERS:
        assert play.rows(name) == fresh.rows(name), name
