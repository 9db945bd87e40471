"""Which format a file has: from the property, else from its name, and for json from its first byte.

A file's `kind` is a short text such as `csv`, `jsonl+gzip` or `json`, kept in positions, from which an executor makes
the same reader again.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, cast

from velo_dagster.sources.errors import SourceMisconfigured
from velo_dagster.sources.files_hash import Open
from velo_dagster.sources.formats import open_format
from velo_dagster.sources.formats.base import Compression, FileFormat, FormatOptions
from velo_dagster.sources.formats.lexical import NumberFormat
from velo_dagster.sources.formats.streams import opened

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".jsonlines": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".avro": "avro",
    ".orc": "orc",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}
NAMES = ("csv", "csv_no_header", "json", "jsonl", "parquet", "avro", "orc", "text")
PARQUET = "parquet"


@dataclass(frozen=True)
class FormatSettings:
    """What the properties say about reading files; plain JSON, so that executors read alike."""

    format: str | None
    delimiter: str
    quote: str | None
    header: bool
    skip_lines: int
    encoding: str
    null_value: str
    number_format: str
    ignore_unknown: bool

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> FormatSettings:
        return cls(
            format=properties["format"],
            delimiter=properties["delimiter"],
            quote=properties["quote"],
            header=properties["header"],
            skip_lines=properties["skip_lines"],
            encoding=properties["encoding"],
            null_value=properties["null.value"],
            number_format=properties["number.format"],
            ignore_unknown=properties["schema.evolution"] == "ignore",
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def format_of(settings: FormatSettings, name: str) -> tuple[str, str | None]:
    """The format and the compression that a file's name means.

    >>> plain = FormatSettings(None, ",", '"', True, 0, "utf-8", "", "decimal", False)
    >>> format_of(plain, "a/orders.csv.gz"), format_of(plain, "x.JSONL")
    (('csv', 'gzip'), ('jsonl', None))
    """
    path = PurePosixPath(name.lower())
    compression = _COMPRESSIONS.get(path.suffix)
    if compression:
        path = path.with_suffix("")
    found = settings.format or _FORMATS.get(path.suffix)
    if found is None:
        raise SourceMisconfigured(
            f"The name '{name}' does not say which format the file has.",
            steps=[f'Say it: WITH ("format" = "csv"); known are {", ".join(NAMES)}.'],
        )
    if found == "csv" and not settings.header:
        found = "csv_no_header"
    return found, compression


def check_one_format(settings: FormatSettings, names: Iterable[str]) -> None:
    """One pattern, one format: rows of different formats have nothing to do with each other."""
    seen: dict[str, str] = {}
    for name in names:
        seen.setdefault(format_of(settings, name)[0], name)
    if len(seen) > 1:
        examples = ", ".join(f"'{name}' is {kind}" for kind, name in sorted(seen.items()))
        raise SourceMisconfigured(
            f"The files have different formats: {examples}.",
            steps=["Write a pattern that takes files of one format.", 'Or say it: WITH ("format" = "csv").'],
        )


def kind_of(settings: FormatSettings, name: str, open_: Open) -> str:
    """The file's kind; looks at the first byte of a json file, lines to skip aside: an array is one value."""
    found, compression = format_of(settings, name)
    if found == "json" and not _is_array(settings, compression, open_):
        found = "jsonl"
    if name.lower().removesuffix(PurePosixPath(name).suffix if compression else "").endswith(".tsv"):
        found = f"{found}.tab"
    return found if compression is None else f"{found}+{compression}"


def names_its_columns(kind: str | None) -> bool:
    """Whether each record of a kind of file names its own columns."""
    return (kind or "").startswith("json")


@lru_cache(maxsize=64)
def reader_of(settings: FormatSettings, kind: str) -> FileFormat:
    """The reader of a kind of file."""
    name, _, compression = kind.partition("+")
    name, _, tab = name.partition(".")
    return open_format(
        name,
        FormatOptions(
            delimiter="\t" if tab and settings.delimiter == "," else settings.delimiter,
            quote=settings.quote,
            header=settings.header,
            skip_lines=settings.skip_lines,
            encoding=settings.encoding,
            null_value=settings.null_value,
            number_format=cast(NumberFormat, settings.number_format),
            compression=cast(Compression, compression) if compression else None,
            ignore_unknown=settings.ignore_unknown,
        ),
    )


def _is_array(settings: FormatSettings, compression: str | None, open_: Open) -> bool:
    lines = settings.skip_lines
    with opened(open_, cast(Compression | None, compression), settings.encoding) as file:
        while data := file.read(4096):
            ends = min(lines, data.count(b"\n"))
            lines -= ends
            rest = b"" if lines else data.split(b"\n", ends)[ends]
            text = rest.removeprefix(codecs.BOM_UTF8).lstrip()
            if text:
                return text.startswith(b"[")
    return False
