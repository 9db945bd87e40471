"""One load of one table, always the same steps.

1. Read the table's committed load number and positions.
2. Bring the landings of its sources up to date; ask every input for its end. Nothing new: done, no commit.
3. Compute the table's changes with the planned refresh method.
4. Commit data, positions, schema and provenance at once.
5. Report.

A table that reads one source row by row without a key needs no history, so it is loaded from the source itself, in the
way that landings are.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from velo_dagster.crash import crash_point
from velo_dagster.engine.columns import output, storable
from velo_dagster.engine.errors import WrongStatement
from velo_dagster.engine.exempt import exemptions, explaining, followed_inputs, joins_once
from velo_dagster.engine.failures import as_velo_error, told_at
from velo_dagster.engine.floats import in_either_form
from velo_dagster.engine.inputs import TableInput
from velo_dagster.engine.landings import (
    check_nothing_goes,
    declared_types,
    forget_others,
    landing_fingerprint,
    landings,
    reads_source_directly,
    table_fingerprint,
)
from velo_dagster.engine.maintenance import maintain
from velo_dagster.engine.missing import MissingInput, check_defaults, filled, missing_input
from velo_dagster.engine.progress import Progress
from velo_dagster.engine.references import Look, References
from velo_dagster.engine.refresh.append import append
from velo_dagster.engine.refresh.full import full
from velo_dagster.engine.refresh.groups import groups
from velo_dagster.engine.refresh.merge import merge
from velo_dagster.engine.refresh.once import once
from velo_dagster.engine.refresh.rows import mapped
from velo_dagster.engine.refresh.work import SMALL, Work, Write
from velo_dagster.engine.report import LoadReport, Outcome, Steps
from velo_dagster.engine.scale import size_of
from velo_dagster.engine.session import Engine, Session
from velo_dagster.engine.source_load import (
    ATTEMPTS,
    LoadOptions,
    SourceLoad,
    SourceOutcome,
    table_positions,
    told_at_last,
    what_now,
)
from velo_dagster.engine.source_write import keep_late
from velo_dagster.engine.supported import check_supported
from velo_dagster.errors import Transient, VeloError
from velo_dagster.plan.project import PlannedInput, Project, TablePlan
from velo_dagster.sources.contract import Source
from velo_dagster.sources.registry import open_source
from velo_dagster.sql.properties import resolve
from velo_dagster.sql.spark import follows_column_order
from velo_dagster.store.record import Record
from velo_dagster.store.table import Overtaken, Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORAGE = ("compression", "table_model")


@dataclass
class Loader:
    """Loads tables of a project into a warehouse. `say` gets a line for whatever a user may want to follow."""

    project: Project
    warehouse: Warehouse
    engine: Engine
    say: Callable[[str], None] = lambda message: None
    reports: dict[str, LoadReport] = field(default_factory=dict)
    """By table, how its last load by this loader ended."""
    gate: Callable[[str, bool], str] = lambda table, known: ""
    """Why a table that is loaded should not be read nevertheless; empty if it may be. `known`: its newest load was
    read before by the table that asks."""
    progress: Progress = field(default_factory=Progress)
    small: int = SMALL
    """Below so many bytes a table is computed whole, even if it could be computed in parts."""

    @property
    def path(self) -> str:
        """The project as one types it in a shell."""
        return shlex.quote(str(self.project.path))

    def load_all(
        self, tables: Iterable[TablePlan], options: LoadOptions, done: Callable[[LoadReport], None]
    ) -> list[LoadReport]:
        """Load tables in the order given, which must be that of their dependencies; one that fails stops no other."""
        reports = []
        for plan in tables:
            reports.append(self.load(plan, options))
            done(reports[-1])
        return reports

    def load(self, plan: TablePlan, options: LoadOptions) -> LoadReport:
        started, waited = time.monotonic(), 0.0
        self.progress.begins(plan.name)
        sources: list[Source] = []
        try:
            if plan.name in self.project.blocked:
                raise WrongStatement(plan.name, self.project.blocked[plan.name], plan.statement.span, self.path)
            with Session(self.engine, writing(plan)) as session:
                report = TableLoad(self, plan, session, options, sources).run()
                waited = session.start_seconds
        except VeloError as error:
            outcome = Outcome.BLOCKED if isinstance(error, Transient | WrongStatement) else Outcome.FAILED
            report = LoadReport(plan.name, outcome, error=error, ready=False)
        except Exception as error:  # noqa: BLE001 - every failure becomes a report, with its cause
            report = LoadReport(plan.name, Outcome.FAILED, error=as_velo_error(error, plan), ready=False)
        seconds = time.monotonic() - started - waited
        self.reports[plan.name] = replace(report, seconds=seconds, retries=retries_of(sources))
        return self.reports[plan.name]


@dataclass
class TableLoad:
    """One load of one table: the steps share what was found out so far."""

    loader: Loader
    plan: TablePlan
    session: Session
    options: LoadOptions
    sources: list[Source]
    notes: list[str] = field(default_factory=list)
    rows_read: int = 0
    rejected: int = 0
    skipped: int = 0
    ready: bool = True
    refreshed: set[int | None] = field(default_factory=set)
    steps: Steps = field(default_factory=Steps)

    def run(self) -> LoadReport:
        check_supported(self.plan)
        check_nothing_goes(self.loader.project, self.loader.warehouse, self.plan, self.options, self.loader.path)
        if reads_source_directly(self.plan):
            report = self._report_source(self._load_source(self._target(), self.plan.inputs[0], None))
        else:
            report = self._through_tables()
        if self.options.accept_loss and report.version is not None:
            forget_others(self.loader.warehouse, self.plan)
        if report.version is not None:
            with self.steps.timed("maintenance"):
                maintain(self._target(), report.load, self.session, self._note)
        steps = {"start": self.session.start_seconds, **self.steps.seconds}
        return replace(report, notes=(*report.notes, *self.notes), skipped=self.skipped, steps=steps)

    def _load_source(self, target: Table, planned: PlannedInput, landing: int | None) -> SourceOutcome:
        # A landing that was refreshed in full is what was asked for, also if its table has to start again.
        full = self.options.full_refresh and landing not in self.refreshed
        with told_at(planned.span):
            result = self.source_load(target, planned, landing).run(
                self.session, replace(self.options, full_refresh=full)
            )
        self.refreshed.add(landing)
        self.skipped += result.skipped
        return result

    def _target(self) -> Table:
        return self.loader.warehouse.table(self.plan.name)

    def _note(self, message: str) -> None:
        self.notes.append(message)
        self.loader.say(f"{self.plan.name}: {message}")

    def _pass_on(self, result: SourceOutcome) -> None:
        for note in result.notes:
            self._note(note)

    def source_load(self, target: Table, planned: PlannedInput, landing: int | None) -> SourceLoad:
        """The load of one source, into the table itself or into a landing of it."""
        statement = self.plan.statement
        ordered = follows_column_order(statement.query)
        types = declared_types(self.plan)
        source = open_source(planned, self.loader.project.root, types)
        self.sources.append(source)
        for warning in source.warnings:
            self._note(warning)

        def select(spark: SparkSession, rows: DataFrame, system: Sequence[str]) -> DataFrame:
            return storable(rows) if landing is not None else output(mapped(spark, statement, rows, system), statement)

        return SourceLoad(
            table=self.plan.name,
            target=target,
            rejected=self.loader.warehouse.rejected(self.plan.name),
            source=source,
            fingerprint=table_fingerprint(self.plan) if landing is None else landing_fingerprint(self.plan, planned),
            mapped=select,
            system_columns=planned.system_columns,
            commit_point="commit" if landing is None else "landing-commit",
            filters=landing is None and statement.query.tree.args.get("where") is not None,
            ordered=landing is None or ordered,
            declared=frozenset(column.name.lower() for column in statement.columns if landing is None),
            note=self._note,
            project=self.loader.path,
            steps=self.steps,
            progress=self.loader.progress,
        )

    def _report_source(self, result: SourceOutcome) -> LoadReport:
        self._pass_on(result)
        if result.record is None or result.outcome in (Outcome.NO_ROWS, Outcome.UNCHANGED):
            ready = result.record is not None and result.record.ready
            return LoadReport(self.plan.name, result.outcome, ready=ready)
        return _report(self.plan, result.outcome, result.record, result.rows_read)

    def _through_tables(self) -> LoadReport:
        """Bring the inputs to their ends and refresh; all of it again, a few times, if another run is first."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self._once()
            except Overtaken as overtaken:
                self._note(f"{overtaken.what} {what_now(self.options)}")
        with told_at_last():
            return self._once()

    def _once(self) -> LoadReport:
        target = self._target()
        self.rejected, self.ready = 0, True
        load = target.last_load() + 1
        record = None if self.options.full_refresh else target.record()
        own = landings(self.loader.warehouse, self.plan)
        positions = table_positions(record)
        look = References(self.loader, self.plan, positions, self._note).when_ready()
        inputs = [
            self._input(number, planned, own.get(number), positions.get(planned.name), look)
            for number, planned in enumerate(self.plan.inputs)
        ]
        missing = [planned for planned, one in zip(self.plan.inputs, inputs, strict=True) if one is None]
        if missing:
            self._note(f"no rows yet in {', '.join(planned.label for planned in missing)}")
            return LoadReport(self.plan.name, Outcome.NO_ROWS, ready=False)
        present = [one for one in inputs if one is not None]
        restart = self._restart(record)
        followed = followed_inputs(self.plan, record)
        if not restart and all(one.unchanged for one in present if one.name in followed):
            return LoadReport(self.plan.name, Outcome.UNCHANGED)
        stay = record is not None and record.filled > 0 and not restart
        check_defaults(self.plan, present, self.session, were_filled=stay)
        number = load if record is None else record.load + 1
        return in_either_form(lambda wide: self._refresh(target, number, record, present, restart, wide=wide))

    def _restart(self, record: Record | None) -> str:
        if self.options.full_refresh:
            return "full refresh"
        if record is None:
            return "first load"
        return "" if record.fingerprint == table_fingerprint(self.plan) else "the statement changed"

    def _input(
        self, number: int, planned: PlannedInput, landing: Table | None, since: Mapping[str, Any] | None, look: Look
    ) -> TableInput | None:
        """The input at its end: a table as it is, a source through its landing; None while it has no rows."""
        if landing is not None:
            table = landing
            result = self._load_source(table, planned, number)
            self.rows_read += result.rows_read
            self._pass_on(result)
            record = result.record
            if record is None:
                return None
            if result.outcome is not Outcome.UNCHANGED:
                with self.steps.timed("maintenance"):
                    maintain(table, record.load, self.session, self._note)
            self.ready = self.ready and record.ready
            self.rejected += sum(record.rejects.values())
        else:
            assert planned.table is not None
            if planned.name in look.without:
                place = (self.loader.project, self.loader.warehouse, self.session, self.plan)
                return missing_input(*place, planned, look.without[planned.name], since)
            table = self.loader.warehouse.table(planned.table)
            record = look.ready[planned.name]
        return TableInput.at_end(planned, table, record, since)

    def _refresh(
        self,
        target: Table,
        load: int,
        record: Record | None,
        inputs: Sequence[TableInput],
        restart: str,
        *,
        wide: bool,
    ) -> LoadReport:
        spark = self.session.spark
        self.session.scale(size_of([target, *(one.table for one in inputs)]).settings())
        stays = joins_once(self.plan, record) or bool(filled(inputs))
        self.loader.progress.doing = f"computing by {self.plan.refresh.method}"
        work = Work(self.plan, target, inputs, spark, restart, stays, self.loader.small, wide)
        try:
            with self.steps.timed("changes"), explaining(self.plan, inputs):
                write = self.write(work)
            made = self._commit(work, load, record, write)
        finally:
            work.release()
        outcome = Outcome.BULK if record is None else Outcome.INCREMENT
        report = _report(self.plan, outcome, made, max(self.rows_read, write.rows_read))
        for note in exemptions(self.loader.warehouse, self.plan, made):
            self._note(note)
        return replace(report, rejected=self.rejected)

    def _commit(self, work: Work, load: int, record: Record | None, write: Write) -> Record:
        """Step 4. Late rows that are kept aside are written first: they count once the commit names their attempt."""
        attempt, rejects = uuid.uuid4().hex, {}
        if write.late is not None:
            kept = self.loader.warehouse.rejected(self.plan.name)
            rejects = keep_late(kept, work.spark, write.late, attempt, record)
            self.rejected += sum(rejects.values())
        before = 0 if record is None or work.restart else record.filled
        new = Record(
            load=load,
            attempt=attempt,
            kind="load",
            mode="bulk" if record is None else "increment",
            method=write.method,
            reason=write.reason,
            fingerprint=table_fingerprint(self.plan),
            positions={one.name: one.position for one in work.inputs},
            rejects=rejects,
            ready=self.ready,
            missing={one.name: one.missing.how for one in work.inputs if isinstance(one, MissingInput)},
            filled=before + write.filled,
        )
        crash_point("before-commit")
        with self.steps.timed("commit"):
            made = work.target.commit(work.spark, new, write.run)
        crash_point("after-commit")
        return made

    def write(self, work: Work) -> Write:
        method = self.plan.refresh.method
        if work.once:
            return once(work)
        if method == "append":
            return append(work)
        if method == "merge":
            return merge(work)
        if method == "groups":
            return groups(work)
        return full(work, work.restart or self.plan.refresh.reason)


def _report(plan: TablePlan, outcome: Outcome, made: Record, rows_read: int) -> LoadReport:
    return LoadReport(
        table=plan.name,
        outcome=outcome,
        method=made.method,
        reason=made.reason,
        load=made.load,
        version=made.version,
        rows_read=rows_read,
        rows_changed=made.rows_changed,
        rejected=sum(made.rejects.values()),
        ready=made.ready,
    )


def retries_of(sources: Iterable[Source]) -> dict[str, Mapping[str, Any]]:
    """What was counted while waiting, of those sources that did not answer at once."""
    return {source.label: source.tries() for source in sources if source.tries().get("retries")}


def writing(plan: TablePlan) -> dict[str, str]:
    """How the table's files are written, as its `compression` and `table_model` say."""
    given = {key: value for key, value in plan.statement.properties.items() if key in STORAGE}
    properties = resolve("table", given, where=plan.statement.span)
    codec = properties["compression"] or ("zstd" if properties["table_model"] == "compact" else "snappy")
    return {"spark.sql.parquet.compression.codec": codec}
