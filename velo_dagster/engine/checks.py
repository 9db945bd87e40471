"""Checks of a table as it stands, without loading: what a CI job, Dagster and the command line run alike.

A check that can't be made has failed: a table that was never loaded is not what its SELECT says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from velo_dagster.engine.failures import summary
from velo_dagster.engine.load import Loader
from velo_dagster.engine.query import understand
from velo_dagster.engine.report import count
from velo_dagster.engine.session import Engine, Session, SparkWanted
from velo_dagster.engine.status import OK, TableStatus, table_status
from velo_dagster.engine.verify import CannotTell, compare_with_reload
from velo_dagster.errors import VeloError
from velo_dagster.plan.annotations import SqlCheck
from velo_dagster.plan.project import Project, TablePlan
from velo_dagster.sql.names import quote
from velo_dagster.store.plain_types import NeedsSpark
from velo_dagster.store.query import query as query_without_spark
from velo_dagster.store.reader import open_table
from velo_dagster.store.record import Record
from velo_dagster.store.table import Table, Warehouse

Severity = Literal["WARN", "ERROR"]
EXAMPLES = 5

SOURCE_READY = "source_ready"
KEY_UNIQUE = "key_unique"
ROWS_AS_LOADED = "rows_as_loaded"
NOTHING_REJECTED = "nothing_rejected"
FRESH = "fresh"
EQUALS_RELOAD = "equals_full_reload"


@dataclass(frozen=True)
class Check:
    """One check of one table. A blocking one keeps tables that read this one from being loaded."""

    name: str
    description: str
    severity: Severity
    blocking: bool
    run: Callable[[Standing], Finding]


@dataclass(frozen=True)
class Finding:
    """What a check found, in a sentence; `seen` holds its figures.

    `told`: whether it could be found out; if not, it has not passed, but is no error either.
    """

    passed: bool
    message: str
    seen: Mapping[str, Any] = field(default_factory=dict)
    told: bool = True

    def severity(self, check: Check) -> Severity:
        return check.severity if self.told else "WARN"


@dataclass(frozen=True)
class Standing:
    """A table as checks see it."""

    project: Project
    warehouse: Warehouse
    plan: TablePlan
    engine: Engine

    @property
    def table(self) -> Table:
        return self.warehouse.table(self.plan.name)

    def status(self) -> TableStatus:
        return table_status(self.project, self.warehouse, self.plan)

    def rows(self, sql: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a query over tables; by Spark only where another engine would not give its answer."""
        try:
            return query_without_spark(sql, self.warehouse).to_pylist()
        except NeedsSpark:
            return understand(sql, self.warehouse).run(self.engine).to_pylist()


def checks_of(plan: TablePlan) -> tuple[Check, ...]:
    """The checks that a table has, by its statement alone."""
    found = [
        Check(
            ROWS_AS_LOADED,
            "The table's files hold as many rows as its loads wrote, and nobody else changed it.",
            "ERROR",
            True,
            _rows_as_loaded,
        ),
        Check(NOTHING_REJECTED, "No row of a source was kept aside as bad.", "WARN", False, _nothing_rejected),
    ]
    if plan.statement.keys:
        keys = ", ".join(plan.statement.keys)
        found.insert(0, Check(KEY_UNIQUE, f"({keys}) is unique and never NULL.", "ERROR", True, _key_unique))
    if any(one.kind == "source" for one in plan.inputs):
        found.append(Check(SOURCE_READY, "What the table reads from outside is there.", "WARN", False, _source_ready))
    if plan.annotations.freshness is not None:
        text = f"No row has waited for more than {plan.annotations.freshness:g} s to be loaded."
        found.append(Check(FRESH, text, "WARN", False, _fresh))
    if plan.annotations.verify is not None:
        text = "The table holds what one full load of all that was delivered gives."
        found.append(Check(EQUALS_RELOAD, text, "ERROR", False, _equals_reload))
    return (*found, *(_from_sql(check) for check in plan.annotations.checks))


def run_check(check: Check, standing: Standing) -> Finding:
    """What a check finds. What is wrong with the table or its statement is a failure of the check, never raised."""
    try:
        if standing.table.record() is None:
            return Finding(False, f"{standing.plan.name} was never loaded.")
        return check.run(standing)
    except VeloError as error:
        return Finding(False, str(error))
    except SparkWanted:
        # Whoever has no Spark to give wants to know.
        raise
    except Exception as error:  # noqa: BLE001 - every failure becomes a finding, with its cause
        return Finding(False, f"The check could not be made: {type(error).__name__}: {summary(error)}")


@dataclass(frozen=True)
class BlockingChecks:
    """Keeps a load from reading tables whose blocking checks fail, each load of theirs looked at once.

    One that was read before was looked at then.
    """

    project: Project
    warehouse: Warehouse
    engine: Engine
    found: dict[tuple[str, int], str] = field(default_factory=dict)

    def __call__(self, name: str, known: bool) -> str:
        """Which blocking check of a table fails, and what it says; empty if none does."""
        record = self.warehouse.table(name).record()
        if known or record is None:
            return ""
        key = (name, record.load)
        if key not in self.found:
            self.found[key] = "; ".join(self._failures(name))
        return self.found[key]

    def _failures(self, name: str) -> Iterator[str]:
        standing = Standing(self.project, self.warehouse, self.project.table(name), self.engine)
        for check in (one for one in checks_of(standing.plan) if one.blocking):
            finding = run_check(check, standing)
            if not finding.passed and finding.severity(check) == "ERROR":
                yield f"its check {check.name} fails: {finding.message}"


