"""Bounded looks at sources, many at once: a tick never waits for the slowest of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from dagster import AssetKey

from velo_dagster.engine.source_load import SOURCE
from velo_dagster.errors import VeloError
from velo_dagster.orchestration.specs import ProjectSpecs, SourceSpecs
from velo_dagster.plan.inputs import PlannedInput
from velo_dagster.plan.project import TablePlan
from velo_dagster.sources.contract import Position
from velo_dagster.sources.registry import open_source
from velo_dagster.store.table import Warehouse

LOOKERS = 8
SECONDS = 20.0
"""No tick may last longer than Dagster lets it; each look is bounded by itself."""


@dataclass(frozen=True)
class Look:
    """How a source stands for all tables that read it."""

    ready: bool
    message: str
    category: str | None


def look_at(specs: ProjectSpecs, sources: Iterable[SourceSpecs]) -> Mapping[AssetKey, Look]:
    """A look at each source, side by side; one that takes too long counts as not answering."""
    pool = ThreadPoolExecutor(LOOKERS, thread_name_prefix="velo-probe")
    looks = {one.key: pool.submit(_look, specs, one) for one in sources}
    wait(looks.values(), timeout=SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {
        key: look.result() if look.done() and not look.cancelled() else _silent(SECONDS) for key, look in looks.items()
    }


def _silent(seconds: float) -> Look:
    return Look(False, f"It did not answer within {seconds:.0f} s.", "network")


def _look(specs: ProjectSpecs, source: SourceSpecs) -> Look:
    """Ready means that every table that reads it could go on from where it is."""
    found = [_probe(specs, plan, planned) for plan, planned in source.node.readers]
    return next((look for look in found if not look.ready), found[0])


def _probe(specs: ProjectSpecs, plan: TablePlan, planned: PlannedInput) -> Look:
    try:
        source = open_source(planned, specs.project.root, {})
        probe = source.probe(delivered(specs.warehouse, plan, planned))
    except VeloError as error:
        return Look(False, str(error), getattr(error, "category", "config"))
    return Look(probe.ready, probe.message, probe.category)


def delivered(warehouse: Warehouse, plan: TablePlan, planned: PlannedInput) -> Position | None:
    """Up to where a table, or its landing, has what the source delivered."""
    number = plan.inputs.index(planned)
    for table in (warehouse.landing(plan.name, number), warehouse.table(plan.name)):
        record = table.record()
        if record is not None and SOURCE in record.positions:
            return record.positions[SOURCE]
    return None
