"""What every refresh method gets and gives back: the pinned inputs in, one commit's worth of writing out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from velo_dagster.engine.fetched import fetched
from velo_dagster.engine.inputs import TableInput, visible
from velo_dagster.engine.scale import size_of
from velo_dagster.plan.project import TablePlan
from velo_dagster.store.few_rows import FewRows
from velo_dagster.store.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


COLUMNS_MOVED = "the order of columns changed"
SMALL = 64 * 2**20
"""So many bytes of files, table and inputs together, are computed whole as fast as in parts."""


@dataclass(frozen=True)
class Work:
    """One refresh of one table: its plan, where it goes, its inputs from their old to their new position.

    `restart` says why nothing that was committed before may be built upon; empty if it may. `once`: rows that were
    committed stay as they are, and only new rows of the driving input are joined. `small`: below so many bytes the
    table is computed whole, even if it could be computed in parts, and above it its files are not written anew for few
    rows. `wide`: float aggregates are to take every number
    there is (`engine.floats.in_either_form`).
    """

    plan: TablePlan
    target: Table
    inputs: Sequence[TableInput]
    spark: SparkSession
    restart: str
    once: bool = False
    small: int = SMALL
    wide: bool = False
    _kept: list[DataFrame] = field(default_factory=list, compare=False)

    @cached_property
    def version(self) -> int:
        """The table's version, looked up once: what is read of it at several times is of one version."""
        opened = self.target.opened()
        assert opened is not None, "there is a version to build upon"
        return opened.version()

    @property
    def codec(self) -> str:
        """How the table's files are compressed."""
        return str(self.spark.conf.get("spark.sql.parquet.compression.codec"))

    def keep(self, frame: DataFrame) -> DataFrame:
        """Keep the frame in memory until `release`: what is computed from it several times is read once."""
        self._kept.append(frame.cache())
        return self._kept[-1]

    def release(self) -> None:
        """Spark's memory is shared by all sessions: what one load leaves there, the next would have to do without."""
        while self._kept:
            self._kept.pop().unpersist()


@dataclass(frozen=True)
class Write:
    """One commit, ready to be made, and how it came about. `late`: the rows that it rejects because they are late."""

    method: str
    reason: str
    run: Callable[[], object] | FewRows
    rows_read: int = 0
    late: DataFrame | None = None
    filled: int = 0
    """Rows of this commit that have made-up columns of missing references."""


def columns_moved(work: Work, rows: DataFrame) -> bool:
    """Whether the rows have columns that the table lacks, or has elsewhere, before others that it has."""
    held = visible(work.target.snapshot(work.spark)).columns
    return visible(rows).columns[: len(held)] != held


def replace_all(work: Work, frame: DataFrame, reason: str) -> Write:
    """Replace the table's rows and schema in one commit. Of little that is read, few rows may be made: then without
    Spark, which takes a second to write them."""
    little = size_of([one.table for one in work.inputs]).bytes < work.small
    few = fetched(frame) if little and work.target.takes_whole(frame.schema.json()) else None
    if few is not None:
        return Write("full", reason, FewRows(few, whole=True, schema=frame.schema.json(), codec=work.codec))

    def run() -> None:
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.save(str(work.target.path))

    return Write("full", reason, run)
