"""Reading one part of a scan, wherever that runs: from bytes to Arrow. No Spark here.

A part that has been read is looked at once more: if the file is no longer what its position says, the part fails, so
that nothing is committed under a position that does not describe it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from velo_dagster.sources.errors import SourceChanged
from velo_dagster.sources.files_end import same_content
from velo_dagster.sources.files_formats import FormatSettings, reader_of
from velo_dagster.sources.files_hash import Open
from velo_dagster.sources.files_keys import read_by_key
from velo_dagster.sources.files_lines import LineCounter
from velo_dagster.sources.files_listing import Stat
from velo_dagster.sources.files_messages import named
from velo_dagster.sources.files_parts import Part
from velo_dagster.sources.files_position import Entry
from velo_dagster.sources.files_schema import Columns, by_column, column_names, join_all, type_of, typed_columns
from velo_dagster.sources.formats.base import AT, ERROR, TEXT, BadRow, FileFormat, FileSurvey, OnBad
from velo_dagster.sources.formats.types import NOTHING, Evidence

BAD_ROWS_SHOWN = 20


@dataclass(frozen=True)
class Reading:
    """How the parts of a scan are to be read: plain values that travel to executors."""

    base: str
    settings: FormatSettings
    columns: tuple[tuple[str, str | None], ...]
    declared: Mapping[str, str]
    mark_bad: bool
    meter: str | None = None

    @property
    def on_bad(self) -> OnBad:
        return "mark" if self.mark_bad else "fail"

    def declared_among(self, names: Iterable[str]) -> frozenset[str]:
        declared = {name.lower() for name in self.declared}
        return frozenset(name for name in names if name.lower() in declared)

    def packed(self, parts: Sequence[Part]) -> bytes:
        """How to read, and the parts that one task reads."""
        plain = asdict(self) | {"parts": parts}
        return zlib.compress(json.dumps(plain).encode(), 1)

    @staticmethod
    def unpacked(packed: bytes) -> tuple[Reading, list[Part]]:
        plain = json.loads(zlib.decompress(packed))
        parts = plain.pop("parts")
        plain["settings"] = FormatSettings(**plain["settings"])
        plain["columns"] = tuple((name, type_) for name, type_ in plain["columns"])
        return Reading(**plain), parts

    def open_part(self, part: Part) -> OpenPart:
        path = Path(self.base) / part["file"]
        return OpenPart(self, part, path, partial(path.open, "rb"), reader_of(self.settings, part["kind"]))


@dataclass(frozen=True)
class OpenPart:
    """A part together with its file."""

    reading: Reading
    part: Part
    path: Path
    open_: Open
    format: FileFormat

    @property
    def range(self) -> tuple[int, int | None]:
        return self.part["start"], self.part["stop"]

    @cached_property
    def written_names(self) -> tuple[str, ...]:
        """The columns as the file's head names them; none where each record names its own."""
        return self.format.names(self.open_)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return column_names(self.written_names)

    @cached_property
    def lines(self) -> LineCounter:
        return LineCounter(self.format.options, self.open_)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The part's rows: the columns in their types, then `_at`, `_error`, `_text`."""
        with named(self.path):
            yield from self._from_head() if self.names else read_by_key(self)
        self.check()

    def _from_head(self) -> Iterator[pa.RecordBatch]:
        columns = self.reading.columns
        declared = self.reading.declared_among(name for name, _ in columns)
        # Files may spell a column's name in different cases; the schema has one of the spellings.
        spelling = {name.lower(): name for name, _ in columns}
        names = tuple(spelling.get(name.lower(), name) for name in self.names)
        yield from self.format.batches(self.open_, *self.range, names, columns, declared, self.reading.on_bad)

    def sample(self) -> Columns:
        """A look at some of the part's records: what is in which column."""
        with named(self.path):
            typed = self.format.typed_schema(self.open_)
            if typed is not None:
                return typed_columns(typed)
            return self._named(self._seen(self.format.sample).columns)

    def survey(self) -> dict[str, Any]:
        """All of the part's records, as plain JSON: what is in which column, the bad rows and their places."""
        with named(self.path):
            typed = self.format.typed_schema(self.open_)
            found = self._surveyed()
        self.check()
        return {
            "columns": plain_columns(typed_columns(typed) if typed is not None else self._named(found.columns)),
            "bad": [[self.place(row.offset), row.reason, row.text] for row in found.bad_rows],
            "bad_count": found.bad_count,
            "records": found.records,
        }

    def _surveyed(self) -> FileSurvey:
        found = self._seen(self.format.survey)
        columns = {column_names([name])[0].lower() for name in found.columns}
        return found if self.names or len(columns) == len(found.columns) else self._with_doubles(found)

    def _seen(self, look: Callable[[Open, int, int | None, Mapping[str, str]], FileSurvey]) -> FileSurvey:
        """Declared types hold for every spelling of a column's name, and the file alone knows which there are."""
        declared = {name.lower(): type_ for name, type_ in self.reading.declared.items()}
        if self.names:
            pairs = zip(self.written_names, self.names, strict=True)
            spelled = {written: declared[name.lower()] for written, name in pairs if name.lower() in declared}
            return look(self.open_, *self.range, spelled)
        spelled = dict(self.reading.declared)
        while True:
            found = look(self.open_, *self.range, spelled)
            columns = {name: column_names([name])[0].lower() for name in found.columns}
            more = {name: declared[low] for name, low in columns.items() if low in declared and name not in spelled}
            if not more:
                return found
            spelled |= more

    def _with_doubles(self, found: FileSurvey) -> FileSurvey:
        """Columns have several spellings here: records that fill two of them are bad, which only reading shows."""
        types = by_column(found.columns)
        declared = {name: type_ for name, type_ in self.reading.declared.items() if name not in types}
        columns = (*((name, type_of(seen)) for name, seen in types.items()), *declared.items())
        part = replace(self, reading=replace(self.reading, columns=columns, mark_bad=True))
        known = {row.offset for row in found.bad_rows}
        doubles = [
            BadRow(row[AT], 0, row[ERROR], row[TEXT])
            for batch in read_by_key(part)
            if batch.column(ERROR).null_count < batch.num_rows
            for row in batch.select([AT, ERROR, TEXT]).to_pylist()
            if row[ERROR] is not None and row[AT] not in known
        ]
        rows = sorted((*found.bad_rows, *doubles), key=lambda row: row.offset)
        count = max(found.bad_count, len(known) + len(doubles))
        return replace(found, bad_rows=tuple(rows[:BAD_ROWS_SHOWN]), bad_count=count)

    def place(self, at: int) -> str:
        """Where a record stands, as a user looks for it."""
        if self.format.typed_schema(self.open_) is not None:
            return f"{self.path}: row {at + 1}"
        return f"{self.path}:{self.lines.line_of(at)}"

    def check(self) -> None:
        """Fail if the file is not (or no longer) the one that the part's position describes."""
        status = self.path.stat()
        entry, now = Entry(**self.part["entry"]), Stat(status.st_size, status.st_mtime_ns)
        if now == Stat(entry.size, entry.mtime_ns) and not entry.fresh:
            return
        if not same_content(entry, now, self.open_):
            raise SourceChanged(f"File '{self.path}' changed while it was being read.")

    def _named(self, found: Mapping[str, Evidence]) -> Columns:
        """By column name: a head's names are told apart within the head, others are what the records call them."""
        if not self.names:
            return by_column(found)
        # A survey says nothing about declared columns; they are columns all the same.
        return {name: found.get(written, NOTHING) for written, name in zip(self.written_names, self.names, strict=True)}


