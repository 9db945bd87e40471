"""One source's rows, mapped row by row, into one table: an append table, or the landing of another table.

The schema is a guess from a sample until the read has proved it: every value that does not fit ends the read, then all
of the scan is surveyed and read again with the least types that hold it. A type that widens, or a row that went, starts
the table over from what the source still has, so that it is the same as if all had been read at once. A column that
comes to stand before others makes the table be written again from its own rows.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from velo_dagster.crash import crash_point
from velo_dagster.engine.errors import WouldLose
from velo_dagster.engine.progress import Progress
from velo_dagster.engine.refresh.work import COLUMNS_MOVED
from velo_dagster.engine.report import Outcome, Steps
from velo_dagster.engine.scale import size_of
from velo_dagster.engine.session import Session
from velo_dagster.engine.source_write import Batch, Mapped
from velo_dagster.sources.contract import Field, Position, Scan, Schema, Source
from velo_dagster.sources.errors import BadRows, SourceChanged
from velo_dagster.sources.evolution import admitted
from velo_dagster.sql.names import not_own
from velo_dagster.store.record import Record, UnreadablePositions
from velo_dagster.store.table import Overtaken, Table, TidiedUp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = "source"
FULL_REFRESH = "full refresh"
EMPTIED = "nothing was left of what it held"
CHANGED = "the statement or its source changed"
COMMITTED = "Load again: until then the table may hold rows of the file as it became."
ATTEMPTS = 5
SLICE_RECORDS = 1_000_000


@dataclass(frozen=True)
class LoadOptions:
    """What one load may do; the defaults are those of a plain `velo-dagster load`."""

    full_refresh: bool = False
    accept_loss: bool = False
    max_records: int | None = None


def position_of(record: Record | None) -> Position | None:
    """Up to where a load of one source has read it; None if the load is one that reads tables.

    By the schema, which only a load of a source records: a table may also read another that is called `source`.
    """
    return record.positions[SOURCE] if record is not None and record.schema else None


def table_positions(record: Record | None) -> Mapping[str, Position]:
    """Up to where a load has read tables, landings included, by the names of its inputs."""
    return {} if record is None or record.schema else record.positions


def what_now(options: LoadOptions) -> str:
    """What a run does that another has overtaken. A full refresh that was asked for is made, whatever others load."""
    return "Starting the full refresh again." if options.full_refresh else "Loading what is still new."


@contextmanager
def told_at_last() -> Iterator[None]:
    """The last try of several: what fails each time by itself is told, not that other runs were also at work."""
    try:
        yield
    except TidiedUp as tidied:
        raise tidied.failure from tidied.__cause__


@dataclass(frozen=True)
class SourceLoad:
    """Everything a load of a source needs to know about its table."""

    table: str
    target: Table
    rejected: Table
    source: Source
    fingerprint: str
    mapped: Mapped
    system_columns: Sequence[str]
    commit_point: str
    filters: bool = True
    """`mapped` may leave out rows."""
    ordered: bool = True
    """The order of the source's columns shows in the table, or in one that is made of it."""
    declared: frozenset[str] = frozenset()
    """Columns that the statement declares; if the source has none of these names, it has them by place."""
    note: Callable[[str], None] = lambda message: None
    project: str = "."
    steps: Steps = field(default_factory=Steps)
    progress: Progress = field(default_factory=Progress)

    def run(self, session: Session, options: LoadOptions) -> SourceOutcome:
        """Load what is new. A bulk load bounded in time is cut into slices, each a load, until its time is up."""
        started = time.monotonic()
        result = self._once(session, options)
        seconds = self.source.bounds.bulk_seconds
        while seconds is not None and result.unfinished and time.monotonic() - started < seconds:
            before, result = result, self._once(session, replace(options, full_refresh=False))
            read, skipped = before.rows_read + result.rows_read, before.skipped + result.skipped
            result = replace(result, rows_read=read, skipped=skipped, outcome=before.outcome)
        return result

    def _once(self, session: Session, options: LoadOptions) -> SourceOutcome:
        return self.source.patiently(lambda: self._attempts(session, options), self.note)

    def _attempts(self, session: Session, options: LoadOptions) -> SourceOutcome:
        """One load. If the source changes while it is read, or another run is first, all is done again, a few times."""
        for _ in range(ATTEMPTS - 1):
            try:
                return _Attempt(self, session, options).run()
            except SourceChanged as changed:
                self.note(f"{changed.what} Reading it again.")
            except Overtaken as overtaken:
                self.note(f"{overtaken.what} {what_now(options)}")
        with told_at_last():
            return _Attempt(self, session, options).run()

    def bound(self, options: LoadOptions, *, bulk: bool) -> int | None:
        """How many records one load may take."""
        bounds = self.source.bounds
        asked = bounds.bulk_records if bulk else bounds.incremental_records
        if bulk and asked is None and bounds.bulk_seconds is not None:
            asked = SLICE_RECORDS
        return asked if options.max_records is None else options.max_records


