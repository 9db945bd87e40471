"""Checks of tables: what they say of a table as it is, and how that is kept true.

For Dagster a check counts only for the newest materialization, and of all evaluations the one whose run was *created*
last is the check's state. Two runs of one table that overlap, or a run that fails before its checks, leave a check
behind that speaks of another materialization, or of none; what reads the table would wait for ever. So a sensor looks:
where no run is on its way and a check does not speak of the table as it is, it is evaluated once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import MappingProxyType

from dagster import AssetCheckEvaluation, AssetCheckKey, AssetCheckSeverity, AssetKey, DagsterInstance, EventLogEntry

from velo_dagster.engine.checks import SOURCE_READY, Check, Standing, checks_of, run_check
from velo_dagster.engine.session import Engine, NoEngine, SparkWanted
from velo_dagster.errors import VeloError
from velo_dagster.orchestration.checks import evaluation
from velo_dagster.orchestration.runs import Runs
from velo_dagster.orchestration.specs import ProjectSpecs, TableSpecs

DONE = ("SUCCEEDED", "FAILED")
TICK_SECONDS = 15.0
"""So long a tick waits for checks; Dagster ends it after 60 s, and all that it found out is lost."""

_Stale = tuple[TableSpecs, Check]


class Verdicts:
    """Evaluations of checks that no longer speak of their table's newest materialization, from tick to tick.

    A check takes as long as its table is large, so they are made in a thread: a tick takes what is there in time. A
    check that goes on is left alone, and what it finds comes with a later tick, unless the table was loaded meanwhile.
    """

    def __init__(self, specs: ProjectSpecs) -> None:
        self._specs = specs
        self._batch = _Batch(specs, ())
        self._long: set[AssetCheckKey] = set()

    def missing(
        self,
        instance: DagsterInstance,
        runs: Runs,
        newest: Mapping[AssetKey, EventLogEntry],
        sources_since: Mapping[AssetKey, float],
    ) -> tuple[list[AssetCheckEvaluation], list[str]]:
        """What was found out, and which check goes on, in words.

        `sources_since`: when sources came into the states that they are in.
        """
        tables = [table for table in self._specs.tables.values() if runs.going(table) is None]
        goes_on = self._batch.goes_on
        found = self._batch.take()
        if not goes_on:
            taken = {one.asset_check_key for one in found}
            stale = _stale(self._specs, instance, tables, newest, sources_since)
            self._batch = _Batch(self._specs, self._in_order(one for one in stale if _key(one) not in taken))
            self._batch.run(TICK_SECONDS)
            found += self._batch.take()
        going = self._batch.going
        if going is None:
            return found, []
        (table, check), began = going
        self._long.add(_key((table, check)))
        said = f"its check {check.name} was begun {time.monotonic() - began:.0f} s ago, and goes on"
        return found, [f"{table.plan.name}: {said}"]

    def _in_order(self, stale: Iterable[_Stale]) -> list[_Stale]:
        """Those that others wait for first; last of all those that outlasted a tick before."""
        read = {key for table in self._specs.tables.values() for key in table.node.tables}

        def place(one: _Stale) -> tuple[bool, bool]:
            table, check = one
            return _key(one) in self._long, not (check.blocking and table.key in read)

        return sorted(stale, key=place)


class _Batch:
    """Checks, made one after another in a thread until time is up; the one that is begun then is not broken off."""

    def __init__(self, specs: ProjectSpecs, checks: Sequence[_Stale]) -> None:
        self._specs, self._checks = specs, checks
        self._found: SimpleQueue[tuple[TableSpecs, int | None, AssetCheckEvaluation]] = SimpleQueue()
        self._time_is_up = threading.Event()
        self._thread = threading.Thread(target=self._make, name="velo-checks", daemon=True)
        self.going: tuple[_Stale, float] | None = None
        """The check that is being made, and since when."""

    def run(self, seconds: float) -> None:
        self._thread.start()
        self._thread.join(seconds)
        self._time_is_up.set()

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def take(self) -> list[AssetCheckEvaluation]:
        """What was found of tables that are still as they were looked at."""
        found = []
        while not self._found.empty():
            table, load, verdict = self._found.get()
            if self._load(table) == load:
                found.append(verdict)
        return found

    def _make(self) -> None:
        for table, check in self._checks:
            if self._time_is_up.is_set():
                break
            self.going = (table, check), time.monotonic()
            load = self._load(table)
            for verdict in _evaluated(self._specs, table, check):
                self._found.put((table, load, verdict))
        self.going = None

    def _load(self, table: TableSpecs) -> int | None:
        try:
            record = self._specs.warehouse.table(table.plan.name).record()
        except VeloError:
            # That is what the check says.
            return None
        return record.load if record is not None else None


def _key(stale: _Stale) -> AssetCheckKey:
    table, check = stale
    return AssetCheckKey(table.key, check.name)


def failed_check(specs: ProjectSpecs, instance: DagsterInstance, engine: Engine | None, name: str) -> str:
    """Which blocking check of a table fails, and what it says; empty if none does.

    What Dagster knows counts; a check that has not spoken of the table as it is now is made here, given an engine.
    """
    table = specs.tables[name]
    blocking = [check for check in checks_of(table.plan) if check.blocking]
    newest = newest_loads(specs, instance)
    stale = [check.name for _, check in _stale(specs, instance, [table], newest)]
    silent = [check for check in blocking if table.key not in newest or check.name in stale]
    found = []
    if engine is not None:
        standing = Standing(specs.project, specs.warehouse, table.plan, engine)
        found += [evaluation(table, check, run_check(check, standing)) for check in silent]
    keys = [AssetCheckKey(table.key, check.name) for check in blocking if check not in silent]
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys).values()
    found += [record.evaluation for record in records if record.evaluation is not None]
    failed = [one for one in found if not one.passed and one.severity is AssetCheckSeverity.ERROR]
    return "; ".join(f"its check {one.check_name} fails: {one.description}" for one in failed)


def _stale(
    specs: ProjectSpecs,
    instance: DagsterInstance,
    tables: Iterable[TableSpecs],
    newest: Mapping[AssetKey, EventLogEntry],
    sources_since: Mapping[AssetKey, float] = MappingProxyType({}),
) -> Iterator[_Stale]:
    """Checks that do not speak of their tables as they are; of tables that Dagster knows nothing of, none.

    `sources_since`: see `Verdicts.missing`; sources that are not in it are taken to be as they were.
    """
    checks = {
        AssetCheckKey(table.key, check.name): (table, check)
        for table in tables
        if table.key in newest
        for check in checks_of(table.plan)
    }
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(checks)) if checks else {}
    for key, (table, check) in checks.items():
        record, load = records.get(key), newest[table.key]
        if (
            record is None
            or record.status.value not in DONE
            or (record.run_id != load.run_id and record.create_timestamp <= load.timestamp)
            or record.event is None
            or record.event.timestamp <= _others_changed(specs, newest, table, check)
            or record.event.timestamp <= _sources_changed(table, check, sources_since)
        ):
            yield table, check


def newest_loads(specs: ProjectSpecs, instance: DagsterInstance) -> dict[AssetKey, EventLogEntry]:
    """The newest materialization of each table, by one look."""
    found = instance.get_asset_records([table.key for table in specs.tables.values()])
    return {
        one.asset_entry.asset_key: one.asset_entry.last_materialization
        for one in found
        if one.asset_entry.last_materialization is not None
    }


def _others_changed(
    specs: ProjectSpecs, newest: Mapping[AssetKey, EventLogEntry], table: TableSpecs, check: Check
) -> float:
    """When another table that the check's SELECT names was last loaded."""
    queries = [one.query for one in table.plan.annotations.checks if one.name == check.name]
    named = {one.name.casefold() for query in queries for one in query.inputs} - {table.plan.name.casefold()}
    if not named:
        return 0.0
    keys = [other.key for name, other in specs.tables.items() if name.casefold() in named]
    return max((newest[key].timestamp for key in keys if key in newest), default=0.0)


def _sources_changed(table: TableSpecs, check: Check, since: Mapping[AssetKey, float]) -> float:
    """When a source of which the check speaks came or went: no load need follow that would make the check again."""
    if check.name != SOURCE_READY:
        return 0.0
    return max((since[key] for key in table.node.sources if key in since), default=0.0)


def _evaluated(specs: ProjectSpecs, table: TableSpecs, check: Check) -> Iterator[AssetCheckEvaluation]:
    standing = Standing(specs.project, specs.warehouse, table.plan, NoEngine())
    try:
        yield evaluation(table, check, run_check(check, standing))
    except SparkWanted:
        # A tick must not start Spark; the velo_checks job evaluates it.
        return
