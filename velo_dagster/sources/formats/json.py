"""JSON: an object per line, or an array of objects.

A block of lines is read at once where that is safe (`json_columns`). Where it is not, its two halves are tried, and so
on down to a few lines, which are read value by value (`json_values`): one odd line does not slow down all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from velo_dagster.sources.formats import json_values
from velo_dagster.sources.formats.base import (
    BadRow,
    FileSurvey,
    FormatOptions,
    Misfit,
    Open,
    Rows,
    Wanted,
    clip,
    surveyed,
)
from velo_dagster.sources.formats.ddl import named_type, to_arrow
from velo_dagster.sources.formats.json_columns import Column, ColumnReader, evidence_of
from velo_dagster.sources.formats.json_values import NotARecord
from velo_dagster.sources.formats.lexical import DOES_NOT_FIT
from velo_dagster.sources.formats.lines import Block, LineFormat, Records
from velo_dagster.sources.formats.records import LineCutter, Offsets
from velo_dagster.sources.formats.types import NOTHING, Evidence, join_columns

_FEW = 128
_GUESS = 32
_ODD = 4
_BLANK = 32
_FIRST = 64 * 1024


class JsonLinesFormat(LineFormat):
    """A JSON object per line; lines that are empty or blank are no records."""

    kind = "jsonl"

    def __init__(self, options: FormatOptions) -> None:
        super().__init__(options)
        self.cutter = LineCutter(keep_empty=False)

    def shown_names(self, open_: Open, stop: int | None) -> tuple[str, ...]:
        for block in self.blocks(open_, self.first(open_, 0), stop, size=_FIRST):
            if block.broken:
                return ()
            records = self.records(block)
            first = min((row.offset for row in records.bad), default=block.offset + block.size)
            if len(records.at) and records.at[0] < first:
                return tuple(next((record for _, record in _decoded(records, 0, 1, [])), ()))
            if records.bad:
                return ()
        return ()

    def is_whole(self, open_: Open, record: bytes) -> bool:
        try:
            json_values.decode(record.decode(self.options.encoding))
        except (NotARecord, UnicodeDecodeError):
            return False
        return True

    def records(self, block: Block) -> Records:
        """Without the blanks around them, and without lines that are blank: neither means anything in JSON."""
        records = super().records(block)
        octets = np.frombuffer(records.data, np.uint8)
        if (octets[records.starts] > _BLANK).all() and (octets[records.ends - 1] > _BLANK).all():
            return records
        ink = np.flatnonzero(octets > _BLANK)
        first, past = np.searchsorted(ink, records.starts), np.searchsorted(ink, records.ends)
        filled = past > first
        starts, ends = ink[first[filled]], ink[past[filled] - 1] + 1
        at = records.at[filled] + starts - records.starts[filled]
        return replace(records, starts=starts, ends=ends, at=at)

    def observe(self, records: Records, names: tuple[str, ...], declared: Mapping[str, str]) -> FileSurvey:
        fixed = [Column(name, to_arrow(text), True) for name, text in declared.items()]
        found = surveyed({}, records.bad, len(records.bad))
        for here in _in_pieces(
            len(records.at),
            lambda low, high: self._observe_at_once(records, low, high, fixed),
            lambda low, high: self._observe_each(records, low, high, fixed),
        ):
            found = found.join(here)
        return found

    def reader(self, open_: Open, wanted: Wanted) -> Callable[[Records], Rows]:
        columns = [Column(name, type_, name in wanted.declared) for name, type_ in wanted.columns]
        reader = ColumnReader(columns, self.options.ignore_unknown)
        return lambda records: self._read(records, columns, reader)

    def _read(self, records: Records, columns: Sequence[Column], reader: ColumnReader) -> Rows:
        pieces = [
            Rows([pa.nulls(0, column.type) for column in columns], records.at[:0], records.bad),
            *_in_pieces(
                len(records.at),
                lambda low, high: _read_at_once(records, low, high, reader),
                lambda low, high: self._read_each(records, low, high, columns),
            ),
        ]
        if len(pieces) == 2:
            return replace(pieces[1], bad=[*records.bad, *pieces[1].bad])
        arrays = [pa.concat_arrays(parts) for parts in zip(*(piece.arrays for piece in pieces), strict=True)]
        bad = [row for piece in pieces for row in piece.bad]
        return Rows(arrays, np.concatenate([piece.at for piece in pieces]), bad)

    def _read_each(self, records: Records, low: int, high: int, columns: Sequence[Column]) -> Rows:
        rows: list[list[Any]] = []
        kept: list[int] = []
        bad: list[BadRow] = []
        for index, record in _decoded(records, low, high, bad):
            row, misfit = self._fitted(record, columns)
            if misfit is None:
                self._expect_known(record, columns, int(records.at[index]))
                rows.append(row)
                kept.append(index)
            elif misfit.declared:
                bad.append(records.bad_row(index, _does_not_fit(record, misfit)))
            else:
                raise Misfit(misfit.name, int(records.at[index]), json_values.text_of(record[misfit.name]))
        arrays = [pa.array([row[place] for row in rows], column.type) for place, column in enumerate(columns)]
        return Rows(arrays, records.at[kept], bad)

    def _fitted(self, record: Mapping[str, Any], columns: Sequence[Column]) -> tuple[list[Any], Column | None]:
        """The record's values under the columns' types, and a column whose value does not fit: the first declared one,
        since then the record is bad, and says nothing about the types of others."""
        row = [
            json_values.fit(record.get(column.name), column.type, column.declared, self.options.ignore_unknown)
            for column in columns
        ]
        misfits = [column for column, value in zip(columns, row, strict=True) if value is DOES_NOT_FIT]
        return row, next((column for column in misfits if column.declared), misfits[0] if misfits else None)

    def _expect_known(self, record: Mapping[str, Any], columns: Sequence[Column], offset: int) -> None:
        """A field that is in no column makes a new one, even one without a type: all is to be read again."""
        if self.options.ignore_unknown:
            return
        known = {column.name for column in columns}
        for name, value in record.items():
            if name not in known:
                raise Misfit(name, offset, json_values.text_of(value))

    def _observe_each(self, records: Records, low: int, high: int, fixed: Sequence[Column]) -> FileSurvey:
        names = {column.name for column in fixed}
        columns: dict[str, Evidence] = {}
        bad: list[BadRow] = []
        count = 0
        for index, record in _decoded(records, low, high, bad):
            count += 1
            misfit = self._fitted(record, fixed)[1]
            if misfit is not None:
                bad.append(records.bad_row(index, _does_not_fit(record, misfit)))
                count -= 1
                continue
            for name, value in record.items():
                if name not in names:
                    here = json_values.observe(value, self.options.number_format)
                    columns[name] = columns.get(name, NOTHING).join(here)
        return surveyed(columns, bad, count + len(bad))

    def _observe_at_once(self, records: Records, low: int, high: int, fixed: Sequence[Column]) -> FileSurvey | None:
        """Guess the types from a few records, read all with them, and see how many digits there really are."""
        if high - low <= _FEW:
            return None
        guess = self._observe_each(records, low, low + _GUESS, fixed).columns
        guessed = [Column(name, _arrow(seen.type())) for name, seen in guess.items()]
        read = ColumnReader([*guessed, *fixed], ignore_unknown=False).read(*_lines(records, low, high))
        if read is None:
            return None
        declared = {column.name for column in fixed}
        raw = {name: array for name, array in read[1].items() if name not in declared}
        found = {name: evidence_of(array, guess.get(name, NOTHING)) for name, array in raw.items()}
        return FileSurvey(join_columns(guess, found), (), 0, high - low)


T = TypeVar("T")


def _in_pieces(count: int, at_once: Callable[[int, int], T | None], each: Callable[[int, int], T]) -> Iterator[T]:
    """Take records at once where that works, else in halves, a few of them one by one.

    Where most records turn out to need that, the rest is not even tried.
    """
    pieces, quick, slow = [(0, count)], 0, 0
    while pieces:
        low, high = pieces.pop()
        if low >= high:
            continue
        odd = slow > _ODD * _FEW and slow > quick
        found = None if odd else at_once(low, high)
        if found is not None:
            quick += high - low
            yield found
        elif odd or high - low <= _FEW:
            slow += high - low
            yield each(low, high)
        else:
            middle = (low + high) // 2
            pieces += [(middle, high), (low, middle)]


def _read_at_once(records: Records, low: int, high: int, reader: ColumnReader) -> Rows | None:
    read = reader.read(*_lines(records, low, high))
    if read is None or len(read[1].keys() - reader.names):
        return None
    return Rows(read[0], records.at[low:high], [])


def _lines(records: Records, low: int, high: int) -> tuple[bytes, Offsets, Offsets]:
    """Some of the records, as a block of their own."""
    start, end = int(records.starts[low]), int(records.ends[high - 1])
    return records.data[start:end], records.starts[low:high] - start, records.ends[low:high] - start


def _decoded(records: Records, low: int, high: int, bad: list[BadRow]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records that are objects; others are added to the bad ones."""
    for index in range(low, high):
        text = records.data[records.starts[index] : records.ends[index]].decode()
        try:
            yield index, json_values.decode(text)
        except NotARecord as error:
            bad.append(records.bad_row(index, str(error)))


def _does_not_fit(record: Mapping[str, Any], column: Column) -> str:
    return (
        f"{clip(json_values.text_of(record[column.name]))!r} in column '{column.name}' is not {named_type(column.type)}"
    )


def _arrow(text: str | None) -> pa.DataType:
    return pa.null() if text is None else to_arrow(text)
