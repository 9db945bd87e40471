"""ORC and Parquet, by Arrow's readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet

from velo_dagster.sources.formats.ddl import to_ddl
from velo_dagster.sources.formats.typed import TypedFormat, broken


class ParquetFormat(TypedFormat):
    """Parquet; a load reads it by Spark, and asks here for its types."""

    kind = "parquet"

    def schema_of(self, file: BinaryIO) -> list[tuple[str, str]]:
        return [(field.name, to_ddl(field.type)) for field in _parquet(file).schema_arrow]

    def count(self, file: BinaryIO) -> int:
        return _parquet(file).metadata.num_rows

    def rows(self, file: BinaryIO, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        reader, first = _parquet(file), 0
        for group in range(reader.num_row_groups):
            rows = reader.metadata.row_group(group).num_rows
            if first < stop and first + rows > start:
                yield from _between(first, _read("Parquet", lambda g=group: reader.read_row_group(g)), start, stop)
            first += rows


class OrcFormat(TypedFormat):
    """ORC. Its timestamps are instants in UTC, as Spark takes them."""

    kind = "orc"

    def schema_of(self, file: BinaryIO) -> list[tuple[str, str]]:
        return [(field.name, to_ddl(_instants(field.type))) for field in _orc(file).schema]

    def count(self, file: BinaryIO) -> int:
        return _orc(file).nrows

    def rows(self, file: BinaryIO, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        reader, first = _orc(file), 0
        for stripe in range(reader.nstripes):
            batch = _read("ORC", lambda s=stripe: reader.read_stripe(s))
            yield from _between(first, pa.Table.from_batches([batch]), start, stop)
            first += batch.num_rows


def _between(first: int, table: pa.Table, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a table between two row numbers; `first` is that of its first row."""
    skip = max(0, start - first)
    for batch in table.slice(skip, max(0, min(stop - first, table.num_rows) - skip)).to_batches():
        yield first + skip, batch
        skip += batch.num_rows


def _instants(type_: pa.DataType) -> pa.DataType:
    """The type with a zone for every timestamp."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _instants(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_instants(type_.key_type), _instants(type_.item_type))
    return pa.list_(_instants(type_.value_type)) if pa.types.is_list(type_) else type_


def _parquet(file: BinaryIO) -> pyarrow.parquet.ParquetFile:
    return _read("Parquet", lambda: pyarrow.parquet.ParquetFile(file))


def _orc(file: BinaryIO) -> pyarrow.orc.ORCFile:
    return _read("ORC", lambda: pyarrow.orc.ORCFile(file))


def _read(what: str, reader: Any) -> Any:
    try:
        return reader()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise broken(what, error) from error
