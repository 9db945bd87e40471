"""What a table reads, as a load sees it: a table with a position. A source is read through a landing, which is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velo_dagster.store.record import Record
from velo_dagster.store.table import HIDDEN, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


@dataclass(frozen=True)
class TableInput:
    """One input, from the position that the reading table has committed (if any) to where the input is now.

    `version` may be that of a later maintenance commit: its rows are the load's, and its files outlive a vacuum.
    """

    name: str
    table: Table
    load: int
    version: int
    table_id: str
    since: Mapping[str, Any] | None

    @staticmethod
    def at_end(name: str, table: Table, record: Record, since: Mapping[str, Any] | None) -> TableInput:
        opened = table.opened()
        assert opened is not None
        version = opened.version() if table.record() == record else record.version
        return TableInput(name, table, record.load, version, record.table_id, since)

    @property
    def position(self) -> dict[str, Any]:
        return {"table": self.table.name, "id": self.table_id, "load": self.load, "version": self.version}

    @property
    def unchanged(self) -> bool:
        return self.since is not None and (self.since["id"], self.since["load"]) == (self.table_id, self.load)

    def gap(self) -> str:
        """Why the changes since the committed position cannot be had; empty if there is nothing against trying."""
        if self.since is None:
            return f"{self.table.name} was not read before"
        if self.since["id"] != self.table_id:
            return f"{self.table.name} is another table than before"
        loads = self.table.loads_since(self.since["load"])
        if loads is None:
            return f"the log of {self.table.name} no longer holds all of its changes"
        full = next((load for load in loads if load.method == "full"), None)
        return f"{self.table.name} was recomputed ({full.reason})" if full else ""

    def snapshot(self, spark: SparkSession) -> DataFrame:
        return self.table.snapshot(spark, self.version)

    def changes(self, spark: SparkSession) -> Changes:
        """What changed since the committed position, read at once: only then is it known that all of it can be."""
        from pyspark.sql import functions as f

        obstacle = self.gap()
        if obstacle or self.since is None:
            return Changes(None, obstacle)
        try:
            rows = self.table.changes(spark, self.since["version"], self.version).cache()
            inserted = f.col("_change_type") == "insert"
            count, removed = rows.agg(f.count(f.lit(1)), f.count(f.when(~inserted, 1))).collect()[0]
        except Exception as error:  # noqa: BLE001 - whatever the reason, recomputing is exact, and says it
            return Changes(None, f"changes of {self.table.name} cannot be read: {first_line(error)}")
        return Changes(rows.drop(*CHANGE_COLUMNS), "", count, removed)


@dataclass(frozen=True)
class Changes:
    """Rows that came, went or were replaced, all their images, and how many; or why that cannot be known."""

    rows: DataFrame | None
    obstacle: str
    count: int = 0
    removed: int = 0


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def visible(frame: DataFrame) -> DataFrame:
    """The frame without hidden columns."""
    return frame.drop(*[name for name in frame.columns if name.startswith(HIDDEN)])