def join_surveys(surveys: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What several parts found, as one, in the order given."""
    columns: Columns = {}
    bad: list[list[str]] = []
    bad_count = records = 0
    for survey in surveys:
        columns = join_all([columns, columns_of(survey)])
        bad += survey["bad"][: BAD_ROWS_SHOWN - len(bad)]
        bad_count += survey["bad_count"]
        records += survey["records"]
    return {"columns": plain_columns(columns), "bad": bad, "bad_count": bad_count, "records": records}


def columns_of(survey: Mapping[str, Any]) -> Columns:
    """What a survey's plain JSON says about columns."""
    return {name: Evidence.from_json(seen) if isinstance(seen, dict) else seen for name, seen in survey["columns"]}


def plain_columns(columns: Columns) -> list[list[Any]]:
    return [[name, seen.to_json() if isinstance(seen, Evidence) else seen] for name, seen in columns.items()]


def line_numbers(part: OpenPart, batch: pa.RecordBatch) -> pa.Array:
    """The number of the line on which each record begins."""
    return pa.array(part.lines.lines_of(np.asarray(batch.column(AT))), pa.int64())


def errors_of(part: OpenPart, batch: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
    """Place, reason and text of the bad rows; NULL for good ones."""
    reasons = batch.column(ERROR)
    if reasons.null_count == len(reasons):
        return pa.nulls(len(reasons), type_)
    rows = zip(batch.column(AT).to_pylist(), reasons.to_pylist(), batch.column(TEXT).to_pylist(), strict=True)
    return pa.array(
        [None if why is None else {"place": part.place(at), "reason": why, "text": text} for at, why, text in rows],
        type_,
    )
