"""Delta tables: one commit per load, exactly once.

Why a load is never lost and never doubled. Let N be the load number a run read from the table before it looked at its
inputs; it commits as N+1 with the token (app `velo`, version N+1).
- Delta refuses the token if a commit with it, or a higher one, is already in the log when the write starts (it skips
  silently) or when it commits (it fails on the conflicting transaction). So of all runs that started from N at most one
  commits, and what it commits was computed from exactly the positions of load N.
- Data, positions and schema are one commit: a reader sees all of it or nothing. A run killed before the commit leaves
  files that no commit names; one killed after it has done all that counts. (What a failed write leaves: `leftovers`.)
- Because Delta's skip is silent, the attempt id is read back from the log; if load N+1 carries another attempt's id,
  this run changed nothing and says so.
Commits of few rows are made without Spark, and keep to the same: see `few_rows`.
"""

from __future__ import annotations

import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velo_dagster.errors import Terminal, Transient, VeloError
from velo_dagster.store.few_rows import FewRows, can_link, needs_feature, needs_places, takes_few_rows
from velo_dagster.store.leftovers import SETTING as DATA_FOLDER
from velo_dagster.store.leftovers import announced
from velo_dagster.store.log import held_files
from velo_dagster.store.record import FOLDER, Record, UnreadablePositions, decode, encode, owner

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

HIDDEN = "_velo_"
REJECTED = "__rejected"
LANDING = "__landing_"
HARMLESS = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "COMPUTE STATISTICS", "REORG", "FSCK"}
APP = "velo"
FIRST_LOOK = 16
POSITIONS_DAYS = 40
TOKEN = "spark.databricks.delta.write.txnAppId"
TOKEN_VERSION = "spark.databricks.delta.write.txnVersion"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
CONCURRENT = re.compile(r"DELTA_CONCURRENT|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED")
"""Delta's word for a commit that it does not let pass another one."""


class Overtaken(Transient, VeloError):
    """Another run made this load first; this one changed nothing."""

    code = "T501"

    def __init__(self, table: str, load: int) -> None:
        self.table, self.load = table, load
        super().__init__(
            f"Another run made load {load} of table '{table}'; this one changed nothing.",
            steps=["Load again when no other run loads this table."],
        )


class TidiedUp(Overtaken):
    """Another run joined the table's files while this one, which had read them, wrote: it changed nothing.

    `failure` is what to say if it happens again and again: a write that fails by itself would, too.
    """

    def __init__(self, table: str, load: int, failure: Exception) -> None:
        super().__init__(table, load)
        self.what = f"Another run tidied up table '{table}' while load {load} was written; this one changed nothing."
        self.args = (self.render(),)
        self.failure = self if CONCURRENT.search(str(failure)) else failure


class ForeignChange(Terminal, VeloError):
    """Somebody else wrote rows into a table of ours, so it no longer is what its SELECT says."""

    code = "T503"

    def __init__(self, table: str, version: int, operation: str) -> None:
        super().__init__(
            f"Table '{table}' was changed at version {version} by {operation} from outside, so it may not be what its "
            "SELECT says.",
            steps=[f"Load it anew: velo-dagster load PATH --select {owner(table)} --full-refresh"],
        )


class UnreadableLog(Terminal, VeloError):
    """A table whose log is damaged: what it holds, and up to where, nobody can tell."""

    code = "T506"

    def __init__(self, table: str, path: Path, why: str) -> None:
        super().__init__(
            f"The log of table '{table}' cannot be read: {why.strip().partition(chr(10))[0]}. Nothing was loaded.",
            steps=[
                f"Put back what was changed below {path / '_delta_log'}.",
                f"Otherwise move the folder {path} away, and load table '{owner(table)}' anew from its sources.",
            ],
        )


class UnsupportedWarehouse(Terminal, VeloError):
    """A warehouse at an address that no store serves yet."""

    code = "T504"

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"A warehouse at '{uri}' is not supported yet.", steps=["Use a folder: --warehouse DIR or VELO_WAREHOUSE."]
        )


class UnwritableWarehouse(Terminal, VeloError):
    """A warehouse that no table can be written to."""

    code = "T505"

    def __init__(self, root: Path, why: str) -> None:
        super().__init__(
            f"The warehouse {root} cannot be written to: {why}. Nothing was loaded.",
            steps=["Give a folder that can be: --warehouse DIR, VELO_WAREHOUSE, or 'warehouse' in velo.yaml."],
        )


