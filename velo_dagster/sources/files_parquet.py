"""Parquet by Spark's own reader: files of equal schema together, cast to the source's columns, put together by name.

A row's place is its number in the file, which Spark knows (`_metadata.row_index`), so ids are the same however the
files are split among tasks. A value that its declared column does not hold exactly makes its row a bad row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet

from velo_dagster.sources.contract import ERROR, ID, BadRow, Schema
from velo_dagster.sources.errors import SchemaRefused
from velo_dagster.sources.files_parts import Part
from velo_dagster.sources.files_read import BAD_ROWS_SHOWN
from velo_dagster.sources.files_schema import column_names
from velo_dagster.sources.formats.base import BrokenFile
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_GLOB = re.compile(r"([\\*?\[\]{}])")
# What a URI leaves as it is.
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")
_AT, _NAME = "_velo_at", "_velo_file"
# Spark knows that its own columns are never NULL; ids from other formats are not told apart that way.
_ID_TYPE = "STRUCT<file: STRING, at: BIGINT>"
_ERROR_TYPE = "STRUCT<place: STRING, reason: STRING, text: STRING>"
FileSchema = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ParquetRead:
    """What the files are read as."""

    base: str
    schema: Schema
    declared: frozenset[str]
    mark_bad: bool
    system_columns: Sequence[str] = ()

    def rows(self, spark: SparkSession, parts: Iterable[Part], schema_of: Callable[[str], FileSchema]) -> DataFrame:
        """The parts' rows: the schema's columns, the system columns asked for, `_velo_id`, `_velo_error`."""
        groups: dict[tuple[FileSchema, int, int | None], list[str]] = {}
        for part in parts:
            groups.setdefault((schema_of(part["file"]), part["start"], part["stop"]), []).append(part["file"])
        frames = [self._group(spark, files, *key) for key, files in groups.items()]
        return reduce(lambda left, right: left.unionByName(right), frames)

    def bad_rows(
        self, spark: SparkSession, parts: Iterable[Part], schema_of: Callable[[str], FileSchema]
    ) -> tuple[tuple[BadRow, ...], int]:
        """Some of the bad rows, in order, and how many there are."""
        from pyspark.sql import functions as f

        bad = self.rows(spark, parts, schema_of).where(f.col(ERROR).isNotNull())
        shown = bad.orderBy(ID).limit(BAD_ROWS_SHOWN).select(f"{ERROR}.*").collect()
        return tuple(BadRow(*row) for row in shown), bad.count() if len(shown) == BAD_ROWS_SHOWN else len(shown)

    def _group(
        self, spark: SparkSession, files: Sequence[str], file_schema: FileSchema, start: int, stop: int | None
    ) -> DataFrame:
        from pyspark.sql import functions as f

        written = _by_column(file_schema)
        paths = [_GLOB.sub(r"\\\1", f"{self.base}/{name}") for name in files]
        raw = spark.read.parquet(*paths).withColumns(
            {_AT: f.col("_metadata.row_index"), _NAME: _relative(f.col("_metadata.file_path"), self.base, files)}
        )
        if start:
            raw = raw.where(f.col(_AT) >= start)
        if stop is not None:
            raw = raw.where(f.col(_AT) < stop)
        return self._columns(raw, written)

    def _columns(self, raw: DataFrame, written: Mapping[str, str]) -> DataFrame:
        from pyspark.sql import functions as f

        shown: list[Column] = []
        faults: list[Column] = []
        for field in self.schema:
            name = written.get(field.name.lower())
            if name is None or field.type is None:
                shown.append(f.lit(None).cast(field.type or "void").alias(field.name))
                continue
            value, given = f.col(quote(name)), raw.schema[name].dataType.simpleString()
            if field.name.lower() in self.declared and to_arrow(given.upper()) != to_arrow(field.type):
                held = value.try_cast(field.type)
                faults.append(_fault(value, held, given, field.name, field.type))
                value = held
            else:
                value = value.cast(field.type)
            shown.append(value.alias(field.name))
        system = {"_file": f.concat(f.lit(f"{self.base}/"), f.col(_NAME)), "_line": f.col(_AT) + 1}
        shown += [system[name].alias(name) for name in self.system_columns]
        shown.append(f.struct(f.col(_NAME).alias("file"), f.col(_AT).alias("at")).cast(_ID_TYPE).alias(ID))
        return raw.select(*shown, self._error(faults).alias(ERROR))

    def _error(self, faults: Sequence[Column]) -> Column:
        from pyspark.sql import functions as f

        nothing = f.lit(None).cast(_ERROR_TYPE)
        if not faults:
            return nothing
        place = f.concat(f.lit(f"{self.base}/"), f.col(_NAME), f.lit(": row "), f.col(_AT) + 1)
        reason = f.coalesce(*faults)
        if not self.mark_bad:
            failed = f.raise_error(f.concat(place, f.lit(": "), reason)).cast(_ERROR_TYPE)
            return f.when(reason.isNull(), nothing).otherwise(failed)
        text = f.to_json(f.struct("*"))
        bad = f.struct(place.alias("place"), reason.alias("reason"), text.alias("text"))
        return f.when(reason.isNotNull(), bad)


def has_nanoseconds(file: BinaryIO) -> bool:
    """Whether a file has timestamps that Spark's reader refuses; they are read by Arrow's, exactly or as bad rows."""
    try:
        schema = pyarrow.parquet.read_schema(file)
    except pa.ArrowException as error:
        raise BrokenFile(f"it is not Parquet: {error}") from error
    return any(_in_nanoseconds(field.type) for field in schema)


def _in_nanoseconds(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return type_.unit == "ns"
    inner = [type_.field(number) for number in range(type_.num_fields)]
    return any(_in_nanoseconds(field.type) for field in inner)


def _by_column(file_schema: FileSchema) -> Mapping[str, str]:
    """Column → name in the file. Spark could not tell names apart that differ only in case."""
    written = [name for name, _ in file_schema]
    if len({name.lower() for name in written}) < len(written):
        raise SchemaRefused(
            f"Columns of a Parquet file differ only in case: {', '.join(written)}.",
            steps=["Write the file with other names."],
        )
    return {column.lower(): name for column, name in zip(column_names(written), written, strict=True)}


def _fault(value: Column, held: Column, given: str, name: str, type_: str) -> Column:
    """Why a value does not fit its declared type; NULL if it does."""
    from pyspark.sql import functions as f

    exact = held.isNotNull() & held.try_cast(given).eqNullSafe(value)
    reason = f.concat(f.lit(f"column {name} {type_} does not hold the value "), value.cast("string"))
    return f.when(value.isNotNull() & ~exact, reason)


def _relative(path: Column, base: str, files: Sequence[str]) -> Column:
    """The file's name below the base, from the URI that Spark gives it: made for every row, so as cheaply as can be."""
    from pyspark.sql import functions as f

    if len(files) == 1:
        return f.lit(files[0])
    if all(_PLAIN.fullmatch(name) for name in (base, *files)):
        return f.substring(path, f.instr(path, f"{base}/") + len(base) + 1, f.length(path))
    # A plus sign stands for itself in a path, but url_decode takes it for a blank.
    plain = f.url_decode(f.regexp_replace(f.regexp_replace(path, r"^file:/+", "/"), r"\+", "%2B"))
    return f.substring(plain, f.lit(len(base) + 2), f.length(plain))
