"""A project from nothing, its sources arriving in any order: everything is loaded, with no click and no failed run.

The daemon's work is done here step by step: sensors are asked, automation is evaluated, what they ask for is run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal as D

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus, RunsFilter, evaluate_automation_conditions
from dagster._core.definitions.declarative_automation.automation_condition_tester import (
    EvaluateAutomationConditionsResult,
)

from tests.harness import Play
from tests.orchestration.test_loads import Location
from velo_dagster.orchestration.sensors import CHANCES

SQL = """
CREATE TABLE orders AS SELECT id, user_id, amount FROM file://data/orders*.csv;
CREATE TABLE users AS SELECT user_id PRIMARY KEY, name FROM file://data/users.jsonl;
CREATE TABLE enriched AS SELECT o.id, o.amount, u.name FROM orders o JOIN users u ON o.user_id = u.user_id;
CREATE TABLE spending AS SELECT name, SUM(amount) AS spent FROM enriched GROUP BY name;
CREATE TABLE priced AS SELECT o.id, o.amount * r.rate AS price FROM orders o CROSS JOIN file://data/rates.csv r;
CREATE TABLE report AS SELECT s.name, s.spent, COUNT(p.id) AS rows FROM spending s CROSS JOIN priced p GROUP BY 1, 2;
"""
TABLES = ("orders", "users", "enriched", "spending", "priced", "report")
READING = ("orders", "users", "priced")
ARRIVE = {
    "data/orders-1.csv": "id,user_id,amount\n1,1,10.5\n2,2,3.25\n",
    "data/users.jsonl": '{"user_id": 1, "name": "ann"}\n{"user_id": 2, "name": "bob"}\n',
    "data/rates.csv": "rate\n1.5\n",
}
MORE = {
    "data/orders-2.csv": "id,user_id,amount\n3,1,7\n",
    "data/users.jsonl": ARRIVE["data/users.jsonl"] + '{"user_id": 2, "name": "bert"}\n',
    "data/rates.csv": "rate\n2.5\n",
}
ORDERS = list(itertools.permutations(ARRIVE))


class Daemon:
    """One round asks every sensor and automation once, and runs what they want. A run must not fail.

    `loses`: what automation asks for is never run, as if each of its runs were killed before it began.
    """

    def __init__(
        self,
        location: Location,
        reading: Sequence[str] = READING,
        tables: Sequence[str] = TABLES,
        *,
        loses: bool = False,
    ) -> None:
        self.location = location
        self.reading = reading
        self.tables = tables
        self.loses = loses
        self.cursors: dict[str, str | None] = {}
        self.automation: EvaluateAutomationConditionsResult | None = None

    def round(self) -> int:
        """How many runs there were."""
        return sum(1 for _ in self._runs())

    def _runs(self) -> Iterator[None]:
        for name in ("velo_sources", *(f"{one}__increments" for one in self.reading)):
            result = self.location.tick(name, self.cursors.get(name))
            self.cursors[name] = result.cursor
            for change in result.dynamic_partitions_requests or ():
                self.location.instance.add_dynamic_partitions(change.partitions_def_name, list(change.partition_keys))
            for event in result.asset_events:
                self.location.instance.report_runless_asset_event(event)
            for request in result.run_requests or ():
                yield self._run(request.asset_selection or (), request.partition_key)
        cursor = self.automation.cursor if self.automation is not None else None
        self.automation = evaluate_automation_conditions(
            self.location.definitions, self.location.instance, cursor=cursor
        )
        wanted = [key for key in map(AssetKey, self.tables) if self.automation.get_num_requested(key)]
        if wanted and not self.loses:
            yield self._run(wanted, None)

    def _run(self, keys: Sequence[AssetKey], partition: str | None) -> None:
        result = self.location.load(*(key.to_user_string() for key in keys), partition=partition)
        assert result.success, keys
        loaded = [self.location.metadata(key.to_user_string()) for key in keys if len(key.path) == 1]
        assert any(one["velo/outcome"] != "unchanged" for one in loaded), f"a run in vain: {keys}"

    def until_quiet(self) -> None:
        """Rest is when nobody asks for anything for so long that what was forgotten would have been asked for."""
        quiet = 0
        for _ in range(40):
            quiet = 0 if self.round() else quiet + 1
            if quiet == CHANCES:
                return
        raise AssertionError("It never comes to rest.")


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
@pytest.mark.parametrize("order", [ORDERS[3], *(pytest.param(one, marks=pytest.mark.fuzz) for one in ORDERS)], ids=str)
def test_sources_arrive_in_any_order(play: Play, spark: object, order: Sequence[str]):
    play.write("t.sql", SQL)
    with DagsterInstance.ephemeral() as instance:
        daemon = Daemon(Location(play, instance))
        assert not daemon.round(), "nothing is there, so nothing runs"
        for name in order:
            play.write(name, ARRIVE[name])
            daemon.until_quiet()
        full = play.reloaded()
        assert {name: play.rows(name) for name in TABLES} == {name: full.rows(name) for name in TABLES}
        for name, text in MORE.items():
            play.write(name, text)
            daemon.until_quiet()
        full = play.reloaded()
        assert {name: play.rows(name) for name in TABLES} == {name: full.rows(name) for name in TABLES}
        assert sum(play.rows("report").values()) == 2


FEW = tuple(one for one in TABLES if one not in ("spending", "report"))


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_what_automation_asked_for_and_nobody_ran_is_loaded_nevertheless(play: Play, spark: object):
    play.write("t.sql", "\n".join(line for line in SQL.splitlines() if "spending" not in line))
    with DagsterInstance.ephemeral() as instance:
        daemon = Daemon(Location(play, instance), tables=FEW, loses=True)
        for files in (ARRIVE, MORE):
            for name, text in files.items():
                play.write(name, text)
            daemon.until_quiet()
            full = play.reloaded()
            assert {name: play.rows(name) for name in FEW} == {name: full.rows(name) for name in FEW}


DESK = """
CREATE TABLE users AS SELECT user_id PRIMARY KEY, tier FROM file://data/users.csv;
CREATE TABLE limits AS SELECT user_id PRIMARY KEY, top FROM file://data/limits.csv;
CREATE TABLE market AS SELECT symbol PRIMARY KEY, price FROM file://data/market.csv;
CREATE STREAM trades AS SELECT id, user_id, symbol, amount FROM file://data/trades*.csv;
CREATE STREAM clicks AS SELECT id, user_id FROM file://data/clicks*.csv;
CREATE TABLE checked AS SELECT t.id, t.amount, u.tier, l.top, m.price
FROM trades t JOIN users u ON t.user_id = u.user_id JOIN limits l ON t.user_id = l.user_id
JOIN market m ON t.symbol = m.symbol;
CREATE TABLE priced AS SELECT t.id, t.amount * m.price AS worth
FROM trades t LEFT JOIN market m ON t.symbol = m.symbol WITH ('market.missing.reference' = 'skip');
CREATE TABLE visits AS SELECT c.id, u.tier FROM clicks c JOIN users u ON c.user_id = u.user_id;
CREATE TABLE tagged AS SELECT t.id, m.price FROM trades t JOIN market m ON t.symbol = m.symbol
WITH ('missing.reference' = 'null');
"""
REFERENCES, STREAMS = ("users", "limits", "market"), ("trades", "clicks")
JOINS = ("checked", "priced", "visits", "tagged")
AFTER = {
    "checked": ("trades", "users", "limits", "market"),
    "priced": ("trades",),
    "visits": ("clicks", "users"),
    "tagged": ("trades",),
}
"""What each join waits for: it names the others as ones that it goes on without."""
EARLY = {
    "data/users.csv": "user_id,tier\n1,gold\n2,tin\n",
    "data/limits.csv": "user_id,top\n1,100\n2,5\n",
    "data/trades-1.csv": "id,user_id,symbol,amount\n1,1,A,10\n2,2,B,3\n",
    "data/clicks-1.csv": "id,user_id\n7,1\n8,9\n",
}


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_three_references_two_streams_four_joins_and_one_file_that_is_late(play: Play, spark: object):
    """What can be loaded is; what waits for the late reference follows it by itself, and what did without it heals."""
    play.write("t.sql", DESK)
    with DagsterInstance.ephemeral() as instance:
        location = Location(play, instance)
        daemon = Daemon(location, (*REFERENCES, *STREAMS), (*REFERENCES, *STREAMS, *JOINS))
        assert not daemon.round(), "nothing is there, so nothing runs"
        for name, text in EARLY.items():
            play.write(name, text)
        daemon.until_quiet()
        assert not (play.folder / "warehouse" / "checked").exists(), "it needs all three"
        assert play.rows("visits") == Counter({(7, "gold"): 1})
        assert play.rows("priced") == Counter({(1, None): 1, (2, None): 1})
        assert play.rows("tagged") == Counter({(1, None): 1, (2, None): 1})
        told = location.metadata("priced")
        assert (told["velo/missing_references"], told["velo/rows_without_reference"]) == ({"market": "skip"}, 2)
        assert location.metadata("tagged")["velo/rows_filled"] == 2
        play.write("data/market.csv", "symbol,price\nA,1.5\nB,2\n")
        play.write("data/trades-2.csv", "id,user_id,symbol,amount\n3,1,B,1\n")
        daemon.until_quiet()
        assert play.rows("checked") == Counter(
            {(10, 1, D("1.5"), "gold", 100): 1, (3, 2, 2, "tin", 5): 1, (1, 3, 2, "gold", 100): 1}
        )
        assert play.rows("priced") == Counter({(1, 15): 1, (2, 6): 1, (3, 2): 1})
        assert sum(play.rows("tagged").values()) == 3 and play.rows("tagged")[(1, None)] == 1, "filled rows stay"
        assert "velo/missing_references" not in location.metadata("priced")
        full = play.reloaded()
        followed = [name for name in (*REFERENCES, *STREAMS, *JOINS) if name != "tagged"]
        assert {name: play.rows(name) for name in followed} == {name: full.rows(name) for name in followed}
        first = {name: first_load(instance, name) for name in (*REFERENCES, *STREAMS, *JOINS)}
        assert all(first[name] > first[one] for name, others in AFTER.items() for one in others), first
        assert max(first["visits"], first["priced"], first["tagged"]) < first["market"] < first["checked"], first
        assert not instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]))


def first_load(instance: DagsterInstance, table: str) -> int:
    """When it was: Dagster numbers what it is told."""
    return instance.fetch_materializations(AssetKey(table), limit=1, ascending=True).records[0].storage_id
