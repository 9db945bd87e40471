"""A project in a temporary folder: statements and files go in, tables come out, and are compared as multisets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from velo_dagster.engine.load import Loader
from velo_dagster.engine.refresh.work import SMALL
from velo_dagster.engine.report import LoadReport
from velo_dagster.engine.session import Engine
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.plan.project import Project, load_project
from velo_dagster.store.reader import rejected_rows, to_arrow
from velo_dagster.store.table import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Counter[tuple]
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@dataclass(frozen=True)
class Interpreting:
    """The same Spark, told not to compile each query: for histories of many small loads, a quarter of the time less.

    What it computes is the same; tests that are about a statement's result, and every command, compile as users' do.
    """

    engine: Engine

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        with self.engine.session() as session:
            for key, value in INTERPRETED.items():
                session.conf.set(key, value)
            yield session

    def stop(self) -> None:
        self.engine.stop()


@dataclass
class Play:
    """One project and its warehouse. `load` runs in this process, `command` runs the real CLI in another."""

    folder: Path
    engine: Engine
    warehouse: str = "warehouse"
    environment: dict[str, str] = field(default_factory=dict)
    small: int = SMALL
    """Below so many bytes a load computes tables whole."""

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def append(self, name: str, text: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def project(self) -> Project:
        project = load_project(self.folder)
        errors = [problem for problem in project.problems if problem.severity == "error"]
        assert not errors, errors
        return project

    def load(self, *select: str, **options: Any) -> dict[str, LoadReport]:
        """Load, and return the reports by table; a failure is in its report."""
        project = self.project()
        tables = [plan for plan in project.tables if not select or plan.name in select]
        loader = Loader(project, Warehouse(str(self.folder / self.warehouse)), self.engine, small=self.small)
        reports = loader.load_all(tables, LoadOptions(**options), lambda report: None)
        return {report.table: report for report in reports}

    def loaded(self, *select: str, **options: Any) -> dict[str, LoadReport]:
        """Load, and fail the test if a table could not be."""
        reports = self.load(*select, **options)
        for report in reports.values():
            if report.error is not None:
                raise report.error
        return reports

    def grown(self, sql: str, *steps: Mapping[str, str]) -> None:
        """Statements over files that only grow: each step is what comes at the end of which files, then a load."""
        self.write("t.sql", sql)
        for step in steps:
            for name, text in step.items():
                self.append(name, text)
            self.loaded()

    def table(self, name: str) -> Any:
        return to_arrow(self.folder / self.warehouse / name)

    def rows(self, name: str) -> Rows:
        return multiset(self.table(name))

    def rejected(self, name: str) -> Rows:
        """The bad rows that users are shown: those of loads that the table has committed."""
        table = Warehouse(str(self.folder / self.warehouse)).table(name)
        rows = multiset(rejected_rows(table).drop_columns(["attempt"]))
        return Counter({(Path(place).name, *rest): count for (place, *rest), count in rows.items()})

    def reloaded(self, *select: str) -> Play:
        """The same files loaded in one go into a warehouse of its own: what the promise compares with."""
        fresh = Play(self.folder, self.engine, f"reload-{len(list(self.folder.glob('reload-*')))}")
        fresh.loaded(*select)
        return fresh

    def duckdb(self, query: str) -> Rows:
        """Another engine's answer; `{data}` stands for the project's folder."""
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return multiset(connection.sql(query.replace("{data}", str(self.folder))).arrow())

    def command(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "velo_dagster.cli", *arguments],
            cwd=self.folder,
            env=os.environ | self.environment | dict(environment or {}),
            capture_output=True,
            text=True,
            check=False,
        )


def multiset(table: Any) -> Rows:
    """Rows with their multiplicities; columns by name, numbers by value, so that engines can be compared."""
    table = table.read_all() if hasattr(table, "read_all") else table
    names = sorted(table.column_names)
    return Counter(tuple(plain(row[name]) for name in names) for row in table.select(names).to_pylist())


def plain(value: Any) -> Any:
    """A value that compares equal if two engines mean the same by it; floats to nine significant digits."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | Decimal):
        return Decimal(value).normalize() + 0
    if isinstance(value, float):
        return Decimal(f"{value:.9g}").normalize() + 0 if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, dict):
        return tuple((key, plain(inner)) for key, inner in sorted(value.items()))
    if isinstance(value, list):
        return tuple(plain(inner) for inner in value)
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return value
