"""Takes a history through real loads; after each step every table is what one load of the same files gives."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Play
from tests.kills import Killed, armed
from tests.reload.history import History, Step
from tests.reload.oracle import answers, comparable
from tests.reload.statements import Statement
from velo_dagster.engine.refresh import groups
from velo_dagster.engine.report import LoadReport
from velo_dagster.engine.session import Engine
from velo_dagster.errors import Transient

BEYOND = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "DECIMAL_PRECISION_EXCEEDS", "too many digits")
"""What a statement of the grammar may fail with: a sum that no type holds. It must then fail in both ways."""


class Difference(AssertionError):
    """A table that is not what it should be after a step."""

    def __init__(self, step: int, table: str, what: str) -> None:
        super().__init__(f"after step {step}, table {table}: {what}")
        self.step, self.table = step, table


@dataclass
class Outcome:
    """What was tried: loads by their methods, tables that were compared with a reload and with DuckDB, failed loads."""

    methods: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    with_duckdb: int = 0
    failed: int = 0
    killed: int = 0

    def __str__(self) -> str:
        methods = ", ".join(f"{method or 'unchanged'} {count}" for method, count in sorted(self.methods.items()))
        return (
            f"{self.compared} tables compared, {self.with_duckdb} of them with DuckDB too ({methods}); "
            f"{self.failed} loads failed as a reload does; {self.killed} were killed"
        )


def run(history: History, folder: Path, engine: Engine) -> Outcome:
    """Raises a `Difference` where there is one."""
    play = Play(folder, engine)
    play.write("t.sql", history.sql)
    outcome, reload = Outcome(), Reload(play)
    for number, step in enumerate(history.steps):
        _change(play, step)
        reports = _load(play, step, outcome)
        reloaded = _checked(reload.made(number, step))
        _compare(play, reload, history.statements, number, (reports, reloaded), outcome)
    return outcome


class Reload:
    """One load of the files as they are, into a warehouse that is new at each step. A table none of whose files changed
    since the step before is taken over from the warehouse of that step: it was loaded there from nothing."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._tables = play.project().tables
        self._failed: set[str] = set()
        self.fresh = play

    def made(self, number: int, step: Step) -> Mapping[str, LoadReport]:
        changed = self._changed(step) if number else {plan.name for plan in self._tables}
        before, self.fresh = self.fresh, Play(self._play.folder, self._play.engine, f"reload-{number}")
        for path in (before.folder / before.warehouse).iterdir() if number else ():
            if path.name.partition("__")[0] not in changed:
                shutil.copytree(path, self.fresh.folder / self.fresh.warehouse / path.name)
        if number:
            shutil.rmtree(before.folder / before.warehouse)
        reports = self.fresh.load(*changed) if changed else {}
        self._failed = {name for name, report in reports.items() if report.error is not None}
        return reports

    def _changed(self, step: Step) -> set[str]:
        """Tables that read a file that changed, or another such table; and those that failed, which were never made."""
        folders = {name.partition("/")[0] for name in step.files}
        found = set(self._failed)
        for plan in self._tables:
            read = [one.table if one.table is not None else one.label for one in plan.inputs]
            if any(one in found or any(f"{folder}/" in one for folder in folders) for one in read):
                found.add(plan.name)
        return found


def _change(play: Play, step: Step) -> None:
    for name, text in step.files.items():
        if text is None:
            (play.folder / name).unlink(missing_ok=True)
        else:
            play.write(name, text)


def _load(play: Play, step: Step, outcome: Outcome) -> Mapping[str, LoadReport]:
    play.small = step.small
    with pytest.MonkeyPatch.context() as patch:
        if not step.small:
            # Then a table that was computed anew is compared with what it was, too, however large it is beside others.
            patch.setattr(groups, "LITTLE", 1)
        return _loaded(play, step, outcome)


def _loaded(play: Play, step: Step, outcome: Outcome) -> Mapping[str, LoadReport]:
    for bound in step.bounds:
        _checked(play.load(max_records=bound))
    if step.killed is not None:
        try:
            with armed(*step.killed):
                _checked(play.load())
        except Killed:
            outcome.killed += 1
    if step.full:
        _checked(play.load(*step.full, full_refresh=True))
    reports = play.load()
    outcome.methods.update(report.method for report in reports.values())
    return _checked(reports)


def _checked(reports: Mapping[str, LoadReport]) -> Mapping[str, LoadReport]:
    """Loads may wait for others, and sums may be too large; anything else is a fault of the statement or of ours."""
    for report in reports.values():
        error = report.error
        if error is not None and not isinstance(error, Transient) and not any(word in str(error) for word in BEYOND):
            raise error
    return reports


def _compare(
    play: Play,
    reload: Reload,
    statements: Sequence[Statement],
    number: int,
    runs: tuple[Mapping[str, LoadReport], Mapping[str, LoadReport]],
    outcome: Outcome,
) -> None:
    """`runs`: what the last load reported, and what the reload did."""
    unknown = _unknown(play, *runs)
    told = [one for one in statements if one.name not in unknown]
    for one in statements:
        ours, theirs = (_failure(reports.get(one.name)) for reports in runs)
        if unknown.get(one.name) == one.name and ours != theirs:
            raise Difference(number, one.name, f"the load: {ours or 'well'}; a reload: {theirs or 'well'}")
    outcome.failed += sum(table == cause for table, cause in unknown.items())
    asked = answers(play.folder, told)
    for one in told:
        ours, theirs = (which.table(one.name) for which in (play, reload.fresh))
        _same(number, one.name, exact_rows(ours), exact_rows(theirs), "a reload")
        outcome.compared += 1
        if one.name in asked:
            names = list(one.columns or ())
            rows = [tuple(row[name] for name in names) for row in ours.to_pylist()]
            _same(number, one.name, comparable(one, rows), asked[one.name], "DuckDB")
            outcome.with_duckdb += 1


def _failure(report: LoadReport | None) -> str:
    return "" if report is None or report.error is None else type(report.error).__name__


def _unknown(play: Play, *runs: Mapping[str, LoadReport]) -> dict[str, str]:
    """Tables that can't be compared, each with the table whose failed load is the cause."""
    found: dict[str, str] = {}
    for plan in play.project().tables:
        errors = [reports[plan.name].error for reports in runs if plan.name in reports]
        failed = any(one is not None and not isinstance(one, Transient) for one in errors)
        inherited = [found[one.table] for one in plan.inputs if one.table is not None and one.table in found]
        if inherited:
            found[plan.name] = inherited[0]
        elif failed:
            found[plan.name] = plan.name
    return found


def _same(step: int, table: str, ours: Counter, theirs: Counter, whose: str) -> None:
    if ours != theirs:
        only = [sorted(map(str, rows.elements()))[:8] for rows in (ours - theirs, theirs - ours)]
        raise Difference(step, table, f"only in the table: {only[0]}; only in {whose}: {only[1]}")


def exact_rows(table: Any) -> Counter[tuple]:
    """Rows with their multiplicities; NaN is NaN, and -0.0 is not 0.0."""
    names = sorted(table.column_names)
    return Counter(tuple(map(_exact, row.values())) for row in table.select(names).to_pylist())


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else (value, struct.pack("<d", value).hex())
    return value
