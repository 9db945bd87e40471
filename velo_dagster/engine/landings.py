"""Where a table keeps what its sources delivered: in itself, in its landings, or in the tables that it reads.

A landing belongs to the source whose rows it has, whatever number it bears: inputs that only change their places in a
statement keep theirs. And whatever a table was given stays, though its statement changes: where the source no longer
has it, and nothing that the new statement reads has it either, the load asks before it goes. Rows that the new
statement would not read from the source, even if it still had them, are not meant to stay.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from velo_dagster.engine.errors import WouldLose
from velo_dagster.engine.source_load import CHANGED, FULL_REFRESH, LoadOptions, position_of, table_positions
from velo_dagster.errors import VeloError
from velo_dagster.plan.inputs import resolved_fingerprint
from velo_dagster.plan.project import PlannedInput, Project, TablePlan, resolved_table_fingerprint
from velo_dagster.sources.contract import Position
from velo_dagster.sources.registry import open_source
from velo_dagster.sql.columns import plain_columns
from velo_dagster.sql.paths import may_read_text
from velo_dagster.sql.spark import follows_column_order
from velo_dagster.store.record import Record, UnreadablePositions
from velo_dagster.store.table import LANDING, Table, Warehouse


def reads_source_directly(plan: TablePlan) -> bool:
    """Row by row, without a key: no history is needed, so the table itself is what a landing would be.

    A path may lead into JSON text, whose type is that of all its values: that needs them.
    """
    inputs = plan.inputs
    one_source = plan.refresh.method == "append" and len(inputs) == 1 and inputs[0].kind == "source"
    return one_source and not may_read_text(plan.statement.query)


def declared_types(plan: TablePlan) -> dict[str, str]:
    """Declared types of those source columns that the SELECT takes as they are: bad values are then found where they
    stand, with file and line, instead of failing a cast later."""
    if len(plan.inputs) != 1:
        return {}
    types = {column.name: column.type for column in plan.statement.columns}
    return {source: types[output] for output, source in plain_columns(plan.statement, types).items()}


def table_fingerprint(plan: TablePlan) -> str:
    """What the rows of a table depend on, as it would be loaded here and now."""
    return resolved_table_fingerprint(plan, os.environ)


def landing_fingerprint(plan: TablePlan, planned: PlannedInput) -> str:
    """What the rows of a landing depend on: the source, how it is typed, which system columns it keeps, and whether
    the order of its columns is to be that of the source."""
    return " ".join(
        [
            resolved_fingerprint(planned, os.environ),
            *planned.system_columns,
            *(["*"] if follows_column_order(plan.statement.query) else []),
            *(f"{k}:{v}" for k, v in sorted(declared_types(plan).items())),
        ]
    )


def landings(warehouse: Warehouse, plan: TablePlan) -> dict[int, Table]:
    """The landing of each source, by the number of the input: the one that has its rows, else one to be filled."""
    wanted = {
        number: landing_fingerprint(plan, planned)
        for number, planned in enumerate(plan.inputs)
        if planned.kind == "source"
    }
    held = {number: _fingerprint(warehouse.landing(plan.name, number)) for number in wanted}
    chosen = {number: number for number, one in wanted.items() if held[number] == one}
    if len(chosen) < len(wanted):
        held = {number: _fingerprint(warehouse.landing(plan.name, number)) for number in _numbers(warehouse, plan.name)}
    for number, one in wanted.items():
        moved = [other for other, has in held.items() if has == one and other not in chosen.values()]
        if number not in chosen and moved:
            chosen[number] = moved[0]
    for number in wanted:
        if number not in chosen:
            candidates = (number, *range(len(plan.inputs) + len(chosen)))
            chosen[number] = next(one for one in candidates if one not in chosen.values())
    return {number: warehouse.landing(plan.name, one) for number, one in chosen.items()}


def _numbers(warehouse: Warehouse, table: str) -> list[int]:
    """The numbers of all landings that a table has, whether its statement still reads their sources or not."""
    prefix = f"{table.lower()}{LANDING}"
    found = (path.name.removeprefix(prefix) for path in warehouse.root.glob(f"{prefix}*"))
    return sorted(int(number) for number in found if number.isdigit())


def _fingerprint(landing: Table) -> str | None:
    try:
        record = landing.record(trusting=True)
    except VeloError:
        # Whoever reads it says so.
        return None
    return None if record is None else record.fingerprint


def delivery(warehouse: Warehouse, plan: TablePlan, planned: PlannedInput, record: Record | None) -> Record | None:
    """The newest load that took rows of the source: the table's own, which is `record`, or that of its landing."""
    if not reads_source_directly(plan):
        landing = landings(warehouse, plan)[plan.inputs.index(planned)].record()
        if landing is not None:
            return landing
    return record


