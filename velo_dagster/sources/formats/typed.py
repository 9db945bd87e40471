"""Formats that bring their own types: Parquet, ORC, Avro. Offsets are rows; a file is read as a whole.

A column keeps its file's type as Spark reads it; where files differ, the least type that holds both. Nanoseconds that
microseconds cannot hold make a row bad: nothing is rounded.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from velo_dagster.sources.formats import convert, types
from velo_dagster.sources.formats.base import (
    BadRow,
    BrokenFile,
    FileFormat,
    FileSurvey,
    Misfit,
    Open,
    Rows,
    Tail,
    Wanted,
    clip,
    surveyed,
)
from velo_dagster.sources.formats.ddl import named_type, to_arrow
from velo_dagster.sources.formats.streams import opened
from velo_dagster.sources.formats.types import Evidence

_CHUNK = 16 * 1024 * 1024


class TypedFormat(FileFormat):
    """A format whose files declare their columns."""

    @property
    def appendable(self) -> bool:
        return False

    @abstractmethod
    def schema_of(self, file: BinaryIO) -> list[tuple[str, str]]:
        """The file's columns and their Spark types."""

    @abstractmethod
    def count(self, file: BinaryIO) -> int:
        """The file's rows."""

    @abstractmethod
    def rows(self, file: BinaryIO, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows from `start` to `stop`, each batch with the number of its first row."""

    def typed_schema(self, open_: Open) -> list[tuple[str, str]]:
        with self._file(open_) as file:
            return self.schema_of(file)

    def names(self, open_: Open) -> tuple[str, ...]:
        return tuple(name for name, _ in self.typed_schema(open_))

    def body(self, open_: Open, size: int) -> int:
        return 0

    def tail(self, open_: Open, start: int, size: int) -> Tail:
        return Tail(self._stop(open_, None), None)

    def split(self, open_: Open, start: int, stop: int | None, target: int) -> list[tuple[int, int | None]]:
        return [(start, stop)]

    def limit(self, open_: Open, start: int, stop: int | None, records: int) -> tuple[int, int]:
        end = min(self._stop(open_, stop), start + records)
        return end, end - start

    def sample(self, open_: Open, start: int, stop: int | None, declared: Mapping[str, str]) -> FileSurvey:
        """The file's own types as evidence; no row is looked at."""
        own = {name: evidence_of(to_arrow(text)) for name, text in self.typed_schema(open_)}
        return FileSurvey({name: evidence for name, evidence in own.items() if name not in declared})

    def survey(self, open_: Open, start: int, stop: int | None, declared: Mapping[str, str]) -> FileSurvey:
        found = self.sample(open_, start, stop, declared)
        own = self.typed_schema(open_)
        columns = [(name, to_arrow(declared.get(name, text))) for name, text in own]
        for first, batch in self._batches(open_, start, stop):
            _, _, bad = _typed(first, batch, columns, frozenset(declared))
            found = found.join(surveyed({}, bad, batch.num_rows))
        return found

    def read(self, open_: Open, start: int, stop: int | None, wanted: Wanted) -> Iterator[Rows]:
        known = {name for name, _ in wanted.columns}
        for first, batch in self._batches(open_, start, stop):
            if wanted.names is not None:
                batch = batch.rename_columns(list(wanted.names))
            if not self.options.ignore_unknown:
                _expect_known(first, batch, known)
            yield Rows(*_typed(first, batch, wanted.columns, wanted.declared))

    def _batches(self, open_: Open, start: int, stop: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        with self._file(open_) as file:
            yield from self.rows(file, start, self.count(file) if stop is None else stop)

    def _stop(self, open_: Open, stop: int | None) -> int:
        if stop is not None:
            return stop
        with self._file(open_) as file:
            return self.count(file)

    def _file(self, open_: Open) -> BinaryIO:
        """The file; unpacked in memory if it is compressed, since these formats are read from their end."""
        if self.options.compression is None:
            return open_()
        with opened(open_, self.options.compression, "utf-8") as stream:
            return io.BytesIO(b"".join(iter(lambda: stream.read(_CHUNK), b"")))


def evidence_of(type_: pa.DataType) -> Evidence:
    """The least evidence that has this type, or the least wider type that inference knows."""
    if pa.types.is_decimal128(type_):
        digits = type_.precision - type_.scale
        return types.number(digits, type_.scale) if type_.scale else types.integer(digits, wide=type_.precision > 18)
    if pa.types.is_integer(type_):
        return types.integer(1)
    if pa.types.is_struct(type_):
        return types.record({field.name: evidence_of(field.type) for field in type_})
    if pa.types.is_list(type_):
        return types.array([evidence_of(type_.value_type)])
    return _EVIDENCE.get(type_, types.TEXT)


_EVIDENCE: dict[pa.DataType, Evidence] = {
    pa.bool_(): types.BOOLEAN,
    pa.float32(): types.DOUBLE,
    pa.float64(): types.DOUBLE,
    pa.date32(): types.ON_DATE,
    to_arrow("TIMESTAMP"): types.AT_TIME,
    to_arrow("TIMESTAMP_NTZ"): types.AT_TIME,
}


def _typed(
    first: int, batch: pa.RecordBatch, columns: Sequence[tuple[str, pa.DataType]], declared: frozenset[str]
) -> tuple[list[pa.Array], Any, list[BadRow]]:
    """The batch as the columns, its rows' numbers, and the rows that do not fit."""
    at = first + np.arange(batch.num_rows)
    misfits = np.zeros(batch.num_rows, np.bool_)
    reasons: dict[int, str] = {}
    arrays: list[pa.Array] = []
    for name, type_ in columns:
        place = batch.schema.get_field_index(name)
        if place < 0 or pa.types.is_null(type_):
            arrays.append(pa.nulls(batch.num_rows, type_))
            continue
        array, bad = _cast(batch.column(place), type_)
        arrays.append(array)
        for row in np.flatnonzero(bad).tolist() if bad is not None else ():
            text = clip(str(batch.column(place)[row]))
            if name not in declared and not _loses_nanoseconds(batch.column(place).type):
                raise Misfit(name, first + row, text)
            reasons.setdefault(row, f"{text!r} in column '{name}' is not {named_type(type_)}")
            misfits[row] = True
    if not reasons:
        return arrays, at, []
    rows = [BadRow(first + row, 0, reason, str(batch.slice(row, 1).to_pylist()[0])) for row, reason in reasons.items()]
    keep = pa.array(~misfits)
    return [array.filter(keep) for array in arrays], at[~misfits], rows


def _loses_nanoseconds(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.unit == "ns"


def _cast(array: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Any]:
    """The array under the type, exactly, and which rows do not fit."""
    if array.type == type_:
        return array, None
    if pa.types.is_string(array.type):
        return convert.convert(array, type_, declared=True)
    try:
        return array.cast(type_), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) <= 1:
            return pa.nulls(len(array), type_), np.ones(len(array), np.bool_)
    middle = len(array) // 2
    parts = [_cast(array.slice(0, middle), type_), _cast(array.slice(middle), type_)]
    bad = [np.zeros(len(part), np.bool_) if misfits is None else misfits for part, misfits in parts]
    return pa.concat_arrays([part for part, _ in parts]), np.concatenate(bad)


def _expect_known(first: int, batch: pa.RecordBatch, known: set[str]) -> None:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name not in known and column.null_count < len(column):
            row = column.is_valid().index(True).as_py()
            raise Misfit(name, first + row, str(column[row]))


def broken(what: str, error: Exception) -> BrokenFile:
    """A file that its reader refuses."""
    return BrokenFile(f"not a readable {what} file: {error}")
