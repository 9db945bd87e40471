"""What a table reads, as a load sees it: a table with a position. A source is read through a landing, which is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from velo_dagster.engine.columns import exact_text, holds_floats, orderable
from velo_dagster.engine.fetched import fetched, given
from velo_dagster.plan.inputs import PlannedInput
from velo_dagster.sql.names import not_own, quote
from velo_dagster.store.record import Record
from velo_dagster.store.table import HIDDEN, LANDING, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COPIES = "_velo_copies"
COMMIT_COLUMNS = ("_commit_version", "_commit_timestamp")
GONE = re.compile(r"\[(FAILED_READ_FILE\.FILE_NOT_EXIST|DELTA_\w+)[.\w]*\]")
"""A vacuum took the files, or Delta cannot tell the changes: recomputing is as exact. Anything else is a failure."""


@dataclass(frozen=True)
class TableInput:
    """One input, from the position that the reading table has committed (if any) to where the input is now.

    `version` may be that of a later maintenance commit: its rows are the load's, and its files outlive a vacuum.
    `label`: what messages call it, because users know sources and not landings. `system`: its system columns.
    """

    name: str
    label: str
    table: Table
    load: int
    version: int
    table_id: str
    since: Mapping[str, Any] | None
    system: Sequence[str]
    _read: dict[tuple[SparkSession, int], DataFrame] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """By version; to open one takes as long as to read a small table."""

    @staticmethod
    def at_end(planned: PlannedInput, table: Table, record: Record, since: Mapping[str, Any] | None) -> TableInput:
        opened = table.opened()
        assert opened is not None
        version = opened.version() if table.record() == record else record.version
        system = system_of(planned, record)
        return TableInput(planned.name, planned.label, table, record.load, version, record.table_id, since, system)

    @property
    def position(self) -> dict[str, Any]:
        return {"table": self.table.name, "id": self.table_id, "load": self.load, "version": self.version}

    @property
    def unchanged(self) -> bool:
        return not has_news(self.table, self.table_id, self.load, self.since)

    @property
    def is_landing(self) -> bool:
        return LANDING in self.table.name

    def gap(self) -> str:
        """Why the changes since the committed position cannot be had; empty if there is nothing against trying."""
        if self.since is None:
            return f"{self.label} was not read before"
        if not self.since["id"] and self.table_id:
            return f"{self.label} was missing before"
        if self.since["id"] != self.table_id:
            return f"{self.label} was read anew" if self.is_landing else f"{self.label} is another table than before"
        if self.table.loads_since(self.since["load"]) is not None:
            return ""
        kept = f"what was read from {self.label}" if self.is_landing else self.label
        return f"the log of {kept} no longer holds all of its changes"

    def recomputed(self) -> str:
        """Why all rows were replaced since the committed position; empty if they were not."""
        assert self.since is not None
        loads = self.table.loads_since(self.since["load"])
        full = next((load for load in loads or () if load.method == "full"), None)
        if full is None:
            return ""
        return f"{self.label} was {'read anew' if self.is_landing else 'recomputed'} ({full.reason})"

    def snapshot(self, spark: SparkSession) -> DataFrame:
        return self._at(spark, self.version)

    def old_snapshot(self, spark: SparkSession) -> DataFrame:
        """All rows as they were at the committed position."""
        assert self.since is not None
        return self._at(spark, self.since["version"])

    def same_columns(self) -> bool:
        """Whether the input has the columns that it had at the committed position."""
        assert self.since is not None
        return self.table.columns(self.since["version"]) == self.table.columns(self.version)

    def _at(self, spark: SparkSession, version: int) -> DataFrame:
        if (spark, version) not in self._read:
            self._read[spark, version] = self.table.snapshot(spark, version)
        return self._read[spark, version]

    def changes(self, spark: SparkSession, keep: Callable[[DataFrame], DataFrame], *, compare: bool = False) -> Changes:
        """What changed since the committed position, read at once: only then is it known that all of it can be.

        `keep`: keeps rows in memory, for as long as they are needed. `compare`: if all rows were replaced, find those
        that are different, which reads both versions.
        """
        from pyspark.sql import functions as f

        obstacle = self.gap()
        if obstacle or self.since is None:
            return Changes(None, obstacle)
        replaced = self.recomputed()
        if replaced and not (compare and self._can_be_compared(spark)):
            return Changes(None, replaced)
        try:
            rows = (
                self._compared(spark)
                if replaced
                else self.table.changes(spark, self.since["version"], self.version).drop(*COMMIT_COLUMNS)
            )
            few = fetched(rows)
            if few is not None:
                came = few["_change_type"].to_pylist().count("insert")
                return Changes(given(rows, few), "", few.num_rows, few.num_rows - came)
            rows = keep(rows)
            inserted = f.col("_change_type") == "insert"
            count, removed = rows.agg(f.count(f.lit(1)), f.count(f.when(~inserted, 1))).collect()[0]
        except Exception as error:
            gone = gone_for_good(error)
            if gone is None:
                raise
            return Changes(None, f"changes of {self.label} are no longer there ({gone})")
        return Changes(rows, "", count, removed)

    def _can_be_compared(self, spark: SparkSession) -> bool:
        old, new = self.old_snapshot(spark).schema, self.snapshot(spark).schema
        return old == new and all(orderable(one.dataType) for one in new)

    def _compared(self, spark: SparkSession) -> DataFrame:
        """The rows that only one of the two versions has, as a change feed would tell them."""
        from pyspark.sql import functions as f

        old, new = self.old_snapshot(spark), self.snapshot(spark)
        both = new.withColumn(COPIES, f.lit(1)).unionByName(old.withColumn(COPIES, f.lit(-1)))
        # Of a group, Spark shows 0.0 where there is -0.0: floats are told apart by their texts, too.
        texts = [exact_text(quote(one.name), one.dataType) for one in new.schema if holds_floats(one.dataType)]
        told_apart = (*map(quote, new.columns), *texts)
        grouped = both.groupBy(*(f.expr(one).alias(f"{HIDDEN}by_{n}") for n, one in enumerate(told_apart)))
        more = grouped.agg(f.sum(COPIES).alias(COPIES), *(f.any_value(quote(name)).alias(name) for name in new.columns))
        kind = f.when(f.col(COPIES) > 0, "insert").otherwise("delete")
        times = f.explode(f.array_repeat(kind, f.abs(f.col(COPIES)).cast("int"))).alias("_change_type")
        return more.where(f"{COPIES} <> 0").select(*(quote(name) for name in new.columns), times)


@dataclass(frozen=True)
class Changes:
    """Rows that came, went or were replaced, all their images, and how many; or why that cannot be known."""

    images: DataFrame | None
    obstacle: str
    count: int = 0
    removed: int = 0

    @property
    def rows(self) -> DataFrame | None:
        """All images: rows as they were, and as they are."""
        return None if self.images is None else self.images.drop("_change_type")

    def of(self, *kinds: str) -> DataFrame:
        """Images of the kinds that Delta's `_change_type` tells."""
        from pyspark.sql import functions as f

        assert self.images is not None
        return self.images.where(f.col("_change_type").isin(*kinds)).drop("_change_type")


def system_of(planned: PlannedInput, record: Record | None) -> Sequence[str]:
    """The system columns of a landing; the schema that its load records has the columns of the source itself."""
    return not_own(planned.system_columns, (name for name, _ in record.schema) if record is not None else ())


def has_news(table: Table, table_id: str, load: int, since: Mapping[str, Any] | None) -> bool:
    """Whether a table has changed since a position: loads that changed no row are no news."""
    if since is None or since["id"] != table_id:
        return True
    if since["load"] == load:
        return False
    loads = table.loads_since(since["load"])
    return loads is None or any(one.method == "full" or one.rows_changed for one in loads)


def gone_for_good(error: Exception) -> str | None:
    """What Spark or Delta calls it, if old rows or changes are no longer there; None if something else is wrong."""
    found = GONE.search(str(error))
    return found[1] if found else None


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def visible(frame: DataFrame) -> DataFrame:
    """The frame without hidden columns."""
    return frame.drop(*[name for name in frame.columns if name.startswith(HIDDEN)])
