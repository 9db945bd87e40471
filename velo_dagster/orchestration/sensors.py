"""Who starts loads: one sensor looks after all sources, one per table after new data, one after tables over tables.

The truth about positions is in the tables; cursors only remember since when something is waited for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dagster import (
    AssetObservation,
    AssetSelection,
    AutomationConditionSensorDefinition,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from velo_dagster.engine.status import GOES, OK, table_status
from velo_dagster.errors import VeloError
from velo_dagster.orchestration.checks import ready_evaluation
from velo_dagster.orchestration.probes import look_at
from velo_dagster.orchestration.runs import LOAD, SEEN, TABLE, Runs
from velo_dagster.orchestration.specs import ProjectSpecs, SourceSpecs, TableSpecs, partitions_of
from velo_dagster.orchestration.verdicts import missing_verdicts
from velo_dagster.sources.contract import Probe

SOURCES = "velo_sources"
AUTOMATION = "velo_automation"
KEPT = 5000
"""So many partitions of increments are kept, the newest."""


def source_sensor(specs: ProjectSpecs, interval: int) -> SensorDefinition:
    """Waits for sources, says for what and since when, and has tables loaded first when theirs are all there."""
    first = [table for table in specs.tables.values() if table.node.sources and not table.node.tables]

    @sensor(
        name=SOURCES,
        minimum_interval_seconds=interval,
        default_status=DefaultSensorStatus.RUNNING,
        asset_selection=AssetSelection.assets(*(table.key for table in first)),
        description="Waits for sources that are not there yet, and requests the first load of tables whose are.",
    )
    def velo_sources(context: SensorEvaluationContext) -> SensorResult:
        looks = look_at(specs, specs.sources)
        waits, news = _waits(specs, _cursor(context), looks, interval)
        runs = Runs(context.instance)
        requests, reasons = [], [one["said"] for one in waits.values() if one["said"]]
        for table in first:
            request, reason = _first_load(specs, table, looks, runs)
            requests += [request] if request is not None else []
            reasons += [reason] if reason else []
        return SensorResult(
            run_requests=requests,
            skip_reason=None if requests else SkipReason("\n".join(reasons) or "Every source is there and loaded."),
            cursor=json.dumps(waits),
            asset_events=[*news, *missing_verdicts(specs, context.instance, runs)],
        )

    return velo_sources


def _cursor(context: SensorEvaluationContext) -> dict[str, Any]:
    try:
        return json.loads(context.cursor or "{}")
    except ValueError:
        return {}


def _waits(
    specs: ProjectSpecs, before: Mapping[str, Any], looks: Mapping[Any, Probe], interval: int
) -> tuple[dict[str, Any], list[Any]]:
    """What each source is waited for, and events for those of which there is news.

    A source that stays away is told of ever more seldom: at the first, second, fourth, eighth … look.
    """
    now = time.time()
    waits: dict[str, Any] = {}
    news: list[Any] = []
    for source in specs.sources:
        look, name = looks[source.key], source.key.to_user_string()
        last = before.get(name)
        if look.ready:
            waits[name] = {"since": None, "attempt": 0, "said": ""}
            if last is None or last["attempt"]:
                news += [_observed(source, look, "ready"), ready_evaluation(source, look)]
            continue
        attempt = (last["attempt"] if last else 0) + 1
        since = (last["since"] if last else None) or now
        said = _waiting(source, look, since, attempt, now + interval)
        waits[name] = {"since": since, "attempt": attempt, "said": said}
        if attempt & (attempt - 1) == 0:
            news += [_observed(source, look, said), ready_evaluation(source, look)]
    return waits, news


def _waiting(source: SourceSpecs, look: Probe, since: float, attempt: int, again: float) -> str:
    return (
        f"waiting for {source.node.label} since {_time(since)}, attempt {attempt}, next look {_time(again)}, "
        f"category {look.category}: {look.message}"
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _observed(source: SourceSpecs, look: Probe, said: str) -> AssetObservation:
    metadata = {"velo/state": "ready" if look.ready else "waiting", "velo/category": look.category or "ready"}
    return AssetObservation(source.key, description=said, metadata={**metadata, "velo/message": look.message})


def _first_load(
    specs: ProjectSpecs, table: TableSpecs, looks: Mapping[Any, Probe], runs: Runs
) -> tuple[RunRequest | None, str]:
    """The request for a table's first load, or why there is none; neither once the table is ready."""
    name = table.plan.name
    if name in specs.project.blocked:
        return None, f"{name} is blocked: {specs.project.blocked[name]}"
    try:
        record = specs.warehouse.table(name).record()
    except VeloError as error:
        return None, f"{name}: {error.what}"
    if record is not None and record.ready:
        return None, ""
    if not all(looks[key].ready for key in table.node.sources):
        return None, ""
    load = record.load + 1 if record is not None else 1
    seen = " ".join(looks[key].message for key in table.node.sources)
    return _request(specs, table, runs, load, seen, partition=None)


def _request(
    specs: ProjectSpecs, table: TableSpecs, runs: Runs, load: int, seen: str, *, partition: str | None
) -> tuple[RunRequest | None, str]:
    """A run for one load, unless one is on its way, or the last one failed and nothing has changed since."""
    name = table.plan.name
    wanted = [table.key, *([table.increments.key] if partition is not None and table.increments else [])]
    going = runs.going(table.key)
    if going is not None:
        return None, f"{name}: run {going.run_id[:8]} is loading it"
    attempt, wait = runs.attempt(name, load, seen)
    if wait:
        return None, f"{name}: {wait}"
    return (
        RunRequest(
            run_key=f"{name}/{load}/{attempt}",
            asset_selection=wanted,
            partition_key=partition,
            tags={TABLE: name, LOAD: str(load), SEEN: runs.mark(seen)},
        ),
        "",
    )


def increment_sensor(specs: ProjectSpecs, table: TableSpecs, interval: int) -> SensorDefinition:
    """Sees new data in the sources of one table, and requests at most one run for it at a time."""
    assert table.increments is not None
    partitions = partitions_of(table.key)
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
        watched = [
            one
            for planned, one in zip(table.plan.inputs, status.inputs, strict=True)
            if one.kind == "source" and planned.properties.get("watch", "true").lower() != "false"
        ]
        wrong = [f"{one.name}: {one.health}" for one in watched if one.health != OK]
        new = [one for one in watched if one.health == OK and (one.lag or GOES in one.notes)]
        if wrong or not new:
            return SensorResult(skip_reason=SkipReason("\n".join(wrong) or f"Nothing is new for {name}."))
        load = status.load + 1
        seen = json.dumps([(one.name, one.lag, one.notes) for one in new])
        request, reason = _request(specs, table, Runs(context.instance), load, seen, partition=str(load))
        if request is None:
            return SensorResult(skip_reason=SkipReason(reason))
        changes = [partitions.build_add_request([str(load)])]
        known = context.instance.get_dynamic_partitions(str(partitions.name))
        old = sorted((key for key in known if key.isdigit()), key=int)[: max(0, len(known) + 1 - KEPT)]
        changes += [partitions.build_delete_request(old)] if old else []
        return SensorResult(run_requests=[request], dynamic_partitions_requests=changes)

    return increments


def automation_sensor(specs: ProjectSpecs, interval: int) -> SensorDefinition:
    """Dagster's own sensor over tables that read tables; running by default, which the one it makes itself is not."""
    return AutomationConditionSensorDefinition(
        AUTOMATION,
        target=AssetSelection.assets(*(table.key for table in specs.tables.values())),
        default_status=DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=interval,
    )
