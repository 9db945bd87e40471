"""Reading one part of a scan, wherever that runs: from bytes to Arrow. No Spark here.

A part that has been read is looked at once more: if the file is no longer what its position says, the part fails, so
that nothing is committed under a position that does not describe it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from velo_dagster.sources.errors import SourceChanged
from velo_dagster.sources.files_end import same_content
from velo_dagster.sources.files_formats import FormatSettings, reader_of
from velo_dagster.sources.files_hash import Open
from velo_dagster.sources.files_listing import Stat
from velo_dagster.sources.files_parts import Part
from velo_dagster.sources.files_position import Entry
from velo_dagster.sources.files_schema import column_names
from velo_dagster.sources.formats.base import FileFormat

AT, BAD, TEXT = "_at", "_error", "_text"
"""Columns that a format adds to its own: where a record begins; why it is bad, and how it reads, or NULL."""


@dataclass(frozen=True)
class Reading:
    """How the parts of a scan are to be read: plain values that travel to executors as one text."""

    base: str
    settings: FormatSettings
    columns: tuple[tuple[str, str | None], ...]
    declared: Mapping[str, str]
    mark_bad: bool

    def to_text(self, groups: Sequence[Sequence[Part]]) -> str:
        plain = {
            "base": self.base,
            "settings": self.settings.to_json(),
            "columns": self.columns,
            "declared": dict(self.declared),
            "mark_bad": self.mark_bad,
            "groups": groups,
        }
        return base64.b64encode(zlib.compress(json.dumps(plain).encode(), 1)).decode()

    @staticmethod
    def from_text(text: str) -> tuple[Reading, list[list[Part]]]:
        plain = json.loads(zlib.decompress(base64.b64decode(text)))
        groups = plain.pop("groups")
        plain["settings"] = FormatSettings(**plain["settings"])
        plain["columns"] = tuple((name, type_) for name, type_ in plain["columns"])
        return Reading(**plain), groups

    def open_part(self, part: Part) -> OpenPart:
        path = Path(self.base) / part["file"]
        open_ = partial(path.open, "rb")
        format_ = reader_of(self.settings, part["kind"])
        return OpenPart(self, part, path, open_, format_)


@dataclass(frozen=True)
class OpenPart:
    """A part together with its file."""

    reading: Reading
    part: Part
    path: Path
    open_: Open
    format: FileFormat

    @property
    def start(self) -> int:
        return self.part["start"] or self.format.body(self.open_, self.part["entry"]["size"])

    def names(self) -> tuple[str, ...] | None:
        """The columns' names where the file has a header; None where each record names its own."""
        return column_names(self.format.names(self.open_)) or None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The part's rows: the columns in their types, then `_at`, `_error`, `_text`."""
        yield from self.format.batches(
            self.open_,
            self.start,
            self.part["stop"],
            self.names(),
            self.reading.columns,
            frozenset(self.reading.declared),
            "mark" if self.reading.mark_bad else "fail",
        )
        self.check()

    def check(self) -> None:
        """Fail if the file is not (or no longer) the one that the part's position describes."""
        status = self.path.stat()
        entry = Entry(**self.part["entry"])
        now = Stat(status.st_size, status.st_mtime_ns)
        if (now == Stat(entry.size, entry.mtime_ns) and not entry.fresh) or same_content(entry, now, self.open_):
            return
        raise SourceChanged(f"File '{self.path}' changed while it was being read.")

    def place(self, line: int) -> str:
        return f"{self.path}:{line}"
