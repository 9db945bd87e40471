"""Tables that need not equal a full reload, by choice: which they are, what they follow, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from velo_dagster.engine.errors import StatementFailed, UnknownColumns
from velo_dagster.engine.inputs import TableInput, first_line
from velo_dagster.engine.missing import MissingInput
from velo_dagster.engine.report import count
from velo_dagster.engine.source_load import table_positions
from velo_dagster.plan.project import TablePlan
from velo_dagster.plan.references import driving_of
from velo_dagster.sql.problems import StatementError
from velo_dagster.store.reader import open_table
from velo_dagster.store.record import Record
from velo_dagster.store.table import Warehouse


def joins_once(plan: TablePlan, record: Record | None) -> bool:
    """Whether rows of the table stay as they were joined: its statement says so, or some were filled."""
    return plan.refresh.method == "once" or (record is not None and record.filled > 0)


def followed_inputs(plan: TablePlan, record: Record | None) -> frozenset[str]:
    """The inputs whose changes change the table, by name."""
    driving = driving_of(plan) if record is not None and joins_once(plan, record) else None
    return frozenset(one.name for one in plan.inputs) if driving is None else frozenset([driving.name])


def rows_without_reference(warehouse: Warehouse, plan: TablePlan, record: Record) -> int | None:
    """How many rows of the driving input the table was computed of while a reference was taken as empty: an inner join
    leaves them out, a left join gives them NULLs, until it is there. None if no single input drives it."""
    if "skip" not in record.missing.values():
        return 0
    driving = driving_of(plan)
    if driving is None:
        return None
    read = table_positions(record)[driving.name]
    return open_table(warehouse.table(read["table"]).path, read["version"]).count()


def exemptions(warehouse: Warehouse, plan: TablePlan, record: Record) -> list[str]:
    """What a load did that its reader must know: references it did without, and rows that stay as they are."""
    told = []
    skipped = [name for name, how in record.missing.items() if how == "skip"]
    if skipped:
        rows, driving = rows_without_reference(warehouse, plan, record), driving_of(plan)
        of = f" for {count(rows, 'row')} of {driving.label}" if rows is not None and driving is not None else ""
        told.append(f"{', '.join(skipped)} not ready: taken as empty{of}; the table follows once it is loaded")
    if record.filled:
        told.append(f"{count(record.filled, 'row')} filled in for missing references; they stay so (exempt by choice)")
    if plan.refresh.method == "once":
        told.append("rows stay as they were joined (join.time = load, exempt by choice)")
    return told


@contextmanager
def explaining(plan: TablePlan, inputs: Sequence[TableInput]) -> Iterator[None]:
    """Where Spark refuses a statement over columns whose types nobody knows, that is what to say first."""
    guessed = [one for one in inputs if isinstance(one, MissingInput) and one.undecided]
    try:
        yield
    except (StatementFailed, StatementError) as error:
        if not guessed:
            raise
        raise UnknownColumns(plan.name, guessed[0].table.name, first_line(error), plan.statement.span) from error
