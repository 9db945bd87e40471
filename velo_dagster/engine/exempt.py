"""Tables that need not equal a full reload, by choice: which they are, what they follow, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from velo_dagster.engine.errors import StatementFailed, UnknownColumns
from velo_dagster.engine.inputs import TableInput, first_line
from velo_dagster.engine.missing import MissingInput
from velo_dagster.engine.report import count
from velo_dagster.plan.project import TablePlan
from velo_dagster.plan.references import driving_of
from velo_dagster.sql.problems import StatementError
from velo_dagster.store.record import Record


def joins_once(plan: TablePlan, record: Record | None) -> bool:
    """Whether rows of the table stay as they were joined: its statement says so, or some were filled."""
    return plan.refresh.method == "once" or (record is not None and record.filled > 0)


def followed_inputs(plan: TablePlan, record: Record | None) -> frozenset[str]:
    """The inputs whose changes change the table, by name."""
    driving = driving_of(plan) if record is not None and joins_once(plan, record) else None
    return frozenset(one.name for one in plan.inputs) if driving is None else frozenset([driving.name])


def exemptions(plan: TablePlan, record: Record) -> list[str]:
    """What a load did that its reader must know: references it did without, and rows that stay as they are."""
    told = []
    skipped = [name for name, how in record.missing.items() if how == "skip"]
    if skipped:
        told.append(f"{', '.join(skipped)} not ready: taken as empty; the table follows once it is loaded")
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