@dataclass(frozen=True)
class SourceOutcome:
    outcome: Outcome
    record: Record | None
    rows_read: int = 0
    notes: tuple[str, ...] = ()
    skipped: int = 0
    """Bad rows that were left out (LogAndContinue)."""

    @property
    def unfinished(self) -> bool:
        """A bulk load that a bound has cut."""
        return self.record is not None and not self.record.ready and self.outcome is not Outcome.UNCHANGED


@dataclass
class _Attempt:
    """One try at one load: the steps share what was found out so far."""

    job: SourceLoad
    session: Session
    options: LoadOptions
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    load: int = 0
    since: Position | None = None
    schema: Schema = ()
    had: frozenset[str] | None = None
    """The table's columns, in lower case, unless it is made anew, by the user's word: any others are new."""
    mode: str = "bulk"
    method: str = "append"
    reason: str = "first load"

    def run(self) -> SourceOutcome:
        crash_point("before-end")
        record = self._start()
        bulk = record is None or self.since is None or not record.ready
        bound = self.job.bound(self.options, bulk=bulk)
        with self.job.steps.timed("end"):
            until = self.job.source.end(self.since, bound)
            goal = self._goal(record, bound)
        crash_point("after-end")
        scan = self.job.source.scan(self.since, until)
        if record is not None and self._nothing_new(record, scan, until):
            return SourceOutcome(Outcome.UNCHANGED, record, notes=self._notes())
        if self.since is not None and scan.removed is not None:
            scan = self._without_removed(scan, until)
        return self._read_and_commit(record, scan, until, goal)

    def _start(self) -> Record | None:
        """Step 1: the committed load and positions; none, or reasons to start over, make this a bulk load."""
        self.load = self.job.target.last_load() + 1
        if self.options.full_refresh:
            self._start_over(FULL_REFRESH, self._delivered())
            return None
        record = self.job.target.record()
        if record is not None:
            self.load = record.load + 1
        if record is not None and record.fingerprint == self.job.fingerprint:
            self.had = frozenset(column.name.lower() for column in _schema(record))
            if not self.job.source.increments:
                self._start_over("its source can't load increments", None)
                return record
            self.mode, self.reason = "increment", "only new rows"
            self.since = position_of(record)
        elif record is not None:
            self._start_over(CHANGED, position_of(record))
        return record

    def _nothing_new(self, record: Record, scan: Scan, until: Position) -> bool:
        if self.since is not None:
            return scan.empty and not self._arrived(record, until)
        return record.fingerprint == self.job.fingerprint and until == position_of(record)

    def _arrived(self, record: Record, until: Position) -> bool:
        """Whether a bounded bulk load has reached its goal without another row, which its table must get to know."""
        return not record.ready and record.goal is not None and self.job.source.reached(until, record.goal)

    def _delivered(self) -> Position | None:
        """What a full refresh must be able to deliver again; unknown positions are a loss that wants to be accepted."""
        try:
            record = self.job.target.record(trusting=True)
        except UnreadablePositions:
            if not self.options.accept_loss:
                raise
            return None
        return position_of(record)

    def _start_over(self, reason: str, position: Position | None) -> None:
        """Read everything again, if the source still has all of it, or a full refresh accepts the loss."""
        lost = self.job.source.lost(position) if position is not None else ()
        if lost and not (self.options.full_refresh and self.options.accept_loss):
            raise WouldLose(self.job.table, self.job.source.label, reason, lost, self.job.project)
        self.since, self.schema, self.method, self.reason = None, (), "full", reason

    def _goal(self, record: Record | None, bound: int | None) -> Position | None:
        """Where a bounded bulk load must get to before the table is ready: the end when its first load began."""
        if record is not None and self.since is not None:
            return record.goal
        return None if bound is None else self.job.source.end(None)

    def _without_removed(self, scan: Scan, until: Position) -> Scan:
        """Rows went or were replaced: start over if that is possible, else take them out where they are."""
        if self.job.source.lost(until):
            self.method, self.reason = "replace", "rows were replaced in the source"
            return scan
        self._start_over("rows were replaced or removed in the source", None)
        return self.job.source.scan(None, until)

    def _whole_end(self, until: Position) -> Position:
        """The end to start over to. A bound may have left files at content that is no longer there: then, the end."""
        bounded = self.job.bound(self.options, bulk=False) is not None
        return self.job.source.end(None) if bounded else until

    def _read_and_commit(
        self, record: Record | None, scan: Scan, until: Position, goal: Position | None
    ) -> SourceOutcome:
        known: Schema = _schema(record) if record is not None and self.since is not None else ()
        with self.job.steps.timed("schema"):
            self.schema, proven = self._admitted(self.job.source.schema(scan, known)), False
            if known and self.since is not None and self.job.source.is_empty(self.since):
                # No row is left that has the known types: what comes now is as if it were the first.
                alone = self._admitted(self.job.source.schema(scan, ()))
                if alone != self.schema:
                    self._start_over(EMPTIED, None)
                    known, scan, self.schema = (), self.job.source.scan(None, until), alone
        if not self.schema and not scan.empty:
            # There is something, and no record in the sample: only a look at all of it tells whether all are bad.
            self.schema, proven = self._surveyed(scan, known), True
        if not self.schema and record is not None:
            # The source was emptied: the table keeps its columns and loses its rows.
            self.schema = _schema(record)
        while self.schema:
            changed = _widened(known, self.schema) or self._declared_moved(known) or self._took_over(known)
            if changed:
                self._start_over(changed, until)
                until = self._whole_end(until)
                known, scan = (), self.job.source.scan(None, until)
                self.schema, proven = self._surveyed(scan, known), True
            try:
                with self.job.progress.reads(self.job.source, scan.bytes):
                    return self._commit(record, scan, until, goal)
            except (Overtaken, SourceChanged):
                raise
            except Exception:
                self.job.source.verify(scan, until)
                guess, self.schema = self.schema, self._surveyed(scan, known)
                if proven or self.schema == guess:
                    raise
                proven = True
        return SourceOutcome(Outcome.NO_ROWS, record, notes=self._notes())

    def _declared_moved(self, known: Schema) -> str:
        """Why declared columns are no longer those columns of the source that the committed rows have them from."""
        before, now = ([column.name.lower() for column in one] for one in (known, self.schema))
        by_name = self.job.declared.intersection(now)
        return "" if by_name or not self.job.declared or now[: len(before)] == before else COLUMNS_MOVED

    def _took_over(self, known: Schema) -> str:
        """Why committed rows no longer have the system columns that they have: the source has such a column itself."""
        before, now = (
            not_own(self.job.system_columns, (column.name for column in one)) for one in (known, self.schema)
        )
        own = [name for name in before if known and name not in now]
        return f"the source has a column {' and '.join(own)} of its own now" if own else ""

    def _surveyed(self, scan: Scan, known: Schema) -> Schema:
        """The least types that hold all of the scan, or the bad rows that forbid it."""
        spark = self.session.spark
        with self.job.steps.timed("survey"):
            survey = self.job.source.survey(spark, scan, known)
        if survey.bad_count and not self.job.source.marks_bad_rows:
            raise BadRows(self.job.source.label, survey.bad_rows, survey.bad_count)
        return self._admitted(survey.schema)

    def _admitted(self, schema: Schema) -> Schema:
        """The columns that `schema.evolution` lets in, also where all rows are read anew."""
        return schema if self.had is None else admitted(schema, self.had, self.job.source.evolution)

    def _commit(self, record: Record | None, scan: Scan, until: Position, goal: Position | None) -> SourceOutcome:
        target = self.job.target
        self.session.scale(size_of([target]).settings())
        system = not_own(self.job.system_columns, (column.name for column in self.schema))
        batch = Batch(self.session.spark, self.job.source, scan, self.schema, system)
        rejects = self._rejects(record, batch)
        anew = self.since is None
        rows, observation = batch.rows(self.job.mapped, all_written=anew and not self.job.filters)
        method, reason = self.method, self.reason
        all_rows = self._in_new_order(record, batch, rows)
        if all_rows is not None:
            rows, method, reason = all_rows, "full", COLUMNS_MOVED
        ready = goal is None or self.job.source.reached(until, goal)
        new = Record(
            load=self.load,
            attempt=self.id,
            kind="load",
            mode=self.mode,
            method=method,
            reason=reason,
            fingerprint=self.job.fingerprint,
            positions={SOURCE: until},
            schema=tuple((column.name, column.type) for column in self.schema),
            rejects=rejects,
            ready=ready,
            goal=None if ready else goal,
        )
        crash_point(f"before-{self.job.commit_point}")
        with self.job.steps.timed("commit" if self.job.commit_point == "commit" else "landing"):
            made = target.commit(self.session.spark, new, lambda: batch.write(rows, target, method, anew=anew))
        crash_point(f"after-{self.job.commit_point}")
        self._verify_committed(scan, until)
        self.job.source.acknowledge(until)
        crash_point("after-acknowledge")
        read, skipped = batch.counted(observation, made, self.job.note)
        outcome = Outcome.BULK if self.mode == "bulk" else Outcome.INCREMENT
        return SourceOutcome(outcome, made, read, self._notes(), skipped)

    def _verify_committed(self, scan: Scan, until: Position) -> None:
        """For readers that can't look by themselves whether what they read still is what the position says.

        Its rows are committed under a position that the source has left, so whatever load comes next replaces them. In
        a landing nobody sees them before.
        """
        try:
            self.job.source.verify(scan, until)
        except SourceChanged as changed:
            if self.job.commit_point == "commit":
                raise changed.advising(COMMITTED, *changed.steps[1:]) from changed
            raise

    def _notes(self) -> tuple[str, ...]:
        return tuple(self.job.source.notes())

    def _rejects(self, record: Record | None, batch: Batch) -> dict[str, int]:
        """Bad rows first, under this attempt's id: they count only once the table's own commit names the attempt.

        Where rows of the source are replaced, what is left of the earlier bad rows goes with the new ones.
        """
        earlier = dict(record.rejects) if record is not None and self.since is not None else {}
        if not self.job.source.keeps_bad_rows:
            return earlier
        taken_over = earlier if batch.scan.removed is not None else {}
        kept = {} if taken_over else earlier
        count = batch.reject(self.job.rejected, self.id, taken_over)
        return kept | {self.id: count} if count else kept

    def _in_new_order(self, record: Record | None, batch: Batch, rows: DataFrame) -> DataFrame | None:
        """All rows of the table, if an increment moves columns that are seen."""
        if record is None or self.since is None or not self.job.ordered:
            return None
        held = self.job.target.snapshot(self.session.spark, record.version)
        # In a landing nobody sees where they stand; a table has them where its SELECT says.
        return batch.in_new_order(rows, held, () if self.job.commit_point == "commit" else batch.system_columns)


def _schema(record: Record) -> Schema:
    return tuple(Field(name, type_) for name, type_ in record.schema)


def _widened(known: Schema, schema: Schema) -> str:
    """Why the committed rows no longer have the types they would have if all had come at once; empty if they have."""
    # A column is the same in whatever case a file spells it.
    now: dict[str, Any] = {column.name.lower(): column.type for column in schema}
    changed = [(column, now[column.name.lower()]) for column in known if column.name.lower() in now]
    return "; ".join(
        f"column {column.name} became {type_} (was {column.type or 'only NULLs'})"
        for column, type_ in changed
        if type_ != column.type
    )
