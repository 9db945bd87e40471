"""CSV: records cut by `records`, fields by Arrow's parser, values by `convert`.

All fields are read as text first, so that one parse serves types and evidence alike. Columns are bound by the names in
the header; names that repeat, whatever their case, get a number behind them, empty ones are called by their place. The
text of `null_value` means NULL with or without quotes, as many exports quote everything. Empty lines are no records,
not even where there is only one column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from velo_dagster.sources.formats import convert
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
from velo_dagster.sources.formats.lines import LineFormat, Records
from velo_dagster.sources.formats.records import CsvCutter

Texts = Mapping[str, pa.Array]


@dataclass(frozen=True)
class _Parsed:
    """The records of a block with the right number of fields: their columns as text, and which records they are."""

    columns: Texts
    index: np.ndarray[Any, np.dtype[np.int64]]
    bad: list[BadRow]


class CsvFormat(LineFormat):
    """Fields with a delimiter between them, a record per line; quoted fields may hold line ends."""

    kind = "csv"

    def __init__(self, options: FormatOptions) -> None:
        super().__init__(options)
        self.cutter = CsvCutter(options.delimiter, options.quote)
        # Thousands of files share a header; parsing it costs more than opening the file.
        self._named = lru_cache(maxsize=256)(lambda record: _unique(self._fields(record)))

    def names(self, open_: Open) -> tuple[str, ...]:
        if self.options.header:
            head, end = self.head(open_)
            return () if end is None else self._named(self._last_record(head))
        for block in self.blocks(open_, self.first(open_, 0), None, size=64 * 1024):
            if len(block.starts):
                record = block.data[block.starts[0] : block.ends[0]]
                return tuple(f"column_{place}" for place in range(len(self._fields(record))))
        return ()

    def is_whole(self, open_: Open, record: bytes) -> bool:
        """By its form: no open quote, no character cut in half, as many fields as the others."""
        try:
            text = record.decode(self.options.encoding).encode()
        except UnicodeDecodeError:
            return False
        cut = self.cutter.cut(text, final=True)
        if cut.consumed < len(text) or len(cut.starts) != 1:
            return False
        return len(self._fields(record)) == len(self.names(open_))

    def observe(self, records: Records, names: tuple[str, ...], declared: Mapping[str, str]) -> FileSurvey:
        parsed = self._parse(records, names)
        misfits = _Misfits(len(parsed.index))
        for name, texts in parsed.columns.items():
            if name in declared:
                type_ = to_arrow(declared[name])
                misfits.add(name, type_, convert.convert(texts, type_, declared=True)[1])
        good = {name: misfits.drop(texts) for name, texts in parsed.columns.items() if name not in declared}
        columns = {name: convert.observe(texts, self.options.number_format) for name, texts in good.items()}
        bad = parsed.bad + misfits.rows(records, parsed)
        return surveyed(columns, bad, len(records.at) + len(records.bad))

    def reader(self, open_: Open, wanted: Wanted) -> Callable[[Records], Rows]:
        names = wanted.names or self.names(open_)

        def read(records: Records) -> Rows:
            parsed = self._parse(records, names)
            arrays, misfits = self._typed(records, parsed, wanted)
            at = records.at[parsed.index][misfits.fit]
            return Rows([misfits.drop(array) for array in arrays], at, parsed.bad + misfits.rows(records, parsed))

        return read

    def _typed(self, records: Records, parsed: _Parsed, wanted: Wanted) -> tuple[list[pa.Array], _Misfits]:
        """The columns under their types, and which values do not fit a declared one.

        Declared ones first: a row that does not fit them is bad, and says nothing about the types of others.
        """
        count = len(parsed.index)
        arrays: dict[str, pa.Array] = {}
        misfits = _Misfits(count)
        for name, type_ in sorted(wanted.columns, key=lambda column: column[0] not in wanted.declared):
            texts = parsed.columns.get(name)
            if texts is None or pa.types.is_null(type_):
                arrays[name] = pa.nulls(count, type_)
                self._expect_nulls(records, parsed, name, texts, misfits.fit)
                continue
            arrays[name], here = convert.convert(texts, type_, name in wanted.declared)
            if name in wanted.declared:
                misfits.add(name, type_, here)
            elif here is not None and (here & misfits.fit).any():
                raise _misfit(records, parsed, name, texts, int(np.argmax(here & misfits.fit)))
        if not self.options.ignore_unknown:
            known = {name for name, _ in wanted.columns}
            for name, texts in parsed.columns.items():
                if name not in known:
                    self._expect_nulls(records, parsed, name, texts, misfits.fit)
        return [arrays[name] for name, _ in wanted.columns], misfits

    def _expect_nulls(
        self, records: Records, parsed: _Parsed, name: str, texts: pa.Array | None, fit: convert.Mask
    ) -> None:
        """A column without a type, or not in the schema, must hold nothing yet."""
        if texts is None or texts.null_count == len(texts):
            return
        filled = texts.is_valid().to_numpy(zero_copy_only=False) & fit
        if filled.any():
            raise _misfit(records, parsed, name, texts, int(np.argmax(filled)))

    def _parse(self, records: Records, names: Sequence[str]) -> _Parsed:
        count = len(records.at)
        index = np.arange(count)
        bad = list(records.bad)
        wrong: list[tuple[int, int]] = []

        def leave_out(row: pyarrow.csv.InvalidRow) -> str:
            wrong.append((row.number - 1, row.actual_columns))
            return "skip"

        if not count:
            return _Parsed({name: pa.nulls(0, pa.string()) for name in names}, index[:0], bad)
        table = self._read(records.data, len(names), leave_out)
        if wrong:
            index = np.delete(index, [number for number, _ in wrong])
            bad += [records.bad_row(number, _wrong_count(len(names), found)) for number, found in wrong]
        if table.num_rows != len(index):
            raise AssertionError(f"{len(index)} records were found, but {table.num_rows} parsed")
        columns = (column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns)
        return _Parsed(dict(zip(names, columns, strict=True)), index, bad)

    def _read(self, data: bytes, width: int, leave_out: Any) -> pa.Table:
        places = [str(place) for place in range(width)]
        return pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=places, use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.options.delimiter,
                quote_char=self.options.quote or False,
                newlines_in_values=True,
                invalid_row_handler=leave_out,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.string()),
                null_values=[self.options.null_value],
                strings_can_be_null=True,
                check_utf8=False,
            ),
        )

    def _head_end(self, data: bytes, ended: bool) -> int | None:
        start = super()._head_end(data, ended)
        if start is None or not self.options.header:
            return start
        cut = self.cutter.cut(data[start:], final=False)
        if not len(cut.starts):
            return None
        return start + int(cut.starts[1]) if len(cut.starts) > 1 else start + cut.consumed

    def _last_record(self, head: bytes) -> bytes:
        """The header, which is the last record before the body."""
        start = super()._head_end(head, ended=True) or 0
        cut = self.cutter.cut(head[start:], final=True)
        return head[start:][cut.starts[-1] : cut.ends[-1]]

    def _fields(self, record: bytes) -> list[str]:
        """The fields of one record as text."""
        if not record:
            return []
        data = record if not self._ascii_based else record.decode(self.options.encoding, "replace").encode()
        found: list[int] = []

        def count(row: pyarrow.csv.InvalidRow) -> str:
            found.append(row.actual_columns)
            return "skip"

        reader = CsvFormat(replace(self.options, null_value="\0"))
        table = reader._read(data, 1, count)
        table = reader._read(data, found[0], count) if found else table
        return [column[0].as_py() or "" for column in table.columns]


class _Misfits:
    """Values of a block that do not fit their declared types. `fit`: the rows without one."""

    def __init__(self, count: int) -> None:
        self.fit = np.ones(count, np.bool_)
        self._columns: list[tuple[str, pa.DataType, convert.Mask]] = []

    def add(self, name: str, type_: pa.DataType, misfits: convert.Mask | None) -> None:
        if misfits is not None:
            self._columns.append((name, type_, misfits))
            self.fit &= ~misfits

    def drop(self, array: pa.Array) -> pa.Array:
        """The array without the rows that do not fit."""
        return array.filter(pa.array(self.fit)) if self._columns else array

    def rows(self, records: Records, parsed: _Parsed) -> list[BadRow]:
        """The rows that do not fit, each with its first such value as the reason."""
        reasons: dict[int, str] = {}
        for name, type_, misfits in self._columns:
            for row in np.flatnonzero(misfits).tolist():
                text = clip(parsed.columns[name][row].as_py())
                reasons.setdefault(row, f"{text!r} in column '{name}' is not {named_type(type_)}")
        return [records.bad_row(int(parsed.index[row]), reason) for row, reason in reasons.items()]


def _wrong_count(expected: int, found: int) -> str:
    return f"{expected} fields are expected, {found} found"


def _misfit(records: Records, parsed: _Parsed, name: str, texts: pa.Array, row: int) -> Misfit:
    return Misfit(name, int(records.at[parsed.index[row]]), texts[row].as_py())


def _unique(fields: Sequence[str]) -> tuple[str, ...]:
    """
    >>> _unique(["id", "ID", "", "id_2"])
    ('id', 'ID_2', 'column_2', 'id_2_2')
    """
    taken: set[str] = set()
    names: list[str] = []
    for place, text in enumerate(fields):
        wanted = text or f"column_{place}"
        name, number = wanted, 2
        while name.lower() in taken:
            name, number = f"{wanted}_{number}", number + 1
        taken.add(name.lower())
        names.append(name)
    return tuple(names)
