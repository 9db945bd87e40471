"""How a table stands, found out without a JVM: what it holds, how far it has read, what waits, and what is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from velo_dagster.engine.exempt import followed_inputs
from velo_dagster.engine.inputs import has_news
from velo_dagster.engine.landings import delivery
from velo_dagster.engine.source_load import position_of, table_positions
from velo_dagster.errors import VeloError
from velo_dagster.plan.inputs import PlannedInput
from velo_dagster.plan.project import Project, TablePlan, resolved_table_fingerprint
from velo_dagster.sources.contract import UNFINISHED
from velo_dagster.sources.errors import MissingSource
from velo_dagster.sources.registry import open_source
from velo_dagster.store.reader import open_table
from velo_dagster.store.record import Record
from velo_dagster.store.table import LANDING, Table, Warehouse

OK = "ok"
NEVER = "never loaded"
GOES_ON = "its first load goes on"
CHANGED = "the statement changed since the last load"
STAYS = "rows stay as they were joined with it"
GOES = "rows were replaced or removed; the next load follows"


@dataclass(frozen=True)
class InputStatus:
    """One input: the position read so far, and what of it waits (`lag`, in `unit`; None if that can't be told).

    `notes`: what the next load will say about it, and is no trouble. `waits`: it is not there yet, which is no fault.
    `gone`: it was read before and is not there any more, in a sentence; loads go on without it.
    """

    name: str
    kind: str
    position: Mapping[str, Any] | None
    lag: int | None
    unit: str
    health: str
    summary: str = ""
    notes: tuple[str, ...] = ()
    waits: bool = False
    gone: str = ""

    @property
    def unfinished(self) -> bool:
        """Whether a note tells of what waits, and no load can take yet."""
        return any(note.endswith(UNFINISHED) for note in self.notes)

    def trouble(self) -> str | None:
        """What keeps a load from reading it, in a line."""
        said = self.health.splitlines()[0]
        return None if self.health == OK else f"{'waits for ' if self.waits else ''}{self.name}: {said}"


@dataclass(frozen=True)
class TableStatus:
    """One table. `state`: ready, loading (its first load is not complete), not loaded, broken.

    `well`: nobody has to mend anything. A source that is not there yet, or a table before its first load, is a matter
    of time; one that was read before and is gone is not.
    """

    table: str
    state: str
    rows: int | None
    load: int | None
    mode: str | None
    at: datetime | None
    version: int | None
    method: str
    rejected: int
    inputs: tuple[InputStatus, ...]
    health: str
    well: bool


def table_status(project: Project, warehouse: Warehouse, plan: TablePlan) -> TableStatus:
    """What can be said of a table now. What is wrong with it or its inputs is part of the answer, never raised."""
    table = warehouse.table(plan.name)
    try:
        record, state, health = table.record(), "", OK
    except VeloError as error:
        record, state, health = None, "broken", error.what
    inputs = tuple(_input(project, warehouse, plan, number, record) for number in range(len(plan.inputs)))
    troubles = [said for one in inputs if (said := one.trouble()) is not None]
    if state != "broken" and (record is None or not record.ready):
        troubles.insert(0, NEVER if record is None else GOES_ON)
    blocked = plan.name in project.blocked
    if blocked:
        troubles.insert(0, f"blocked: {project.blocked[plan.name]}")
    elif record is not None and _changed(record, plan):
        troubles.insert(0, CHANGED)
    return TableStatus(
        table=plan.name,
        state=state or _state(record),
        rows=_rows(table),
        load=record.load if record else None,
        mode=record.mode if record else None,
        at=datetime.fromtimestamp(record.at / 1000, UTC) if record else None,
        version=record.version if record else None,
        method=plan.refresh.method,
        rejected=_rejected(warehouse, record),
        inputs=inputs,
        health="; ".join([health, *troubles] if health != OK else troubles) or OK,
        well=state != "broken" and not blocked and all(one.health == OK or one.waits for one in inputs),
    )


def _rows(table: Table) -> int | None:
    """How many rows the table holds; None if there is none, or none that can be read, which its health says."""
    try:
        return open_table(table.path).count() if table.opened() is not None else None
    except VeloError:
        return None


def _rejected(warehouse: Warehouse, record: Record | None) -> int:
    """Bad rows kept aside, whether they were met on the way into the table or into one of its landings."""
    names = (position["table"] for position in table_positions(record).values())
    landings = (_known(warehouse.table(name)) for name in names if LANDING in name)
    return sum(sum(one.rejects.values()) for one in (record, *landings) if one is not None)


def _known(landing: Table) -> Record | None:
    try:
        return landing.record(trusting=True)
    except VeloError:
        # The input's own health says so.
        return None


def _changed(record: Record, plan: TablePlan) -> bool:
    try:
        return record.fingerprint != resolved_table_fingerprint(plan, os.environ)
    except VeloError:
        # A variable is not set here: the input's own health says so.
        return False


def _state(record: Record | None) -> str:
    if record is None:
        return "not loaded"
    return "ready" if record.ready else "loading"


def _input(project: Project, warehouse: Warehouse, plan: TablePlan, number: int, record: Record | None) -> InputStatus:
    planned = plan.inputs[number]
    if planned.table is not None:
        found = _table_input(planned, warehouse.table(planned.table), record)
        if planned.name in followed_inputs(plan, record) or not found.lag:
            return found
        return replace(found, lag=0, notes=(STAYS,))
    position = position_of(record)
    try:
        newest = delivery(warehouse, plan, planned, record)
        position = position_of(newest)
        source = open_source(planned, project.root, {})
        summary = source.summary(position) if position is not None else ""
        probe = source.probe(position)
        if not probe.ready:
            waits = probe.category == MissingSource.category and position is None
            return InputStatus(planned.label, "source", position, None, "bytes", probe.message, summary, waits=waits)
        scan = source.scan(position, source.end(position, wait=False))
        notes = [*source.notes(), *([GOES] if position is not None and scan.removed is not None else [])]
        gone = f"{probe.message} Last loaded at {_moment(newest)}." if probe.gone and newest is not None else ""
    except VeloError as error:
        return InputStatus(planned.label, "source", position, None, "bytes", error.what)
    return InputStatus(planned.label, "source", position, scan.bytes, "bytes", OK, summary, tuple(notes), gone=gone)


def _moment(record: Record) -> str:
    return f"{datetime.fromtimestamp(record.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _table_input(planned: PlannedInput, table: Table, record: Record | None) -> InputStatus:
    """How many loads of the other table this one has not read yet."""
    position = table_positions(record).get(planned.name)
    try:
        other = table.record()
    except VeloError as error:
        return InputStatus(planned.label, "table", position, None, "loads", error.what)
    if other is None:
        waits = position is None or not position["id"]
        return InputStatus(planned.label, "table", position, None, "loads", NEVER, waits=waits)
    read = position["load"] if position else 0
    # Loads that changed nothing need not be read, and never will be.
    lag = other.load - read if has_news(table, other.table_id, other.load, position) else 0
    return InputStatus(planned.label, "table", position, lag, "loads", OK, f"load {read}")
