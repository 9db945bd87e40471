"""Avro object container files, by fastavro; logical types are read exactly.

A union of null and one type is that type; a union of several is the least type that holds them all. Times of day,
UUIDs and enumerations are text.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from datetime import time
from itertools import islice
from typing import Any, BinaryIO
from uuid import UUID

import fastavro
import pyarrow as pa

from velo_dagster.sources.formats.ddl import UnreadableType, struct_ddl, to_arrow
from velo_dagster.sources.formats.typed import TypedFormat, broken
from velo_dagster.sources.formats.types import join_types

_ROWS = 16 * 1024
_PLAIN = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
    "fixed": "BINARY",
    "enum": "STRING",
}
_LOGICAL = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "time-millis": "STRING",
    "time-micros": "STRING",
    "uuid": "STRING",
}
# What fastavro raises on bytes that are not what the header promises.
_BROKEN = (ValueError, EOFError, IndexError, KeyError, TypeError, OSError, StopIteration, struct.error, zlib.error)


class AvroFormat(TypedFormat):
    """Avro; its rows are read one by one."""

    kind = "avro"

    def schema_of(self, file: BinaryIO) -> list[tuple[str, str]]:
        return _columns(_reader(file).writer_schema)

    def count(self, file: BinaryIO) -> int:
        file.seek(0)
        try:
            return sum(block.num_records for block in fastavro.block_reader(file))
        except _BROKEN as error:
            raise broken("Avro", error) from error

    def rows(self, file: BinaryIO, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        reader = _reader(file)
        schema = pa.schema([(name, to_arrow(text)) for name, text in _columns(reader.writer_schema)])
        records = islice(reader, start, stop)
        first = start
        while chunk := _take(records):
            columns = [[_plain(record[name], schema.field(name).type) for record in chunk] for name in schema.names]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield first, pa.RecordBatch.from_arrays(arrays, schema=schema)
            first += len(chunk)


def _reader(file: BinaryIO) -> Any:
    file.seek(0)
    try:
        return fastavro.reader(file)
    except _BROKEN as error:
        raise broken("Avro", error) from error


def _take(records: Iterator[Any]) -> list[Any]:
    try:
        return list(islice(records, _ROWS))
    except _BROKEN as error:
        raise broken("Avro", error) from error


def _columns(schema: Any) -> list[tuple[str, str]]:
    named: dict[str, Any] = {}
    _collect(schema, named)
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise broken("Avro", ValueError("its schema is not a record"))
    return [(field["name"], _spark(field["type"], named)) for field in schema["fields"]]


def _collect(schema: Any, named: dict[str, Any]) -> None:
    """All named types, so that references to them can be followed."""
    if isinstance(schema, list):
        for member in schema:
            _collect(member, named)
    elif isinstance(schema, Mapping):
        if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
            named[schema["name"]] = schema
        for inner in (schema.get("type"), schema.get("items"), schema.get("values")):
            if isinstance(inner, list | Mapping):
                _collect(inner, named)
        for field in schema.get("fields", ()):
            _collect(field["type"], named)


def _spark(schema: Any, named: Mapping[str, Any], within: tuple[str, ...] = ()) -> str:
    if isinstance(schema, list):
        joined: str | None = None
        for member in schema:
            joined = joined if member == "null" else join_types(joined, _spark(member, named, within))
        return joined or "STRING"
    if isinstance(schema, str):
        return _PLAIN[schema] if schema in _PLAIN else _spark(named[schema], named, within)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return f"DECIMAL({schema['precision']},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        return f"ARRAY<{_spark(schema['items'], named, within)}>"
    if kind == "map":
        return f"MAP<STRING, {_spark(schema['values'], named, within)}>"
    if kind == "record":
        if schema["name"] in within:
            raise UnreadableType(f"{schema['name']}, which holds itself")
        inside = (*within, schema["name"])
        return struct_ddl((field["name"], _spark(field["type"], named, inside)) for field in schema["fields"])
    return _spark(kind, named, within)


def _plain(value: Any, type_: pa.DataType) -> Any:
    """A value as Arrow takes it for the type."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return [(key, _plain(item, type_.item_type)) for key, item in value.items()]
    if pa.types.is_list(type_):
        return [_plain(item, type_.value_type) for item in value]
    if pa.types.is_string(type_) and not isinstance(value, str):
        return value.isoformat() if isinstance(value, time) else str(value) if isinstance(value, UUID) else _text(value)
    return value


def _text(value: Any) -> str:
    """A member of a union that has to be text."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value).lower() if isinstance(value, bool) else str(value)
