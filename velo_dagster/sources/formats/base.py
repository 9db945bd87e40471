"""What every file format promises: bytes in, Arrow out, exactly.

Offsets are bytes of the file; of the unpacked stream for compressed files and for encodings whose bytes do not align
with characters; rows for formats that bring their own types. A range [start, stop) begins and ends at a border between
records; `stop` None means to the end, and a `start` of 0 means the first record, after a header if there is one.

A value that does not fit its inferred type is a `Misfit`: the caller surveys everything and reads again. A record that
is broken, or does not fit a type that the user declared, is bad: it ends the read, or is marked in `_velo_reason`.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, ClassVar, Literal

import pyarrow as pa

from velo_dagster.errors import Terminal, VeloError
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sources.formats.lexical import NumberFormat
from velo_dagster.sources.formats.types import Evidence, join_columns

Open = Callable[[], BinaryIO]
OnBad = Literal["fail", "mark"]
Compression = Literal["gzip", "bz2", "zstd"]
Columns = Sequence[tuple[str, str | None]]

# Names that no file can have: sources refuse columns with this prefix.
AT, ERROR, TEXT = "_velo_at", "_velo_reason", "_velo_text"
_SHOWN = 200
_KEPT = 64 * 1024
_MOST_BAD_ROWS = 20
_AWAY = {"\\t": "\t"}


class FormatMisconfigured(Terminal, VeloError):
    """An option of a format that cannot be used."""

    code = "E320"


@dataclass(frozen=True)
class FormatOptions:
    """How to read files of a format. `ignore_unknown` leaves out columns that the schema lacks.

    `null_value` is the text that means NULL in CSV, quoted or not. A record longer than `max_record` bytes is bad.
    `block` is how many bytes are read at once.
    """

    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True
    skip_lines: int = 0
    encoding: str = "utf-8"
    null_value: str = ""
    number_format: NumberFormat = "decimal"
    compression: Compression | None = None
    ignore_unknown: bool = False
    max_record: int = 16 * 1024 * 1024
    block: int = 2 * 1024 * 1024

    def __post_init__(self) -> None:
        object.__setattr__(self, "delimiter", _AWAY.get(self.delimiter, self.delimiter))
        object.__setattr__(self, "quote", self.quote or None)
        for name, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in "\r\n"):
                raise FormatMisconfigured(
                    f"The {name} {mark!r} is not one character of ASCII.",
                    steps=[f'Give one character: WITH ("{name}" = ";"); \\t is a tab.'],
                )
        if self.delimiter == self.quote:
            raise FormatMisconfigured(
                f"Delimiter and quote are the same character, {self.quote!r}.", steps=["Give two different ones."]
            )
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name.removesuffix("-sig"))
        except LookupError:
            raise FormatMisconfigured(
                f"The encoding '{self.encoding}' is not known.",
                steps=["Give one that Python knows, such as utf-8, latin-1, cp1252, utf-16."],
            ) from None


class Misfit(Exception):
    """A value that its column's inferred type does not hold, or that belongs to no known column."""

    def __init__(self, column: str, offset: int, value: str) -> None:
        self.column, self.offset, self.value = column, offset, clip(value)
        super().__init__(column, offset, self.value)

    def __str__(self) -> str:
        return f"the value {self.value!r} at {self.offset} does not fit the column '{self.column}'"


class BadRecord(Exception):
    """A record that cannot be delivered: where it starts, why, and its text."""

    def __init__(self, offset: int, reason: str, text: str) -> None:
        self.offset, self.reason, self.text = offset, reason, text
        super().__init__(offset, reason, text)

    def __str__(self) -> str:
        return f"{self.reason} (record at {self.offset}): {clip(self.text)}"


class BrokenFile(Exception):
    """A file whose bytes are not what its format or compression promises; nothing of it can be trusted.

    `remedy`: what to do, where that is known; else the file may be whole later.
    """

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(reason, remedy)

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class Tail:
    """Where the records of a growing file end.

    `complete` is behind the last terminated record; `record_end` is behind an unterminated record that is whole by its
    form, None if there is none.
    """

    complete: int
    record_end: int | None


@dataclass(frozen=True)
class BadRow:
    """A bad record: where it starts, why, and its text. `line`, in a survey: how many line ends stand before it."""

    offset: int
    line: int
    reason: str
    text: str


@dataclass(frozen=True)
class FileSurvey:
    """What reading all of a range found: evidence per column, the first bad rows and how many there are, records."""

    columns: Mapping[str, Evidence] = field(default_factory=dict)
    bad_rows: tuple[BadRow, ...] = ()
    bad_count: int = 0
    records: int = 0

    def join(self, other: FileSurvey) -> FileSurvey:
        """This survey, then the other one's findings."""
        return FileSurvey(
            join_columns(self.columns, other.columns),
            (self.bad_rows + other.bad_rows)[:_MOST_BAD_ROWS],
            self.bad_count + other.bad_count,
            self.records + other.records,
        )


@dataclass(frozen=True)
class Wanted:
    """Columns to read: their types, the null type while undecided; which are declared; and the names that the file's
    columns are to have, if not its own."""

    names: tuple[str, ...] | None
    columns: Sequence[tuple[str, pa.DataType]]
    declared: frozenset[str]