def delivered(warehouse: Warehouse, plan: TablePlan, planned: PlannedInput, record: Record | None) -> Position | None:
    """Up to where a table, whose newest load is `record`, or its landing has what the source delivered."""
    return position_of(delivery(warehouse, plan, planned, record))


def check_nothing_goes(
    project: Project, warehouse: Warehouse, plan: TablePlan, options: LoadOptions, path: str
) -> None:
    """All that a table was given must be had again where its statement changed or it is made anew, unless the loss is
    accepted. Landings look at their own sources by themselves; here is what they can't see: rows that are elsewhere."""
    if options.full_refresh and options.accept_loss:
        return
    table = warehouse.table(plan.name)
    try:
        record = table.record(trusting=options.full_refresh)
    except UnreadablePositions:
        if not options.full_refresh:
            raise
        # The load itself says so, if it needs them: the positions of landings may do.
        return
    if record is None or not (options.full_refresh or record.fingerprint != table_fingerprint(plan)):
        return
    readers = list(_readers(project, warehouse, plan, anew=options.full_refresh))
    stays = [held for _, held in readers]
    goes = [position for position in _given(warehouse, table, set()) if position not in stays]
    for planned, held in readers if goes else ():
        source = open_source(planned, project.root, {})
        lost = tuple(dict.fromkeys(name for position in goes for name in source.lost(position, held)))
        if lost:
            reason = FULL_REFRESH if options.full_refresh else CHANGED
            raise WouldLose(plan.name, source.label, reason, lost, path)


def _given(warehouse: Warehouse, table: Table, seen: set[str]) -> Iterator[Position]:
    """Positions of sources up to which a table has their rows: by itself, by its landings, by tables that it read."""
    record = table.record(trusting=True) if table.name.lower() not in seen else None
    seen.add(table.name.lower())
    own = position_of(record)
    if own is not None:
        yield own
    for position in table_positions(record).values():
        yield from _given(warehouse, warehouse.table(position["table"]), seen)


def _readers(
    project: Project, warehouse: Warehouse, plan: TablePlan, *, anew: bool
) -> Iterator[tuple[PlannedInput, Position | None]]:
    """The sources that a statement reads, itself or by tables, each with the position from which its load goes on."""
    direct = reads_source_directly(plan)
    own = {0: warehouse.table(plan.name)} if direct else landings(warehouse, plan)
    for number, planned in enumerate(plan.inputs):
        if planned.table is not None:
            yield from _readers(project, warehouse, project.table(planned.table), anew=False)
            continue
        record = own[number].record(trusting=True)
        wanted = table_fingerprint(plan) if direct else landing_fingerprint(plan, planned)
        goes_on = record is not None and record.fingerprint == wanted and not anew
        yield planned, position_of(record) if goes_on else None


def forget_others(warehouse: Warehouse, plan: TablePlan) -> None:
    """Remove the landings that a statement does not read. A loss that was accepted is final: else what they hold would
    come back with a statement that reads their sources again."""
    kept = set() if reads_source_directly(plan) else {one.path for one in landings(warehouse, plan).values()}
    for number in _numbers(warehouse, plan.name):
        landing = warehouse.landing(plan.name, number)
        if landing.path not in kept:
            shutil.rmtree(landing.path)
