"""A small history, loaded over Spark Connect; run by `test_connect.py` in a process of its own.

A process has either the classic API or Connect: `python -m tests.engine.over_connect FOLDER URL`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dagster import AssetCheckSeverity, DagsterInstance

from tests.harness import Play
from velo_dagster import VeloSparkResource, build_velo_definitions
from velo_dagster.engine.session import ConnectEngine

STATEMENTS = """
CREATE TABLE orders AS SELECT * FROM file://d/*.csv WHERE v > 0;
CREATE TABLE latest AS SELECT k PRIMARY KEY, v FROM file://d/*.csv;
CREATE TABLE typed (c INT, v DECIMAL) AS SELECT concat('0', k) AS c PRIMARY KEY, v FROM file://d/*.csv;
CREATE TABLE totals AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k;
CREATE TABLE named AS SELECT o.k, n.name FROM orders o JOIN file://names.jsonl n ON o.k = n.k;
CREATE TABLE good (k INT, v INT) AS SELECT * FROM file://bad.csv WITH ('failure_strategy' = 'SendToDLQ');
"""
ORDERS = "(SELECT * FROM read_csv('{data}/d/*.csv', types = {'k': 'BIGINT', 'v': 'DECIMAL(18,1)'}) WHERE v > 0)"
QUERIES = {
    "orders": f"SELECT k, v FROM {ORDERS}",
    "totals": f"SELECT k, COUNT(*) AS n, SUM(v) AS s FROM {ORDERS} GROUP BY k",
    "named": f"SELECT o.k, n.name FROM {ORDERS} o JOIN read_json('{{data}}/names.jsonl') n ON o.k = n.k",
}


def check(play: Play, latest: dict[int, float]) -> None:
    play.loaded()
    for name, query in QUERIES.items():
        assert play.rows(name) == play.duckdb(query), name
    for name in ("latest", "typed"):
        assert {int(k): float(v) for k, v in play.rows(name)} == latest, name
    assert [tuple(map(int, row)) for row in play.rows("good")] == [(1, 1)]
    assert sum(play.rejected("good").values()) == 1


def main(folder: str, url: str) -> None:
    play = Play(Path(folder), ConnectEngine(url))
    play.write("tables.sql", STATEMENTS)
    play.write("d/a.csv", "k,v\n1,10\n2,20\n1,-1\n")
    play.write("names.jsonl", '{"k":1,"name":"one"}\n')
    play.write("bad.csv", "k,v\n1,1\nx,2\n")
    check(play, {1: -1, 2: 20})
    play.append("d/a.csv", "2,25.5\n3,30\n")
    play.append("names.jsonl", '{"k":3,"name":"three"}\n')
    check(play, {1: -1, 2: 25.5, 3: 30})
    play.write("d/a.csv", "k,v\n9,9\n")
    check(play, {9: 9})
    play.append("d/a.csv", "9,11\n")
    in_dagster(play, url)
    check(play, {9: 11})


def in_dagster(play: Play, url: str) -> None:
    """The same as a run of Dagster's, with its checks, whose Spark is the server."""
    definitions = build_velo_definitions(
        play.folder, warehouse=str(play.folder / play.warehouse), spark=VeloSparkResource(remote=url)
    )
    with DagsterInstance.ephemeral() as instance:
        result = definitions.resolve_job_def("bulk_load").execute_in_process(instance=instance)
    assert result.success
    checks = [one for one in result.get_asset_check_evaluations() if one.severity is AssetCheckSeverity.ERROR]
    assert checks and all(one.passed for one in checks)
    told = {event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key}
    assert {"orders", "orders/increments", "named"} <= told


if __name__ == "__main__":
    main(*sys.argv[1:])
