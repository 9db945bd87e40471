"""One load of one table inside a Dagster op: what it says goes to the run's log, how it ends becomes events."""

from __future__ import annotations

import os
from typing import Any

from dagster import AssetExecutionContext, Config, Failure, MetadataValue
from pydantic import Field

from velo_dagster.engine.errors import NotReady
from velo_dagster.engine.load import Loader
from velo_dagster.engine.progress import Progress
from velo_dagster.engine.report import LoadReport, Outcome
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.errors import Terminal, Transient, VeloError
from velo_dagster.orchestration.resources import SPARK, engine_of
from velo_dagster.orchestration.specs import ProjectSpecs
from velo_dagster.orchestration.verdicts import failed_check
from velo_dagster.plan.project import TablePlan
from velo_dagster.sources.errors import MissingSource
from velo_dagster.store.record import Record
from velo_dagster.store.table import Table

PROGRESS_SECONDS = 5.0
"""How often a line in the run's log says what a load waits for or reads."""


class VeloLoadConfig(Config):
    """What one run may ask of a load."""

    full_refresh: bool = Field(default=False, description="Start again from the recorded start positions.")
    accept_loss: bool = Field(
        default=False, description="With full_refresh: give up rows that the source no longer has."
    )
    max_records: int | None = Field(default=None, description="Take at most so many rows; the rest comes next time.")

    def options(self) -> LoadOptions:
        return LoadOptions(full_refresh=self.full_refresh, accept_loss=self.accept_loss, max_records=self.max_records)


class NotTheNext(Terminal, VeloError):
    """A partition that is not the table's next load."""

    code = "D702"

    def __init__(self, table: str, asked: int, last: int) -> None:
        super().__init__(
            f"Increment {asked} of table '{table}' can't be loaded: its last load is {last}, the next is {last + 1}.",
            steps=[
                f"Materialize {table} itself: it loads everything that is new.",
                "If the warehouse was emptied on purpose, delete the partitions of the loads that are gone.",
            ],
        )


def load_table(
    context: AssetExecutionContext, specs: ProjectSpecs, plan: TablePlan, options: LoadOptions
) -> LoadReport:
    """Load, or fail the step with what the load said. Trying again is Dagster's, and only where it can help."""
    specs.warehouse.make()
    try:
        engine = engine_of(getattr(context.resources, SPARK), specs.project.settings.engine, context.log.info)
    except VeloError as error:
        raise failure(error) from None
    progress = Progress()
    with progress.told(PROGRESS_SECONDS, context.log.info):
        loader = Loader(
            specs.project,
            specs.warehouse,
            engine,
            context.log.info,
            gate=lambda name, known: failed_check(specs, context.instance, engine, name),
            progress=progress,
        )
        report = loader.load(plan, options)
    if report.error is not None:
        # Not chained: what is behind it, JVM and all, would bury the sentence; VELO_DEBUG shows it.
        raise failure(report.error) from (report.error if os.environ.get("VELO_DEBUG") else None)
    context.log.info(str(report))
    return report


def load_increment(
    context: AssetExecutionContext, specs: ProjectSpecs, plan: TablePlan, number: int
) -> LoadReport | None:
    """Make load `number`, unless it is made already: then nothing changes, and there is no report."""
    last = _last_load(specs.warehouse.table(plan.name))
    if last >= number:
        context.log.info(f"Load {number} of {plan.name} was committed before; nothing was changed.")
        return None
    if last + 1 != number:
        raise failure(NotTheNext(plan.name, number, last))
    return load_table(context, specs, plan, LoadOptions())


def _last_load(table: Table) -> int:
    try:
        record = table.record()
    except VeloError as error:
        raise failure(error) from error
    return record.load if record else 0


def failure(error: Exception) -> Failure:
    """The step's failure: the sentence first, then what to do. Only what may go away by itself is tried again.

    A table that becomes ready, or a source that turns up, starts its readers by itself; trying again would hide that.
    """
    retry = isinstance(error, Transient) and not isinstance(error, (NotReady, MissingSource))
    if isinstance(error, NotReady):
        error.advising(f"'{error.table}' is loaded by itself once '{error.needs}' is ready. Or materialize that first.")
    metadata: dict[str, Any] = {}
    if isinstance(error, VeloError):
        metadata = {"velo/code": error.code} | ({"velo/where": str(error.where)} if error.where else {})
        if error.steps:
            metadata["velo/what_to_do"] = MetadataValue.md("\n".join(f"1. {step}" for step in error.steps))
    return Failure(str(error), metadata=metadata, allow_retries=retry)


def nothing_loaded(report: LoadReport) -> bool:
    """Whether there is still no table: its source has no rows yet."""
    return report.outcome is Outcome.NO_ROWS and report.version is None


def record_of(table: Table, number: int) -> Record | None:
    """What the log still knows of a load."""
    return next((record for record in table.history() if record.load == number), None)
