"""What is behind, found out from the tables themselves.

Automation asks for a load when something happens, and forgets it when the run that it asked for is killed or fails,
when an input changes while that run is on its way, or when Dagster never heard of a load: one from a shell, one that
was killed between its commit and its event. What counts is how the tables stand. Loads that Dagster has not heard of
are told, and a table over tables that stays behind is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from dagster import AssetKey, AssetMaterialization, EventLogEntry

from velo_dagster.engine.exempt import followed_inputs
from velo_dagster.engine.inputs import has_news
from velo_dagster.engine.source_load import table_positions
from velo_dagster.errors import VeloError
from velo_dagster.orchestration.metadata import load_metadata
from velo_dagster.orchestration.runs import Runs
from velo_dagster.orchestration.specs import ProjectSpecs, TableSpecs
from velo_dagster.plan.project import resolved_table_fingerprint
from velo_dagster.plan.references import missable
from velo_dagster.store.record import Record


def due(specs: ProjectSpecs, table: TableSpecs) -> list[Any]:
    """What the next load of a table over tables would bring, as something to tell it by; empty if that is nothing.

    Or if it must not begin: an input is not ready. What is new in its sources, its own sensor sees.
    """
    try:
        record = _record(specs, table.plan.name)
        inputs = {
            one.name: (one.table, _record(specs, one.table)) for one in table.plan.inputs if one.table is not None
        }
        changed = record is not None and record.fingerprint != resolved_table_fingerprint(table.plan, os.environ)
    except VeloError:
        # A damaged table, a variable that is not set: a load would say so, and `status` does.
        return []
    read = table_positions(record)
    news: list[Any] = [table.plan.fingerprint] if changed else []
    optional = missable(table.plan)
    followed = followed_inputs(table.plan, record)
    for name, (planned, other) in inputs.items():
        position = read.get(name)
        if other is None or not other.ready:
            if name in optional and (position is None or not position["id"]):
                continue
            return []
        if name not in followed:
            continue
        if has_news(specs.warehouse.table(planned), other.table_id, other.load, position):
            news.append((name, other.table_id, other.load))
    return news


def untold_loads(
    specs: ProjectSpecs, newest: Mapping[AssetKey, EventLogEntry], runs: Runs
) -> Iterator[tuple[TableSpecs, Record, AssetMaterialization]]:
    """The newest loads of tables, where Dagster has not heard of them and no run is on its way that would tell.

    `newest`: the materializations that it has heard of.
    """
    for table in specs.tables.values():
        try:
            record = _record(specs, table.plan.name)
        except VeloError:
            # Its own runs and checks say so.
            continue
        told = newest.get(table.key)
        if record is None or (told is not None and told.timestamp >= record.at / 1000):
            continue
        if runs.going(table) is None:
            yield table, record, AssetMaterialization(table.key, metadata=load_metadata(record))


def _record(specs: ProjectSpecs, name: str) -> Record | None:
    return specs.warehouse.table(name).record()
