"""The rows of one scan on their way into a table: counted, in the table's order of columns, bad ones aside.

When to read and what a commit records is decided in `source_load`; here is what is read then, and how it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velo_dagster.crash import crash_point
from velo_dagster.sources.contract import ERROR, ID, Scan, Schema, Source
from velo_dagster.store.record import Record
from velo_dagster.store.table import HIDDEN, Overtaken, Table, TidiedUp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import DataType

ATTEMPT = "attempt"
TEXT = "_velo_text"
Mapped = Callable[["SparkSession", "DataFrame", Sequence[str]], "DataFrame"]
"""What becomes of rows, of whose columns some are system columns."""


@dataclass(frozen=True)
class Batch:
    """What one scan delivers under one schema."""

    spark: SparkSession
    source: Source
    scan: Scan
    schema: Schema
    system_columns: Sequence[str]

    def rows(self, mapped: Mapped, *, all_written: bool) -> tuple[DataFrame, Observation | None]:
        """The rows to write. They are counted on the way only where the commit itself does not say how many were read:
        of a large bulk load, counting takes a tenth of the time."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        read = self._read()
        if all_written and not self.source.marks_bad_rows:
            return mapped(self.spark, read.drop(ERROR), self.system_columns), None
        observation = Observation("scan")
        counts = [f.count(f.lit(1)).alias("rows")]
        if self.source.marks_bad_rows and not self.source.keeps_bad_rows:
            order = f.when(f.col(ERROR).isNotNull(), f.col(ID))
            counts += [f.count(f.col(ERROR)).alias("bad"), f.min_by(f.col(f"{ERROR}.place"), order).alias("place")]
            counts += [f.min_by(f.col(f"{ERROR}.reason"), order).alias("why")]
        counted = read.observe(observation, *counts)
        good = counted.where(f.col(ERROR).isNull()).drop(ERROR)
        return mapped(self.spark, good, self.system_columns), observation

    def in_new_order(self, rows: DataFrame, held: DataFrame, apart: Sequence[str]) -> DataFrame | None:
        """The rows that the table holds and the new ones, if columns come to stand elsewhere than in the table; else
        nothing. The source is not asked for rows that the table has: it may have them no longer. `apart`: columns
        that may stand anywhere."""
        before, now = (
            [name for name in frame.columns if not (name.startswith(HIDDEN) or name in apart)] for frame in (held, rows)
        )
        if now[: len(before)] == before:
            return None
        kept = held if self.scan.removed is None else held.where(f"NOT {self.scan.removed}")
        return rows.unionByName(kept, allowMissingColumns=True)

    def reject(self, rejected: Table, attempt: str, earlier: Collection[str]) -> int:
        """Append the bad rows to the table of such, under the attempt's id, and say how many there are.

        `earlier` are attempts of whose bad rows some have gone from the source since: the others are taken over.
        """
        from pyspark.sql import functions as f

        # As text: several sources, each with identities of its own kind, may share the table of bad rows.
        identity = f.to_json(f.struct(ID)).alias(ID)
        bad = self._read().where(f.col(ERROR).isNotNull()).select(f"{ERROR}.*", f.lit(attempt).alias(ATTEMPT), identity)
        if earlier:
            kept = self._still_bad(rejected.snapshot(self.spark), earlier)
            bad = bad.unionByName(kept.withColumn(ATTEMPT, f.lit(attempt)))
        if bad.isEmpty():
            return 0
        return _append_always(rejected, self.spark, bad, attempt).rows_changed

    def _still_bad(self, held: DataFrame, attempts: Collection[str]) -> DataFrame:
        """Bad rows of earlier attempts that the source has not replaced."""
        from pyspark.sql import functions as f

        known = f.from_json(ID, f"{ID} {self.source.id_type}")[ID]
        gone = f.coalesce(f.expr(self.scan.removed or "false"), f.lit(False))
        told = held.where(f.col(ATTEMPT).isin(*attempts)).withColumn(TEXT, f.col(ID)).withColumn(ID, known)
        return told.where(~gone).withColumn(ID, f.col(TEXT)).drop(TEXT)

    def write(self, rows: DataFrame, target: Table, method: str, *, anew: bool) -> None:
        """Write as the method says; `anew` is in place of all that the table holds."""
        writer = rows.write.format("delta")
        if anew or method == "full":
            # Statistics of hidden columns cost as much as those of others, and no reader has a use for them.
            statistics = min(_leaves(field.dataType for field in rows.schema if not field.name.startswith(HIDDEN)), 32)
            writer = writer.option("delta.dataSkippingNumIndexedCols", statistics)
            writer = writer.mode("overwrite").option("overwriteSchema", "true")
        elif method == "replace":
            assert self.scan.removed is not None
            writer = writer.mode("overwrite").option("replaceWhere", self.scan.removed).option("mergeSchema", "true")
        else:
            writer = writer.mode("append").option("mergeSchema", "true")
        writer.save(str(target.path))

    def counted(self, observation: Observation | None, made: Record, note: Callable[[str], None]) -> tuple[int, int]:
        """How many rows a committed load has read, and how many bad ones it left out; nobody would know of these
        otherwise. Without an observation, all that was read was written."""
        found = observation.get if observation is not None else {}
        label = self.source.label
        if observation is not None and "rows" not in found:
            # Over Spark Connect what is observed below SQL text is not told.
            note(f"{label}: Spark does not say how many rows were read or left out; written ones are counted.")
        if "rows" not in found:
            return made.rows_written, 0
        skipped = int(found.get("bad", 0))
        if skipped:
            rows = "1 bad row was" if skipped == 1 else f"{skipped} bad rows were"
            note(f"{rows} left out of {label} (LogAndContinue); the first: {found['place']}: {found['why']}")
        return int(found["rows"]), skipped

    def _read(self) -> DataFrame:
        return self.source.read(self.spark, self.scan, self.schema, self.system_columns)


