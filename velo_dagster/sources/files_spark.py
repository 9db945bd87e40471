"""Files as a data source of Spark: each task reads a group of parts and hands Arrow batches over.

Spark takes these classes by name, so executors need nothing but this package. Everything a task must know comes as one
option; the partitions carry the parts. Nothing here touches a SparkContext, so it works on Spark Connect alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from velo_dagster.sources.contract import ERROR, ID, Schema
from velo_dagster.sources.files_parts import Part, grouped
from velo_dagster.sources.files_read import OpenPart, Reading, errors_of, join_surveys, line_numbers
from velo_dagster.sources.formats.base import AT
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID_TYPE = "STRUCT<file: STRING, at: BIGINT>"
ERROR_TYPE = "STRUCT<place: STRING, reason: STRING, text: STRING>"
FILE, LINE = "_file", "_line"
SYSTEM_TYPES = {FILE: "STRING", LINE: "BIGINT"}

_ROWS, _SURVEY = "velo_files", "velo_files_survey"
_JOB = "job"


def read_rows(
    spark: SparkSession, reading: Reading, parts: Sequence[Part], schema: Schema, system_columns: Sequence[str]
) -> DataFrame:
    """The parts' rows: the schema's columns, the system columns asked for, `_velo_id`, `_velo_error`.

    A column without a type yet holds only NULLs; it is not carried through, but added as such.
    """
    from pyspark.sql import functions as f

    _register(spark)
    columns = [f"{quote(field.name)} {field.type}" for field in schema if field.type is not None]
    columns += [f"{quote(name)} {SYSTEM_TYPES[name]}" for name in system_columns]
    ddl = ", ".join([*columns, f"{ID} {ID_TYPE}", f"{ERROR} {ERROR_TYPE}"])
    rows = spark.read.format(_ROWS).schema(ddl).option(_JOB, reading.to_text(grouped(parts))).load()
    if all(field.type is not None for field in schema):
        return rows
    shown = [f.lit(None).alias(field.name) if field.type is None else f.col(quote(field.name)) for field in schema]
    return rows.select(*shown, *system_columns, ID, ERROR)


def survey_parts(spark: SparkSession, reading: Reading, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """What reading all of each group of parts found, in the order of the parts."""
    _register(spark)
    job = reading.to_text(grouped(parts))
    found = spark.read.format(_SURVEY).schema("number INT, found STRING").option(_JOB, job).load().collect()
    return [json.loads(row["found"]) for row in sorted(found, key=lambda row: row["number"])]


_registered: WeakSet[SparkSession] = WeakSet()


def _register(spark: SparkSession) -> None:
    """Make the data sources known to this session, once."""
    if spark in _registered:
        return
    # Spark looks a new name up in the thread's active session, and refuses it if that, another one, knows it already.
    # Making a frame makes this session the active one, in the classic API and over Spark Connect alike.
    spark.createDataFrame([], "nothing INT")
    spark.dataSource.register(FileRows)
    spark.dataSource.register(FileSurveys)
    _registered.add(spark)


@dataclass
class Group(InputPartition):
    """The parts that one task reads."""

    number: int
    parts: list[Part]


class _Source(DataSource):
    def _job(self) -> tuple[Reading, list[Group]]:
        reading, groups = Reading.from_text(self.options[_JOB])
        # Every task gets a copy of this object; it needs its own parts only, and gets them as its partition.
        self.options: MutableMapping[str, str] = {}
        return reading, [Group(number, parts) for number, parts in enumerate(groups)]


class FileRows(_Source):
    """Rows of files."""

    @classmethod
    def name(cls) -> str:
        return _ROWS

    def reader(self, schema: StructType) -> DataSourceReader:
        return _RowReader(*self._job(), schema)


class FileSurveys(_Source):
    """What reading all of some files finds, one row of JSON per task."""

    @classmethod
    def name(cls) -> str:
        return _SURVEY

    def reader(self, schema: StructType) -> DataSourceReader:
        return _SurveyReader(*self._job())


class _Reader(DataSourceReader):
    def __init__(self, reading: Reading, groups: list[Group]) -> None:
        self.reading = reading
        self.groups = groups

    def partitions(self) -> Sequence[InputPartition]:
        groups, self.groups = self.groups, []
        return groups or [Group(0, [])]


class _RowReader(_Reader):
    def __init__(self, reading: Reading, groups: list[Group], schema: StructType) -> None:
        super().__init__(reading, groups)
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Group)
        target = to_arrow_schema(self.schema, timezone="UTC")
        for plain in partition.parts:
            part = self.reading.open_part(plain)
            for batch in part.batches():
                yield _arranged(part, batch, target)


class _SurveyReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        assert isinstance(partition, Group)
        found = join_surveys(self.reading.open_part(plain).survey() for plain in partition.parts)
        yield partition.number, json.dumps(found)


def _arranged(part: OpenPart, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch as Spark is to get it: the target's columns in their order and types."""
    count = batch.num_rows
    arrays: list[pa.Array] = []
    for field in target:
        if field.name == ID:
            file = pa.repeat(pa.scalar(part.part["file"], pa.string()), count)
            array = pa.StructArray.from_arrays([file, batch.column(AT)], fields=list(field.type))
        elif field.name == ERROR:
            array = errors_of(part, batch, field.type)
        elif field.name == FILE:
            array = pa.repeat(pa.scalar(str(part.path), pa.string()), count)
        elif field.name == LINE:
            array = line_numbers(part, batch)
        else:
            array = batch.column(field.name)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=target)