class Warehouse:
    """The folder that holds all tables of a project, one Delta table per sub-folder."""

    def __init__(self, uri: str) -> None:
        if "://" in uri and not uri.startswith("file://"):
            raise UnsupportedWarehouse(uri)
        self.root = Path(uri.removeprefix("file://")).absolute()

    def make(self) -> None:
        """Make the folder, or say why nothing can be loaded into it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise UnwritableWarehouse(self.root, error.strerror or str(error)) from error

    def table(self, name: str) -> Table:
        return Table(name, self.root / name.lower())

    def landing(self, table: str, number: int) -> Table:
        return self.table(f"{table}{LANDING}{number}")

    def rejected(self, table: str) -> Table:
        return self.table(f"{table}{REJECTED}")

    def names(self) -> list[str]:
        """The tables that users know: no landings, no rejected rows."""
        found = {path.parent.parent.name for path in self.root.glob("*/_delta_log/*.json")}
        return sorted(name for name in found if LANDING not in name and not name.endswith(REJECTED))


class Table:
    """One Delta table of ours. Reading its state needs no JVM."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def opened(self) -> DeltaTable | None:
        """The newest version, by the JVM-free reader; None if there is no table yet."""
        if not (self.path / "_delta_log").is_dir():
            return None
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(str(self.path))
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise UnreadableLog(self.name, self.path, str(error)) from error

    def record(self, *, trusting: bool = False) -> Record | None:
        """The newest load, with the version that readers should pin; None if there was none yet.

        `trusting` passes over changes from outside, for whoever replaces the table's rows anyway. A maintenance commit
        may have been prepared before a load and landed after it, so the highest load number counts, not the newest
        commit.
        """
        table = self.opened()
        if table is None:
            return None
        newest: Record | None = None
        for commit, record in self._commits(table):
            if record is None:
                if commit["operation"] not in HARMLESS and not trusting:
                    raise ForeignChange(self.name, commit["version"], commit["operation"])
                continue
            if newest is None or record.load > newest.load:
                newest = record
            if record.kind == "load":
                break
        if newest is None:
            raise UnreadablePositions(self.name, table.version(), "no commit in its log carries them")
        return newest

    def history(self) -> list[Record]:
        """All loads that the log still knows, newest first."""
        table = self.opened()
        return [record for _, record in self._commits(table) if record and record.kind == "load"] if table else []

    def loads_since(self, load: int) -> list[Record] | None:
        """The loads after `load`, newest first; None if the log no longer reaches back to it."""
        table = self.opened()
        found: list[Record] = []
        for _, record in self._commits(table) if table else ():
            if record is None or record.kind != "load":
                continue
            if record.load <= load:
                return found
            found.append(record)
        return None

    def _commits(self, table: DeltaTable) -> Iterator[tuple[dict[str, Any], Record | None]]:
        """All commits, newest first; few are read at first, since the newest is nearly always the one looked for."""
        table_id = str(table.metadata().id)
        newest = table.version()
        commits = table.history(FIRST_LOOK)
        if len(commits) == FIRST_LOOK and newest + 1 > FIRST_LOOK:
            commits = chain(commits, _older(table))
        for commit in commits:
            record = decode(commit.get("userMetadata") or "", self.path / FOLDER, self.name, commit["version"])
            if record is not None:
                metrics = {key: int(value) for key, value in (commit.get("operationMetrics") or {}).items()}
                record = replace(record, table_id=table_id, at=commit["timestamp"], metrics=metrics)
            yield commit, record

    def last_load(self) -> int:
        """The number of the newest load, read from Delta's own token, so that it is known even if nothing else is."""
        table = self.opened()
        return (table.transaction_version(APP) or 0) if table else 0

    def row_count(self) -> int:
        """How many rows there are, as the log tells; our own commits tell of every file."""
        table = self.opened()
        return sum(one.rows or 0 for one in held_files(self.path, table.version())) if table else 0

    def columns(self, version: int) -> list[tuple[str, str]]:
        """The columns of a version with their types, as Delta writes them."""
        from deltalake import DeltaTable

        return [(one.name, str(one.type)) for one in DeltaTable(str(self.path), version=version).schema().fields]

    def takes_few_rows(self) -> bool:
        """Whether few rows can be committed to it without Spark; not if there is no table yet."""
        table = self.opened()
        return table is not None and takes_few_rows(self.path, table)

    def takes_whole(self, schema: str) -> bool:
        """Whether few rows can be committed without Spark in place of all that it holds, or as its first ones, with
        these columns."""
        table = self.opened()
        can = can_link(self.path) if table is None else takes_few_rows(self.path, table)
        return can and not needs_feature(schema)

    def needs_places(self, above: int) -> bool:
        """Whether few rows that go from it must be told by their places, because it has more bytes than that."""
        table = self.opened()
        return table is not None and needs_places(self.path, table, above)

    def commit(self, spark: SparkSession, record: Record, write: Callable[[], object] | FewRows) -> Record:
        """Run `write`, which must make at most one Delta commit on this table, as the load that `record` says; few rows
        are committed without Spark."""
        if record.method == "full":
            record = replace(record, replaced=self.row_count())
        with announced(self.path, record.attempt) as writing:
            known = write.places if isinstance(write, FewRows) else None
            before = self._version() if known is None else known.version
            try:
                if isinstance(write, FewRows):
                    write.commit(self.path, APP, record.load, encode(record, self.path / FOLDER))
                else:
                    with self._token(spark, record):
                        write()
            except Exception as error:
                made = self._made(record.load)
                if made is not None and made.attempt == record.attempt:
                    # What failed came after Delta's commit, such as its checkpoint: the load is made.
                    return made
                writing.remove_leftovers()
                if made is not None:
                    raise Overtaken(self.name, record.load) from error
                if before is not None and self._version() != before:
                    # Only loads take numbers, so it was maintenance: Delta does not let a commit pass it that has read
                    # the files it replaced. Whatever failed instead fails again.
                    raise TidiedUp(self.name, record.load, error) from error
                raise
        made = self._made(record.load)
        if made is None or made.attempt != record.attempt:
            raise Overtaken(self.name, record.load)
        return made

    def _version(self) -> int | None:
        table = self.opened()
        return table.version() if table is not None else None

    def compact(self, spark: SparkSession, keep_hours: int) -> None:
        """Join small files, and drop those that no version of the last `keep_hours` needs. Changes no row.

        The commits repeat the newest record. They carry no token, so they never take a load's number; a load that
        lands before them keeps the higher number, which is the one that counts.
        """
        record = self.record()
        assert record is not None
        with announced(self.path, uuid.uuid4().hex):
            spark.conf.set(METADATA, encode(record.as_maintenance(), self.path / FOLDER))
            spark.conf.set(DATA_FOLDER, "true")
            try:
                spark.sql(f"OPTIMIZE delta.`{self.path}`")
                spark.sql(f"VACUUM delta.`{self.path}` RETAIN {keep_hours} HOURS")
            finally:
                for setting in (METADATA, DATA_FOLDER):
                    spark.conf.unset(setting)
        self._forget_positions_files()

    def _forget_positions_files(self) -> None:
        """Delete positions files that only commits older than Delta's own log retention can name."""
        table = self.opened()
        assert table is not None
        named = {(commit.get("userMetadata") or "") for commit in table.history(FIRST_LOOK)}
        for file in (self.path / FOLDER).glob("*.json"):
            if time.time() - file.stat().st_mtime > POSITIONS_DAYS * 86400 and not any(
                file.stem in text for text in named
            ):
                file.unlink()

    @contextmanager
    def _token(self, spark: SparkSession, record: Record) -> Iterator[None]:
        spark.conf.set(METADATA, encode(record, self.path / FOLDER))
        spark.conf.set(TOKEN, APP)
        spark.conf.set(TOKEN_VERSION, str(record.load))
        spark.conf.set(DATA_FOLDER, "true")
        try:
            yield
        finally:
            for setting in (METADATA, TOKEN, TOKEN_VERSION, DATA_FOLDER):
                spark.conf.unset(setting)

    def _made(self, load: int) -> Record | None:
        return next((record for record in self.history() if record.load == load), None)

    def snapshot(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """All rows at a version, else at the newest, hidden columns included."""
        reader = spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(str(self.path))

    def changes(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        """Rows that changed after version `since` up to `until`, with Delta's `_change_type`."""
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", since + 1).option("endingVersion", until).load(str(self.path))


def _older(table: DeltaTable) -> Iterator[dict[str, Any]]:
    yield from table.history()[FIRST_LOOK:]
