"""What is in the parts of a scan over files: their columns and types, and the rows themselves.

Parquet files that Spark's own reader takes are read by it, all others by the formats' Arrow readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from velo_dagster.sources import files_messages as messages
from velo_dagster.sources.contract import BadRow, Scan, Schema, Survey
from velo_dagster.sources.files_access import FileAccess
from velo_dagster.sources.files_formats import PARQUET, names_its_columns
from velo_dagster.sources.files_parquet import FileSchema, ParquetRead, has_nanoseconds
from velo_dagster.sources.files_parts import Part
from velo_dagster.sources.files_read import BAD_ROWS_SHOWN, Reading, columns_of
from velo_dagster.sources.files_schema import Columns, held_types, join_all, make_schema, typed_columns
from velo_dagster.sql.names import KIND_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLED_PARTS = 16


@dataclass(frozen=True)
class FileContent:
    """Reads what scans name, as the table declares its columns. `evolution` is what new columns may do."""

    files: FileAccess
    declared: Mapping[str, str]
    evolution: str
    marks_bad_rows: bool
    meter: str | None = None

    def schema(self, scan: Scan, known: Schema) -> Schema:
        """The columns that a sample of the scan shows, after those that are known."""
        some = _some(scan.parts)
        with self.files.told():
            return self._schema_of(
                scan, known, lambda reading: join_all(reading.open_part(part).sample() for part in some)
            )

    def _schema_of(self, scan: Scan, known: Schema, look: Callable[[Reading], Columns]) -> Schema:
        """The schema that a look at records gives. A bare DECIMAL holds them to nothing at first; if it has values that
        are no numbers, these are bad rows, and another look leaves them out."""
        held = held_types(self.declared, ())
        while True:
            schema = self._made(scan, known, look(replace(self.reading(()), declared=held)), {**self.declared, **held})
            more = held_types(self.declared, schema)
            if more.keys() <= held.keys():
                return schema
            held |= more

    def survey(self, spark: SparkSession, scan: Scan, known: Schema) -> Survey:
        """The least types that hold all of the scan, and its bad rows."""
        from velo_dagster.sources.files_spark import survey_parts

        by_spark, by_arrow = self.readers(scan)
        typed = [typed_columns(self._typed(part["file"])) for part in by_spark]
        found: list[dict[str, Any]] = []

        def look(reading: Reading) -> Columns:
            found[:] = survey_parts(spark, reading, by_arrow) if by_arrow else []
            return join_all([*typed, *(columns_of(group) for group in found)])

        schema = self._schema_of(scan, known, look)
        bad = [BadRow(*row) for group in found for row in group["bad"]]
        count = sum(group["bad_count"] for group in found)
        if by_spark:
            more, more_count = self._parquet(schema, True, ()).bad_rows(spark, by_spark, self._typed)
            bad, count = [*more, *bad], count + more_count
        return Survey(schema, tuple(bad[:BAD_ROWS_SHOWN]), count)

    def read(self, spark: SparkSession, scan: Scan, schema: Schema, system_columns: Sequence[str]) -> DataFrame:
        """The rows of the scan, with the columns of the schema."""
        from velo_dagster.sources.files_spark import read_rows

        # Where only a variable tells that the source is a file, a statement may ask for what others have.
        system_columns = tuple(name for name in system_columns if name in KIND_COLUMNS["file"])
        by_spark, by_arrow = self.readers(scan)
        if not by_spark:
            # Only where all tasks note how far they are, it is worth anything.
            reading = replace(self.reading(schema), meter=self.meter)
            return read_rows(spark, reading, by_arrow, schema, system_columns)
        rows = self._parquet(schema, self.marks_bad_rows, system_columns).rows(spark, by_spark, self._typed)
        return (
            rows.union(read_rows(spark, self.reading(schema), by_arrow, schema, system_columns)) if by_arrow else rows
        )

    def readers(self, scan: Scan) -> tuple[list[Part], list[Part]]:
        """The parts that Spark's own reader takes, and the others."""
        by_spark: list[Part] = []
        by_arrow: list[Part] = []
        for part in scan.parts:
            (by_spark if part["kind"] == PARQUET and self._is_for_spark(part["file"]) else by_arrow).append(part)
        return by_spark, by_arrow

    def reading(self, schema: Schema) -> Reading:
        """What executors must know to read parts alike; without a schema, to look which columns there are."""
        names = {field.name.lower() for field in schema}
        held = held_types(self.declared, schema)
        return Reading(
            base=str(self.files.location.base),
            settings=self.files.settings,
            columns=tuple((field.name, field.type) for field in schema),
            declared={name: type_ for name, type_ in held.items() if not schema or name.lower() in names},
            mark_bad=self.marks_bad_rows,
        )

    def _is_for_spark(self, name: str) -> bool:
        with self.files.told():
            path = self.files.location.path(name)
            # Spark's listing takes what stands before a colon for the scheme of a URI, and passes over files that are
            # hidden by their names, without a word, even if they are asked for.
            if ":" in str(path) or path.name.startswith(("_", ".")) or path.name.endswith("._COPYING_"):
                return False
            with messages.named(path), self.files.open(name) as file:
                return not has_nanoseconds(file)

    def _parquet(self, schema: Schema, mark_bad: bool, system_columns: Sequence[str]) -> ParquetRead:
        declared = frozenset(name.lower() for name in held_types(self.declared, schema))
        return ParquetRead(str(self.files.location.base), schema, declared, mark_bad, system_columns)

    def _typed(self, name: str) -> FileSchema:
        """The columns and types that a file itself declares."""
        with self.files.told(), messages.named(self.files.location.path(name)):
            return tuple(self.files.opened(name).format.typed_schema(partial(self.files.open, name)) or ())

    def _made(self, scan: Scan, known: Schema, seen: Columns, declared: Mapping[str, str]) -> Schema:
        # A JSON record may leave out any field; a file with a header that lacks a declared column is another matter.
        names_itself = any(names_its_columns(part["kind"]) for part in scan.parts[:1])
        return make_schema(
            known,
            seen,
            declared,
            self.evolution,
            shown=scan.names,
            add_declared=names_itself or not (known or seen),
        )


def _some(parts: Sequence[Part]) -> Sequence[Part]:
    """Parts for a sample: the first one, the last one, some spread between, and those that show a column first."""
    if len(parts) <= SAMPLED_PARTS:
        return parts
    step = (len(parts) - 1) / (SAMPLED_PARTS - 1)
    spread = {round(number * step) for number in range(SAMPLED_PARTS)}
    return [part for number, part in enumerate(parts) if number in spread or "shows" in part]