def _record(standing: Standing) -> Record:
    record = standing.table.record()
    assert record is not None, "run_check looks first"
    return record


def _key_unique(standing: Standing) -> Finding:
    keys = [quote(key) for key in standing.plan.statement.keys]
    named, table = ", ".join(keys), quote(standing.plan.name)
    null = " OR ".join(f"{key} IS NULL" for key in keys)
    missing = standing.rows(f"SELECT COUNT(*) AS n FROM {table} WHERE {null}")[0]["n"]
    twice = standing.rows(
        f"SELECT {named}, COUNT(*) AS velo_rows FROM {table} GROUP BY {named} HAVING COUNT(*) > 1 "
        f"ORDER BY {named} LIMIT {EXAMPLES}"
    )
    seen = {"rows_without_key": missing, "examples": [_shown(row) for row in twice]}
    if not missing and not twice:
        return Finding(True, f"Every row has its own {', '.join(standing.plan.statement.keys)}.", seen)
    wrong = [f"{count(missing, 'row')} without one"] if missing else []
    wrong += [f"several rows with {seen['examples'][0]}"] if twice else []
    return Finding(False, f"The key is not unique: {' and '.join(wrong)}.", seen)


def _rows_as_loaded(standing: Standing) -> Finding:
    record = _record(standing)
    opened = open_table(standing.table.path)
    told, held = opened.count(), opened.dataset().count_rows()
    seen = {"rows": held, "load": record.load, "version": opened.version}
    if told != held:
        return Finding(False, f"The log says {count(told, 'row')}, the files hold {held:,}.", seen)
    return Finding(True, f"{count(held, 'row')} at load {record.load}.", seen)


def _nothing_rejected(standing: Standing) -> Finding:
    rejected = standing.status().rejected
    if rejected:
        shown = f"velo-dagster query 'SELECT * FROM {standing.plan.name}__rejected'"
        return Finding(False, f"{count(rejected, 'bad row')} kept aside: {shown}", {"rejected": rejected})
    return Finding(True, "No bad row was kept aside.", {"rejected": 0})


def _source_ready(standing: Standing) -> Finding:
    """Whether each source is there and may be read. Whether its columns are those of the SELECT, a load finds out."""
    sources = [one for one in standing.status().inputs if one.kind == "source"]
    wrong = [(one.name, one.gone if one.health == OK else one.health) for one in sources]
    told = [f"{name}: {said}" for name, said in wrong if said]
    if told:
        return Finding(False, "\n".join(told))
    return Finding(True, "Every source answers.")


def _fresh(standing: Standing) -> Finding:
    """Rows that wait make a table stale, not the time since it last had a reason to be loaded."""
    allowed = standing.plan.annotations.freshness
    assert allowed is not None
    age = time.time() - _record(standing).at / 1000
    waiting = [f"{one.name} ({one.lag} {one.unit})" for one in standing.status().inputs if one.lag or one.lag is None]
    seen = {"seconds_since_load": round(age, 1), "waiting": waiting}
    if waiting and age > allowed:
        return Finding(False, f"Waiting for {age:.0f} s: {', '.join(waiting)}.", seen)
    return Finding(True, "Nothing has waited too long." if waiting else "Nothing waits.", seen)


def _equals_reload(standing: Standing) -> Finding:
    asked = standing.plan.annotations.verify
    loader = Loader(standing.project, standing.warehouse, standing.engine)
    with Session(standing.engine, {}) as session:
        try:
            found = compare_with_reload(loader, standing.plan, session, asked if isinstance(asked, int) else None)
        except CannotTell as reason:
            return Finding(False, f"Cannot tell: {reason}.", told=False)
    seen = {"rows": found.rows, "too_many": found.extra, "missing": found.missing, "examples": list(found.examples)}
    if found.equal:
        return Finding(True, f"{count(found.rows, 'row')}, as a full reload gives them.", seen)
    wrong = f"{count(found.extra, 'row')} too many, {found.missing:,} missing"
    return Finding(False, f"{wrong}: {'; '.join(found.examples)}", seen)


def _from_sql(check: SqlCheck) -> Check:
    def run(standing: Standing) -> Finding:
        found = standing.rows(check.query.text)
        if not found:
            return Finding(True, "There is no such row.", {"rows": 0})
        examples = [_shown(row) for row in found[:EXAMPLES]]
        message = f"{count(len(found), 'row')}, such as: {examples[0]}"
        return Finding(False, message, {"rows": len(found), "examples": examples})

    return Check(check.name, f"No row of: {check.query.text}", check.severity, check.blocking, run)


def _shown(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in row.items())
