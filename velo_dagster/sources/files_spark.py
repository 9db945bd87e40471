"""Files read by Spark's tasks: each task reads a group of parts and hands Arrow batches over.

The groups travel with the function that reads them, and the rows of a `range` say which task reads which group. A
Python data source would give the same rows, but Spark starts several Python processes at every load only to plan one.
Executors need nothing but this package, and nothing here touches a SparkContext, so it works on Spark Connect alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velo_dagster.sources import meter
from velo_dagster.sources.contract import ERROR, ID, Schema
from velo_dagster.sources.files_parts import Part, grouped
from velo_dagster.sources.files_read import OpenPart, Reading, errors_of, join_surveys, line_numbers
from velo_dagster.sources.formats.base import AT
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ID_TYPE = "STRUCT<file: STRING, at: BIGINT>"
ERROR_TYPE = "STRUCT<place: STRING, reason: STRING, text: STRING>"
FILE, LINE = "_file", "_line"
SYSTEM_TYPES = {FILE: "STRING", LINE: "BIGINT"}

ReadGroup = Callable[[int, Reading, list[Part], pa.Schema], Iterator[pa.RecordBatch]]


def read_rows(
    spark: SparkSession, reading: Reading, parts: Sequence[Part], schema: Schema, system_columns: Sequence[str]
) -> DataFrame:
    """The parts' rows: the schema's columns, the system columns asked for, `_velo_id`, `_velo_error`.

    What is NULL in every row is not carried from the tasks to Spark, but added there: columns without a type yet, and
    `_velo_error` where a bad row ends the read.
    """
    carried = {field.name: field.type for field in schema if field.type is not None}
    carried |= {name: SYSTEM_TYPES[name] for name in system_columns} | {ID: ID_TYPE}
    if reading.mark_bad:
        carried[ERROR] = ERROR_TYPE
    rows = _by_tasks(spark, reading, parts, _rows_of, carried)
    names = [*(field.name for field in schema), *system_columns, ID, ERROR]
    return rows.select(*(_column(name, carried) for name in names))


def survey_parts(spark: SparkSession, reading: Reading, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """What reading all of each group of parts found, in the order of the parts."""
    found = _by_tasks(spark, reading, parts, _survey_of, {"number": "BIGINT", "found": "STRING"}).collect()
    return [json.loads(row["found"]) for row in sorted(found, key=lambda row: row["number"])]


def _column(name: str, carried: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as f

    if name in carried:
        # Over Spark Connect the text of a schema becomes types with a collation, which no other reader of Delta knows;
        # the text of a cast does not. Where the types are the same already, Spark takes the cast away.
        return f.col(quote(name)).cast(carried[name]).alias(name)
    return (f.lit(None).cast(ERROR_TYPE) if name == ERROR else f.lit(None)).alias(name)


def _by_tasks(
    spark: SparkSession, reading: Reading, parts: Sequence[Part], read: ReadGroup, columns: Mapping[str, str]
) -> DataFrame:
    """What `read` makes of every group of parts, one task each."""
    groups = grouped(parts)
    task = _Task(read, tuple(reading.packed(group) for group in groups), tuple(columns.items()))
    ddl = ", ".join(f"{quote(name)} {type_}" for name, type_ in columns.items())
    return spark.range(0, len(groups), 1, max(len(groups), 1)).mapInArrow(task, ddl)


@dataclass(frozen=True)
class _Task:
    """What a task does with the number of its group. Groups are packed, as each task unpacks only its own."""

    read: ReadGroup
    groups: tuple[bytes, ...]
    columns: tuple[tuple[str, str], ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = pa.schema([(name, to_arrow(type_)) for name, type_ in self.columns])
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                reading, parts = Reading.unpacked(self.groups[number])
                yield from self.read(number, reading, parts, target)


def _rows_of(number: int, reading: Reading, parts: list[Part], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows = size = 0
    own = frozenset(name for name, _ in reading.columns)
    for plain in parts:
        part = reading.open_part(plain)
        for batch in part.batches():
            rows += batch.num_rows
            yield _arranged(part, batch, target, own)
            if reading.meter is not None and batch.num_rows:
                # A record's place in its file says how far the part is; in columnar files it is its number.
                done = batch.column(AT)[-1].as_py() - plain["start"] if plain["stop"] is not None else 0
                meter.note(reading.meter, number, rows, size + min(max(done, 0), plain["bytes"]))
        size += plain["bytes"]
    if reading.meter is not None:
        meter.note(reading.meter, number, rows, size)


def _survey_of(number: int, reading: Reading, parts: list[Part], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    found = join_surveys(reading.open_part(plain).survey() for plain in parts)
    yield pa.RecordBatch.from_pydict({"number": [number], "found": [json.dumps(found)]}, schema=target)


def _arranged(part: OpenPart, batch: pa.RecordBatch, target: pa.Schema, own: Set[str]) -> pa.RecordBatch:
    """The batch as Spark is to get it: the target's columns in their order and types. `own`: the files' own columns."""
    count = batch.num_rows
    arrays: list[pa.Array] = []
    for field in target:
        if field.name == ID:
            file = pa.repeat(pa.scalar(part.part["file"], pa.string()), count)
            array = pa.StructArray.from_arrays([file, batch.column(AT)], fields=list(field.type))
        elif field.name == ERROR:
            array = errors_of(part, batch, field.type)
        elif field.name == FILE and FILE not in own:
            array = pa.repeat(pa.scalar(str(part.path), pa.string()), count)
        elif field.name == LINE and LINE not in own:
            array = line_numbers(part, batch)
        else:
            array = batch.column(field.name)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=target)
