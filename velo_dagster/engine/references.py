"""Tables that a load reads: it begins when all of them are ready, or as its statement says where one is not.

A table is ready once its first load is complete, which only a commit in its own log can say, and while its blocking
checks pass. A newer load that failed has changed nothing: what was committed before is still what the table holds, so
it is read, and the reader records which version that was. A table that was read before never counts as missing: without
it rows would go that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from velo_dagster.engine.errors import NotReady
from velo_dagster.engine.patience import patience_of
from velo_dagster.engine.report import Outcome
from velo_dagster.plan.project import PlannedInput, TablePlan
from velo_dagster.plan.references import Missing, missing_of
from velo_dagster.sources import retry
from velo_dagster.sql.columns import takes_columns_as_they_are
from velo_dagster.store.record import Record

if TYPE_CHECKING:
    from velo_dagster.engine.load import Loader


@dataclass(frozen=True)
class Look:
    """How the tables stand that a load reads: ready ones with their newest load, those it does without, and others."""

    ready: Mapping[str, Record]
    without: Mapping[str, Missing]
    away: tuple[NotReady, ...]

    def __str__(self) -> str:
        """
        >>> str(Look({}, {}, ()))
        'all tables are ready'
        """
        total = len(self.ready) + len(self.without) + len(self.away)
        if not self.away and not self.without:
            return "all tables are ready"
        told = f"{len(self.ready)} of {total} tables ready"
        told += f" ({', '.join(self.ready)})" if self.ready else ""
        told += f", going on without {', '.join(self.without)}" if self.without else ""
        return told + (f", waiting for {', '.join(one.needs for one in self.away)}" if self.away else "")


@dataclass(frozen=True)
class References:
    """The tables that one load reads. `read`: up to where it has read them before."""

    loader: Loader
    plan: TablePlan
    read: Mapping[str, Mapping[str, Any]]
    note: Callable[[str], None]
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def when_ready(self) -> Look:
        """All tables once they are ready, waited for as the statement's `wait.timeout` says.

        Not if one of them must not be waited for, or if this very run has tried to load it.
        """
        look = self._look()
        if look.away:
            hopeless = [one for one in look.away if one.needs in self.loader.reports or self._fails(one)]
            if hopeless:
                raise hopeless[0]
            policy = patience_of(self.plan.statement)
            look = retry.call(self._insisting, policy, waiting_for="tables", only=(NotReady,), on_wait=self._waits)
        for planned in self._tables():
            self._tell_failed(planned, look)
        return look

    def _tables(self) -> list[PlannedInput]:
        return [one for one in self.plan.inputs if one.table is not None]

    def _fails(self, error: NotReady) -> bool:
        return any(missing_of(one).how == "fail" for one in self._tables() if one.table == error.needs)

    def _insisting(self) -> Look:
        look = self._look()
        if look.away:
            raise look.away[0]
        return look

    def _waits(self, error: NotReady, seconds: float) -> None:
        stands = self.loader.progress.doing
        self.note(f"{error.what} {stands[:1].upper()}{stands[1:]}. Looking again in {seconds:g} s.")

    def _look(self) -> Look:
        ready: dict[str, Record] = {}
        without: dict[str, Missing] = {}
        away: list[NotReady] = []
        for planned in self._tables():
            try:
                ready[planned.name] = self._record(planned)
            except NotReady as error:
                missing = missing_of(planned)
                if missing.goes_on and not self._was_read(planned):
                    without[planned.name] = missing
                else:
                    away.append(error)
        look = Look(ready, without, tuple(away))
        if self._tables():
            self.loader.progress.stands(str(look), self.since if away else None)
        return look

    def _was_read(self, planned: PlannedInput) -> bool:
        return bool(self.read.get(planned.name, {}).get("id"))

    def _record(self, planned: PlannedInput) -> Record:
        assert planned.table is not None
        needs = planned.table
        record = self.loader.warehouse.table(needs).record()
        if record is None or not record.ready:
            raise self._not_ready(needs, record, planned)
        before = self.read.get(planned.name, {})
        known = (before.get("id"), before.get("load")) == (record.table_id, record.load)
        if why := self.loader.gate(needs, known):
            remedy = f"Mend what the check found, then load '{needs}'."
            raise NotReady(self.plan.name, needs, why, planned.span, remedy)
        return record

    def _not_ready(self, needs: str, record: Record | None, planned: PlannedInput) -> NotReady:
        """Loading the other table first helps only if this run has not just tried."""
        why = "it was never loaded" if record is None else "its first load is not complete"
        steps = [f"Load it first: velo-dagster load {self.loader.path} --select {needs}"]
        tried = self.loader.reports.get(needs)
        if tried is not None:
            why = f"{why} (in this run: {tried.outcome})"
            steps = [f"What is said about '{needs}' above says what to do; '{self.plan.name}' then follows by itself."]
        if tried is not None and tried.well and record is not None:
            steps = [
                f"Load again: the first load of '{needs}' goes on where it was cut; '{self.plan.name}' follows it."
            ]
        if tried is not None and tried.outcome is Outcome.NO_ROWS:
            steps = self._until_rows_come(self.loader.project.table(needs))
        return NotReady(self.plan.name, needs, why, planned.span, *steps)

    def _until_rows_come(self, empty: TablePlan) -> list[str]:
        """What helps against a table without rows, which is no failure: nothing else is said about it."""
        sources = " and ".join(one.label for one in empty.inputs if one.kind == "source")
        steps = [f"Wait for rows in {sources}: the load that finds them loads '{empty.name}' and '{self.plan.name}'."]
        if not empty.statement.columns and takes_columns_as_they_are(empty.statement):
            steps.append(
                f"Or declare its columns, so that it is created empty: CREATE TABLE {empty.name} (column type, …) AS …"
            )
        return steps

    def _tell_failed(self, planned: PlannedInput, look: Look) -> None:
        tried = self.loader.reports.get(planned.table or "")
        record = look.ready.get(planned.name)
        if tried is not None and not tried.well and record is not None:
            self.note(f"{planned.label} is read as of its load {record.load}; the newest one is {tried.outcome}.")