def keep_late(
    rejected: Table, spark: SparkSession, late: DataFrame, attempt: str, record: Record | None
) -> dict[str, int]:
    """Bring the table of bad rows to hold exactly these late ones; how many of them each attempt has put there.

    A row that was late stays so while files only grow, so usually the new ones are added. If some went, all that are
    left are written under this attempt, and the others are no longer named by a load.
    """
    from pyspark.sql import functions as f

    earlier = dict(record.rejects) if record is not None else {}
    new = late
    if earlier:
        held = rejected.snapshot(spark).where(f.col(ATTEMPT).isin(*earlier)).select(*late.columns)
        if held.exceptAll(late).isEmpty():
            new = late.exceptAll(held)
        else:
            earlier = {}
    if new.isEmpty():
        return earlier
    made = _append_always(rejected, spark, new.withColumn(ATTEMPT, f.lit(attempt)), attempt)
    return {**earlier, attempt: made.rows_changed}


def _append_always(table: Table, spark: SparkSession, frame: DataFrame, attempt: str) -> Record:
    """Append whatever other runs append meanwhile: each row carries its attempt, so order does not matter."""
    writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    crash_point("before-rejected-commit")
    while True:
        record = Record(table.last_load() + 1, attempt, "load", "increment", "append", "bad rows", "", {})
        try:
            made = table.commit(spark, record, lambda: writer.save(str(table.path)))
        except TidiedUp as tidied:
            # Nothing that was read is appended, so no maintenance is in the way: it failed by itself.
            raise tidied.failure from tidied
        except Overtaken:
            continue
        crash_point("after-rejected-commit")
        return made


def _leaves(types: Iterable[DataType]) -> int:
    """How many columns of Parquet there are, of those that Delta counts."""
    from pyspark.sql.types import StructType

    return sum(_leaves(field.dataType for field in type_) if isinstance(type_, StructType) else 1 for type_ in types)