@dataclass(frozen=True)
class Rows:
    """Records read: columns of the good ones, their offsets, and the bad ones."""

    arrays: Sequence[pa.Array]
    at: Any
    bad: Sequence[BadRow]


class FileFormat(ABC):
    """Reads files of one format. `appendable`: the file grows at its end, and can be read from any record's start."""

    kind: ClassVar[str]

    def __init__(self, options: FormatOptions) -> None:
        self.options = options

    @property
    @abstractmethod
    def appendable(self) -> bool: ...

    @abstractmethod
    def names(self, open_: Open) -> tuple[str, ...]:
        """The columns as the file's head names them; empty where records name their own, or there is no head yet."""

    def shown_names(self, open_: Open, stop: int | None) -> tuple[str, ...]:
        """The columns in the order in which the file shows them first: by its head, else by its first record."""
        return self.names(open_)

    @abstractmethod
    def body(self, open_: Open, size: int) -> int:
        """Where the first record may start; `size` while the head is not complete."""

    @abstractmethod
    def tail(self, open_: Open, start: int, size: int) -> Tail:
        """Where the records in [start, size) end."""

    @abstractmethod
    def split(self, open_: Open, start: int, stop: int | None, target: int) -> list[tuple[int, int | None]]:
        """Ranges of about `target` bytes that cover [start, stop), cut at record starts."""

    @abstractmethod
    def limit(self, open_: Open, start: int, stop: int | None, records: int) -> tuple[int, int]:
        """Behind that many records, and how many there were if there are fewer."""

    @abstractmethod
    def sample(self, open_: Open, start: int, stop: int | None, declared: Mapping[str, str]) -> FileSurvey:
        """What a survey of only some of the records finds."""

    @abstractmethod
    def survey(self, open_: Open, start: int, stop: int | None, declared: Mapping[str, str]) -> FileSurvey:
        """Evidence from all records, and the bad ones; declared columns are held against their types."""

    @abstractmethod
    def read(self, open_: Open, start: int, stop: int | None, wanted: Wanted) -> Iterator[Rows]:
        """The records as the wanted columns; a column that the file lacks is NULL."""

    def batches(
        self,
        open_: Open,
        start: int,
        stop: int | None,
        names: tuple[str, ...] | None,
        schema: Columns,
        declared: frozenset[str],
        on_bad: OnBad,
    ) -> Iterator[pa.RecordBatch]:
        """The records as the schema's columns, then `_velo_at`, `_velo_reason` and `_velo_text`.

        `names` overrides the file's own column names by position. A column without a type comes as Arrow's null type.
        A bad record that is marked has NULL columns, its reason and its text.
        """
        wanted = Wanted(names, arrow_columns(schema), declared)
        emitter = Emitter(wanted.columns, on_bad)
        for rows in self.read(open_, start, stop, wanted):
            yield from emitter.good(rows.arrays, rows.at)
            yield from emitter.bad(rows.bad)

    def typed_schema(self, open_: Open) -> list[tuple[str, str]] | None:
        """The columns and Spark types that the file itself declares; None if it declares none."""
        return None


def clip(text: str, most: int = _SHOWN) -> str:
    """
    >>> clip("abcdef", 3)
    'abc…'
    """
    return text if len(text) <= most else text[:most] + "…"


def arrow_columns(schema: Columns) -> list[tuple[str, pa.DataType]]:
    """The schema's Arrow types; the null type where none is decided."""
    return [(name, pa.null() if text is None else to_arrow(text)) for name, text in schema]


class Emitter:
    """Makes record batches of one read: good rows as they are, bad ones failed or marked."""

    def __init__(self, columns: Sequence[tuple[str, pa.DataType]], on_bad: OnBad) -> None:
        self.on_bad = on_bad
        self.columns = list(columns)
        self.schema = pa.schema([*self.columns, (AT, pa.int64()), (ERROR, pa.string()), (TEXT, pa.string())])

    def good(self, arrays: Sequence[pa.Array], at: Any) -> Iterator[pa.RecordBatch]:
        """Rows in the order of their offsets; nothing if there are none."""
        count = len(at)
        if count:
            nothing = pa.nulls(count, pa.string())
            yield pa.RecordBatch.from_arrays([*arrays, pa.array(at, pa.int64()), nothing, nothing], schema=self.schema)

    def bad(self, rows: Sequence[BadRow]) -> Iterator[pa.RecordBatch]:
        """Fail at the first, or mark them all."""
        if not rows:
            return
        rows = sorted(rows, key=lambda row: row.offset)
        if self.on_bad == "fail":
            raise BadRecord(rows[0].offset, rows[0].reason, clip(rows[0].text, _KEPT))
        count = len(rows)
        arrays = [pa.nulls(count, type_) for _, type_ in self.columns]
        marks = [
            pa.array([row.offset for row in rows], pa.int64()),
            pa.array([row.reason for row in rows], pa.string()),
            pa.array([clip(row.text, _KEPT) for row in rows], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(arrays + marks, schema=self.schema)


def surveyed(columns: Mapping[str, Evidence], bad: Sequence[BadRow], records: int) -> FileSurvey:
    """The survey of one block; its bad rows in the order of their offsets, their texts clipped."""
    rows = sorted(bad, key=lambda row: row.offset)[:_MOST_BAD_ROWS]
    return FileSurvey(columns, tuple(replace(row, text=clip(row.text)) for row in rows), len(bad), records)
