"""Who starts loads: one sensor looks after all sources, one per table after new data, one after tables over tables.
The first also looks after those that the last one forgets.

The truth about positions is in the tables; cursors only remember since when something is waited for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagster import (
    AddDynamicPartitionsRequest,
    AssetKey,
    AssetMaterialization,
    AssetSelection,
    AutomationConditionSensorDefinition,
    DagsterInstance,
    DagsterRun,
    DefaultSensorStatus,
    DeleteDynamicPartitionsRequest,
    EventLogEntry,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from velo_dagster.engine.status import CHANGED, GOES, OK, TableStatus, table_status
from velo_dagster.errors import VeloError
from velo_dagster.orchestration.behind import due, untold_loads
from velo_dagster.orchestration.probes import Looker
from velo_dagster.orchestration.runs import ATTEMPT, LOAD, SEEN, TABLE, Runs
from velo_dagster.orchestration.specs import ProjectSpecs, TableSpecs, outdated, partitions_of
from velo_dagster.orchestration.verdicts import Verdicts, failed_check, newest_loads
from velo_dagster.orchestration.waits import waits_of
from velo_dagster.plan.references import missable
from velo_dagster.sources.contract import Probe
from velo_dagster.store.watched import WatchedWarehouse

SOURCES = "velo_sources"
AUTOMATION = "velo_automation"

CHANCES = 3
"""At so many looks a table that is behind could have been loaded before it is asked for: automation comes first."""

_PartitionsChange = AddDynamicPartitionsRequest | DeleteDynamicPartitionsRequest


def source_sensor(specs: ProjectSpecs, interval: int) -> SensorDefinition:
    """Waits for sources, says for what and since when, and looks after what nobody else does.

    It has a table loaded for the first time when its sources are all there, and a table over tables whenever automation
    leaves it behind; it tells Dagster of loads that it has not heard of, and makes checks again that speak of older
    loads.
    """
    specs = replace(specs, warehouse=WatchedWarehouse(str(specs.warehouse.root)))
    looker, verdicts = Looker(specs), Verdicts(specs)
    tables = list(specs.tables.values())
    reading = [table for table in tables if table.node.sources]
    following = [one for one in tables if one.node.tables and one.plan.annotations.automation in (None, "eager")]

    @sensor(
        name=SOURCES,
        minimum_interval_seconds=interval,
        default_status=DefaultSensorStatus.RUNNING,
        asset_selection=AssetSelection.assets(*(table.key for table in tables)),
        description="Waits for sources that are not there. Requests the first load of a table when its sources are all "
        f"there, and any load of a table over tables that {AUTOMATION} leaves behind.",
    )
    def velo_sources(context: SensorEvaluationContext) -> SensorResult:
        before = _cursor(context)
        looks = looker.look_at(specs.sources)
        waits = waits_of(specs, before.get("waits", {}), looks, interval)
        runs = Runs(context.instance, specs.loaded)
        wanted = [_first_load(specs, table, looks, runs) for table in reading]
        behind: dict[str, Mapping[str, int]] = {}
        for table in following:
            last = before.get("behind", {}).get(table.plan.name, {})
            request, reason, behind[table.plan.name] = _catch_up(specs, context.instance, table, looks, runs, last)
            wanted.append((request, reason))
        requests = [request for request, _ in wanted if request is not None]
        newest = newest_loads(specs, context.instance)
        told, partitions = _untold(specs, context.instance, newest, runs)
        checked, going_on = verdicts.missing(context.instance, runs, newest, waits.since)
        reasons = [*waits.reasons, *(reason for _, reason in wanted if reason), *going_on]
        return SensorResult(
            run_requests=requests,
            skip_reason=None if requests else SkipReason("\n".join(reasons) or "Every source is there and loaded."),
            cursor=json.dumps({"waits": waits.cursor, "behind": {name: one for name, one in behind.items() if one}}),
            asset_events=[*waits.news, *told, *checked],
            dynamic_partitions_requests=partitions,
        )

    return velo_sources


def _catch_up(
    specs: ProjectSpecs,
    instance: DagsterInstance,
    table: TableSpecs,
    looks: Mapping[AssetKey, Probe],
    runs: Runs,
    before: Mapping[str, int],
) -> tuple[RunRequest | None, str, Mapping[str, int]]:
    """The request for a load of a table over tables that is behind and that automation does not ask for, or why there
    is none; and what the next look has to know: at how many looks the load could have begun, and had not.

    Automation looks as often as this sensor does, and asks once what the table reads can be read; only looks from then
    on count here. Its run is known as soon as Dagster has made it. Between its decision and that moment nobody can know
    of it: should both ask all the same, the later run finds nothing new.
    """
    news = due(specs, table)
    if not news:
        return None, "", {}
    name, load = table.plan.name, _next_load(specs, table)
    count = before.get("looks", 0) if before.get("load") == load else 0
    why = _held_up(specs, instance, table, looks, runs)
    if why is not None:
        return None, why, {"load": load, "looks": count}
    count += 1
    if count < CHANCES:
        why = f"{name} is behind what it reads; {AUTOMATION} has its chance first"
        return None, why, {"load": load, "looks": count}
    return *_request(table, runs, load, news, partition=None), {"load": load, "looks": count}


def _held_up(
    specs: ProjectSpecs, instance: DagsterInstance, table: TableSpecs, looks: Mapping[AssetKey, Probe], runs: Runs
) -> str | None:
    """Why a load of a table over tables should not begin now, None if it could; empty if that is said elsewhere: of
    sources, of what it reads, or of its own first load, which goes on."""
    going = runs.going(table)
    if going is not None:
        return _loading(table, going)
    inputs = [specs.tables[one.table] for one in table.plan.inputs if one.table is not None]
    record = specs.warehouse.table(table.plan.name).record()
    goes_on = record is not None and not record.ready
    there = all(looks[key].ready for key in table.node.sources)
    if goes_on or not there or any(runs.going(one) is not None for one in inputs):
        return ""
    optional = {one.table for one in table.plan.inputs if one.name in missable(table.plan)}
    for one in inputs:
        if one.plan.name in optional:
            continue
        if why := failed_check(specs, instance, None, one.plan.name):
            return f"{table.plan.name} waits for {one.plan.name}: {why}"
    return None


def _untold(
    specs: ProjectSpecs, instance: DagsterInstance, newest: Mapping[AssetKey, EventLogEntry], runs: Runs
) -> tuple[list[AssetMaterialization], list[_PartitionsChange]]:
    """Loads that Dagster has not heard of as events, with the receipts of increments."""
    events: list[AssetMaterialization] = []
    partitions: list[_PartitionsChange] = []
    for table, record, event in untold_loads(specs, newest, runs):
        events.append(event)
        if table.increments is not None and record.mode == "increment":
            partitions += _partition(instance, table, record.load)
            receipt = AssetMaterialization(table.increments.key, partition=str(record.load), metadata=event.metadata)
            events.append(receipt)
    return events, partitions


def _partition(instance: DagsterInstance, table: TableSpecs, load: int) -> list[_PartitionsChange]:
    """A partition for a load; the oldest ones make room for it."""
    partitions = partitions_of(table.key)
    old = outdated([*instance.get_dynamic_partitions(str(partitions.name)), str(load)])
    return [
        partitions.build_add_request([str(load)]),
        *([partitions.build_delete_request(old)] if old else []),
    ]


def _cursor(context: SensorEvaluationContext) -> dict[str, Any]:
    try:
        return json.loads(context.cursor or "{}")
    except ValueError:
        return {}


def _first_load(
    specs: ProjectSpecs, table: TableSpecs, looks: Mapping[AssetKey, Probe], runs: Runs
) -> tuple[RunRequest | None, str]:
    """The request for a table's first load, or why there is none; neither once the table is ready.

    One that also reads tables is begun by automation; if it was cut into several loads, it goes on here.
    """
    name = table.plan.name
    if name in specs.project.blocked:
        return None, f"{name} is blocked: {specs.project.blocked[name]}"
    try:
        record = specs.warehouse.table(name).record()
    except VeloError as error:
        return None, f"{name}: {error.what}"
    if record.ready if record is not None else table.node.tables:
        return None, ""
    if not all(looks[key].ready for key in table.node.sources):
        return None, ""
    seen = [looks[key].message for key in table.node.sources]
    return _request(table, runs, _next_load(specs, table), seen, partition=None)


def _next_load(specs: ProjectSpecs, table: TableSpecs) -> int:
    record = specs.warehouse.table(table.plan.name).record()
    return record.load + 1 if record is not None else 1


def _loading(table: TableSpecs, run: DagsterRun) -> str:
    return f"{table.plan.name}: run {run.run_id[:8]} is loading it"


def _request(
    table: TableSpecs, runs: Runs, load: int, seen: list[Any], *, partition: str | None
) -> tuple[RunRequest | None, str]:
    """A run for one load, unless one is on its way, or the last one failed and nothing has changed since."""
    name = table.plan.name
    wanted = [table.key, *([table.increments.key] if partition is not None and table.increments else [])]
    going = runs.going(table)
    if going is not None:
        return None, _loading(table, going)
    attempt, wait = runs.attempt(table.key.to_user_string(), load, seen)
    if wait:
        return None, f"{name}: {wait}"
    return (
        RunRequest(
            run_key=f"{name}/{load}/{attempt}",
            asset_selection=wanted,
            partition_key=partition,
            tags={
                TABLE: table.key.to_user_string(),
                LOAD: str(load),
                SEEN: runs.mark(seen),
                ATTEMPT: str(attempt),
            },
        ),
        "",
    )


def increment_sensor(specs: ProjectSpecs, table: TableSpecs, interval: int) -> SensorDefinition:
    """Sees new data in the sources of one table, and requests at most one run for it at a time."""
    assert table.increments is not None
    name = table.plan.name

    @sensor(
        name=f"{table.op_name}__increments",
        minimum_interval_seconds=interval,
        default_status=DefaultSensorStatus.RUNNING,
        asset_selection=AssetSelection.assets(table.key, table.increments.key),
        description=f"Loads what is new in the sources of {name}, one partition per increment.",
    )
    def increments(context: SensorEvaluationContext) -> SensorResult:
        status = table_status(specs.project, specs.warehouse, table.plan)
        if status.load is None or status.state != "ready":
            return SensorResult(skip_reason=SkipReason(f"{name} is {status.state}; its first load comes first."))
        new, reasons = _news(table, status)
        if not new:
            return SensorResult(skip_reason=SkipReason("\n".join(reasons) or f"Nothing is new for {name}."))
        load, runs = status.load + 1, Runs(context.instance, specs.loaded)
        if _next_load(specs, table) != load:
            # A run ended after the sources were looked at, and before runs were.
            return SensorResult(skip_reason=SkipReason(f"{name} was loaded just now; the next look tells what is new."))
        request, reason = _request(table, runs, load, new, partition=str(load))
        if request is None:
            return SensorResult(skip_reason=SkipReason(reason))
        changes = _partition(context.instance, table, load)
        return SensorResult(run_requests=[request], dynamic_partitions_requests=changes)

    return increments


def _news(table: TableSpecs, status: TableStatus) -> tuple[list[Any], list[str]]:
    """What a load would bring, as something to tell it by; and what else is to be said of the sources."""
    changed = CHANGED in status.health.split("; ")
    new: list[Any] = [table.plan.fingerprint] if changed else []
    reasons: list[str] = []
    for planned, one in zip(table.plan.inputs, status.inputs, strict=True):
        if one.kind != "source":
            continue
        if one.health != OK:
            return [], [f"{one.name}: {one.health}"]
        is_new = bool(one.lag) or GOES in one.notes
        # Healthy, so that all of its variables are set.
        _, properties = planned.resolve(os.environ)
        if is_new and properties.get("watch", "true").strip().lower() == "false":
            reasons.append(
                f'{one.name} has something new; the next load that is started brings it ("watch" = "false").'
            )
        elif is_new:
            new.append((one.name, one.lag, one.notes))
        else:
            reasons += [f"{one.name}: {note}" for note in ([one.gone] if one.gone else one.notes)]
    return new, reasons


def automation_sensor(specs: ProjectSpecs, interval: int) -> SensorDefinition:
    """Dagster's own sensor over tables that read tables; running by default, which the one it makes itself is not."""
    return AutomationConditionSensorDefinition(
        AUTOMATION,
        target=AssetSelection.assets(*(table.key for table in specs.tables.values())),
        default_status=DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=interval,
    )
