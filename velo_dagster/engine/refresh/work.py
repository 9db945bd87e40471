"""What every refresh method gets and gives back: the pinned inputs in, one commit's worth of writing out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velo_dagster.engine.inputs import TableInput, visible
from velo_dagster.plan.project import TablePlan
from velo_dagster.store.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


COLUMNS_MOVED = "the order of columns changed"


@dataclass(frozen=True)
class Work:
    """One refresh of one table: its plan, where it goes, its inputs from their old to their new position.

    `restart` says why nothing that was committed before may be built upon; empty if it may.
    """

    plan: TablePlan
    target: Table
    inputs: Sequence[TableInput]
    spark: SparkSession
    restart: str


@dataclass(frozen=True)
class Write:
    """One commit, ready to be made, and how it came about."""

    method: str
    reason: str
    run: Callable[[], object]
    rows_read: int = 0


def columns_moved(work: Work, rows: DataFrame) -> bool:
    """Whether the rows have columns that the table lacks, or has elsewhere, before others that it has."""
    held = visible(work.target.snapshot(work.spark)).columns
    return visible(rows).columns[: len(held)] != held


def replace_all(work: Work, frame: DataFrame, reason: str) -> Write:
    """Replace the table's rows and schema in one commit."""

    def run() -> None:
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.save(str(work.target.path))

    return Write("full", reason, run)
