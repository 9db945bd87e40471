"""Checks as Dagster's: each table's in one op that runs any of them, each source's readiness in another."""

# No `from __future__ import annotations` here: Dagster reads the annotations of ops as objects.

from collections.abc import Iterable, Iterator
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    multi_asset_check,
)

from velo_dagster.engine.checks import Check, Finding, Standing, checks_of, run_check
from velo_dagster.orchestration.probes import Looker
from velo_dagster.orchestration.resources import SPARK, engine_of
from velo_dagster.orchestration.specs import ProjectSpecs, SourceSpecs, TableSpecs
from velo_dagster.orchestration.translator import plain
from velo_dagster.sources.contract import Probe

READY = "ready"
DESCRIPTION = "It is there and may be read; or it was read before, so that loads go on without it."


def table_checks(specs: ProjectSpecs, table: TableSpecs) -> AssetChecksDefinition:
    """The checks of one table. Blocking ones keep what reads it from being loaded, in a run and by automation."""

    @multi_asset_check(
        name=f"{table.op_name}__checks",
        specs=[_spec(table, check) for check in checks_of(table.plan)],
        can_subset=True,
        required_resource_keys={SPARK},
    )
    def checks(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        names = [key.name for key in context.op_execution_context.selected_asset_check_keys]
        for check, finding in evaluate(context, specs, table, names):
            yield AssetCheckResult(**_told(table, check, finding))

    return checks


def evaluate(
    context: AssetCheckExecutionContext | AssetExecutionContext,
    specs: ProjectSpecs,
    table: TableSpecs,
    names: Iterable[str] | None = None,
) -> Iterator[tuple[Check, Finding]]:
    """What checks of a table find as it stands: the named ones, or all."""
    engine = engine_of(getattr(context.resources, SPARK), specs.project.settings.engine, context.log.info)
    standing = Standing(specs.project, specs.warehouse, table.plan, engine)
    wanted = None if names is None else set(names)
    for check in checks_of(table.plan):
        if wanted is None or check.name in wanted:
            yield check, run_check(check, standing)


def evaluation(table: TableSpecs, check: Check, finding: Finding) -> AssetCheckEvaluation:
    """What a check found as an event, for an op that is not the check's own."""
    return AssetCheckEvaluation(**_told(table, check, finding), blocking=check.blocking)


def _told(table: TableSpecs, check: Check, finding: Finding) -> dict[str, Any]:
    return {
        "asset_key": table.key,
        "check_name": check.name,
        "passed": finding.passed,
        "severity": AssetCheckSeverity[finding.severity(check)],
        "description": finding.message,
        "metadata": {f"velo/{name}": value for name, value in finding.seen.items()},
    }


def _spec(table: TableSpecs, check: Check) -> AssetCheckSpec:
    return AssetCheckSpec(check.name, asset=table.key, description=check.description, blocking=check.blocking)


def source_checks(specs: ProjectSpecs, source: SourceSpecs) -> AssetChecksDefinition:
    """Whether what reads the source can be loaded. Tables that also read tables are loaded by automation only then.

    One that was read and is gone passes, with a sentence that says so: its tables keep its rows, and loads go on. What
    reads it says by its own check that it is not there, which holds up nothing.
    """

    @multi_asset_check(
        name=f"{plain('__'.join(source.key.path))}__{READY}",
        specs=[AssetCheckSpec(READY, asset=source.key, description=DESCRIPTION, blocking=True)],
    )
    def ready(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        yield AssetCheckResult(**_seen(source, Looker(specs).look_at([source])[source.key]))

    return ready


def ready_evaluation(source: SourceSpecs, look: Probe) -> AssetCheckEvaluation:
    """What the sensor saw, as the check's own event."""
    return AssetCheckEvaluation(**_seen(source, look), blocking=True)


def _seen(source: SourceSpecs, look: Probe) -> dict[str, Any]:
    return {
        "asset_key": source.key,
        "check_name": READY,
        "passed": look.ready,
        "severity": AssetCheckSeverity.ERROR,
        "description": look.message,
        "metadata": {"velo/category": look.category or READY},
    }
