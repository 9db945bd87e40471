"""File formats: bytes to Arrow, exactly. No Spark, no positions."""

from __future__ import annotations

from dataclasses import replace

from velo_dagster.sources.formats.avro import AvroFormat
from velo_dagster.sources.formats.base import (
    BadRecord,
    BrokenFile,
    FileFormat,
    FormatMisconfigured,
    FormatOptions,
    Misfit,
)
from velo_dagster.sources.formats.columnar import OrcFormat, ParquetFormat
from velo_dagster.sources.formats.csv import CsvFormat
from velo_dagster.sources.formats.json import JsonLinesFormat
from velo_dagster.sources.formats.json_array import JsonArrayFormat
from velo_dagster.sources.formats.text import TextFormat

_FORMATS: dict[str, type[FileFormat]] = {
    "csv": CsvFormat,
    "csv_no_header": CsvFormat,
    "json": JsonArrayFormat,
    "jsonl": JsonLinesFormat,
    "jsonlines": JsonLinesFormat,
    "parquet": ParquetFormat,
    "avro": AvroFormat,
    "orc": OrcFormat,
    "text": TextFormat,
}
NAMES = tuple(_FORMATS)

__all__ = [
    "NAMES",
    "BadRecord",
    "BrokenFile",
    "FileFormat",
    "FormatOptions",
    "Misfit",
    "open_format",
]


def open_format(name: str, options: FormatOptions) -> FileFormat:
    """The reader of a format; `json` is an array, lines of JSON are `jsonl`."""
    if name not in _FORMATS:
        raise FormatMisconfigured(f"The format '{name}' is not known.", steps=[f"Give one of: {', '.join(NAMES)}."])
    if name == "csv_no_header":
        options = replace(options, header=False)
    return _FORMATS[name](options)
