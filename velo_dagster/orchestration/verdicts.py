"""Blocking checks of tables that others read, brought back to what is true.

For Dagster a check counts only for the newest materialization, and of all evaluations the one whose run was *created*
last is the check's state. Two runs of one table that overlap, or a run that fails before its checks, leave a check
behind that speaks of another materialization, or of none; what reads the table would wait for ever. So a sensor looks:
where no run is on its way and a blocking check does not speak of the table as it is, it is evaluated once more.
"""

from __future__ import annotations

from collections.abc import Iterable

from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance

from velo_dagster.engine.checks import Check, Standing, checks_of, run_check
from velo_dagster.engine.session import NoEngine, SparkWanted
from velo_dagster.orchestration.checks import evaluation
from velo_dagster.orchestration.runs import Runs
from velo_dagster.orchestration.specs import ProjectSpecs, TableSpecs

DONE = ("SUCCEEDED", "FAILED")


def missing_verdicts(specs: ProjectSpecs, instance: DagsterInstance, runs: Runs) -> list[AssetCheckEvaluation]:
    """Evaluations of blocking checks that no longer speak of their table's newest materialization."""
    read = {key for table in specs.tables.values() for key in table.node.tables}
    found: list[AssetCheckEvaluation] = []
    for table in specs.tables.values():
        if table.key not in read or runs.going(table.key) is not None:
            continue
        stale = [check for check in checks_of(table.plan) if check.blocking]
        found += _evaluated(specs, table, _stale(instance, table, stale))
    return found


def _stale(instance: DagsterInstance, table: TableSpecs, checks: Iterable[Check]) -> list[Check]:
    newest = instance.get_latest_materialization_event(table.key)
    if newest is None:
        return []
    by_key = {AssetCheckKey(table.key, check.name): check for check in checks}
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(by_key))
    return [
        check
        for key, check in by_key.items()
        if (record := records.get(key)) is None
        or record.status.value not in DONE
        or (record.run_id != newest.run_id and record.create_timestamp <= newest.timestamp)
    ]


def _evaluated(specs: ProjectSpecs, table: TableSpecs, checks: Iterable[Check]) -> list[AssetCheckEvaluation]:
    standing = Standing(specs.project, specs.warehouse, table.plan, NoEngine())
    found = []
    for check in checks:
        try:
            found.append(evaluation(table, check, run_check(check, standing)))
        except SparkWanted:
            # A tick must not start Spark; the velo_checks job evaluates it.
            continue
    return found
