"""Bounded looks at sources, many at once: a tick never waits for the slowest of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from dagster import AssetKey

from velo_dagster.engine.source_load import SOURCE
from velo_dagster.errors import VeloError
from velo_dagster.orchestration.specs import ProjectSpecs, SourceSpecs
from velo_dagster.plan.inputs import PlannedInput
from velo_dagster.plan.project import TablePlan
from velo_dagster.sources.contract import Position, Probe, Source
from velo_dagster.sources.registry import open_source
from velo_dagster.store.table import Warehouse

LOOKERS = 8
SECONDS = 20.0
"""No tick may last longer than Dagster lets it; each look is bounded by itself."""


@dataclass(frozen=True)
class _Asked:
    """One source as one table reads it, from where that table is."""

    key: AssetKey
    source: Source
    since: Position | None


def look_at(specs: ProjectSpecs, sources: Sequence[SourceSpecs]) -> Mapping[AssetKey, Probe]:
    """A look at each source, side by side, those of one server in one call; one that takes too long does not answer.

    Ready means that every table that reads it could go on from where it is.
    """
    found: dict[AssetKey, list[Probe]] = {one.key: [] for one in sources}
    groups: dict[object, list[_Asked]] = {}
    for one in sources:
        for plan, planned in one.node.readers:
            try:
                source = open_source(planned, specs.project.root, {})
                asked = _Asked(one.key, source, delivered(specs.warehouse, plan, planned))
            except VeloError as error:
                found[one.key].append(Probe(False, str(error), getattr(error, "category", "config")))
                continue
            alone = source.server is None
            groups.setdefault(id(asked) if alone else (type(source), source.server), []).append(asked)
    for asked, look in _looks(list(groups.values())):
        found[asked.key].append(look)
    return {key: next((look for look in looks if not look.ready), looks[0]) for key, looks in found.items()}


def _looks(groups: Sequence[Sequence[_Asked]]) -> Iterator[tuple[_Asked, Probe]]:
    pool = ThreadPoolExecutor(LOOKERS, thread_name_prefix="velo-probe")
    looks = [(group, pool.submit(_probe, group)) for group in groups]
    wait([look for _, look in looks], timeout=SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    silent = Probe(False, f"It did not answer within {SECONDS:.0f} s.", "network")
    for group, look in looks:
        answers = look.result() if look.done() and not look.cancelled() else [silent] * len(group)
        yield from zip(group, answers, strict=True)


def _probe(group: Sequence[_Asked]) -> list[Probe]:
    return type(group[0].source).probe_together([(one.source, one.since) for one in group])


def delivered(warehouse: Warehouse, plan: TablePlan, planned: PlannedInput) -> Position | None:
    """Up to where a table, or its landing, has what the source delivered."""
    number = plan.inputs.index(planned)
    for table in (warehouse.landing(plan.name, number), warehouse.table(plan.name)):
        record = table.record()
        if record is not None and SOURCE in record.positions:
            return record.positions[SOURCE]
    return None
