"""Records that name their own fields: which spellings of a column's name there are, and reading them as one column.

A table's columns are told apart without regard to case, and some signs can't stand in their names; JSON knows no such
rules. So `id`, `ID` and, for `Order_ID`, `Order ID` are spellings of one column. Which of them a file uses is found out
by reading: a field that is no column by its exact name stops the reader, which goes on with one spelling more. A record
that fills two spellings of one column is a bad row: there is no telling which is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

from velo_dagster.sources.formats.base import AT, ERROR, TEXT, BadRecord, Misfit
from velo_dagster.sources.formats.streams import opened
from velo_dagster.sql.names import sanitise

if TYPE_CHECKING:
    from velo_dagster.sources.files_read import OpenPart

pc: Any = pyarrow.compute  # its functions are made at run time, out of a type checker's sight

_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"(?=[ \t\r\n]*:)')
_BLOCK = 4 * 1024 * 1024
_LONGEST_KEY = 64 * 1024


def read_by_key(part: OpenPart) -> Iterator[pa.RecordBatch]:
    """The part's rows by the reading's columns, whatever spelling its records use."""
    columns = dict(part.reading.columns)
    by_name = {name.lower(): name for name in columns}
    spellings = {name: name for name in columns}
    if part.format.options.ignore_unknown:
        # The reader would pass over a spelling that it does not know, so all of them are looked for first.
        spellings |= _spellings_in(part, by_name)
    progress = _Progress(part.part["start"])
    while True:
        try:
            for batch in _batches(part, spellings, columns, progress.start):
                fresh = progress.fresh(batch)
                if fresh.num_rows:
                    yield _as_columns(fresh, spellings, part.reading.columns, fail=part.reading.on_bad == "fail")
            return
        except Misfit as misfit:
            column = by_name.get(sanitise(misfit.column).lower())
            if column is None or misfit.column in spellings:
                raise
            spellings[misfit.column] = column
            progress.restart()


def _batches(
    part: OpenPart, spellings: Mapping[str, str], columns: Mapping[str, str | None], start: int
) -> Iterator[pa.RecordBatch]:
    schema = [(key, columns[column]) for key, column in spellings.items()]
    declared = part.reading.declared_among(spellings.values())
    keys = frozenset(key for key, column in spellings.items() if column in declared)
    return part.format.batches(part.open_, start, part.part["stop"], None, schema, keys, part.reading.on_bad)


class _Progress:
    """What has been handed out already, so that reading again with one spelling more hands out only the rest.

    Good rows come in order; bad ones may come before good ones that precede them, so they are remembered one by one.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self._good = -1
        self._bad: set[int] = set()

    def fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at, reasons = batch.column(AT), batch.column(ERROR)
        if reasons.null_count == len(reasons):
            if len(at) and at[0].as_py() <= self._good:
                batch = batch.filter(pc.greater(at, self._good))
            if batch.num_rows:
                self._good = batch.column(AT)[-1].as_py()
            return batch
        offsets = at.to_pylist()
        new = [offset not in self._bad and offset >= self.start for offset in offsets]
        self._bad.update(offsets)
        return batch.filter(pa.array(new))

    def restart(self) -> None:
        self.start = max(self.start, self._good)


def _as_columns(
    batch: pa.RecordBatch, spellings: Mapping[str, str], columns: Sequence[tuple[str, str | None]], *, fail: bool
) -> pa.RecordBatch:
    """The batch with one column per column; rows that fill two spellings of one are bad."""
    if len(spellings) == len(columns):
        return batch
    arrays = dict(zip((name for name, _ in columns), batch.columns, strict=False))
    reasons, texts = batch.column(ERROR), batch.column(TEXT)
    for place, (key, column) in enumerate(spellings.items()):
        if key == column:
            continue
        other = batch.column(place)
        both = pc.and_(pc.is_valid(arrays[column]), pc.is_valid(other))
        if pc.any(both).as_py():
            reason = f"the fields '{column}' and '{key}' are one column"
            if fail:
                raise BadRecord(batch.column(AT)[pc.index(both, True).as_py()].as_py(), reason, "")
            reasons = pc.if_else(both, reason, reasons)
            texts = pc.if_else(both, _values(batch), texts)
        arrays[column] = pc.coalesce(arrays[column], other) if batch.num_rows else arrays[column]
    if reasons.null_count < len(reasons):
        good = pc.is_null(reasons)
        arrays = {name: pc.if_else(good, array, None) for name, array in arrays.items()}
    return pa.RecordBatch.from_arrays(
        [*arrays.values(), batch.column(AT), reasons, texts], names=[*arrays, AT, ERROR, TEXT]
    )


def _values(batch: pa.RecordBatch) -> pa.Array:
    """The rows' fields as text, for those whose own text is gone."""
    rows = batch.drop_columns([AT, ERROR, TEXT]).to_pylist()
    return pa.array([json.dumps({k: v for k, v in row.items() if v is not None}, default=str) for row in rows])


def _spellings_in(part: OpenPart, by_name: Mapping[str, str]) -> dict[str, str]:
    """Every text in the part that may be another spelling of a column; too many do no harm."""
    found: set[bytes] = set()
    start, stop = part.range
    options = part.format.options
    with opened(part.open_, options.compression, options.encoding) as file:
        file.seek(start)
        left, rest = (None if stop is None else stop - start), b""
        while data := file.read(_BLOCK if left is None else min(_BLOCK, left)):
            left = None if left is None else left - len(data)
            found.update(_KEY.findall(rest + data))
            rest = data[-_LONGEST_KEY:]
    keys = {str(json.loads(key.decode("utf-8", "replace"), strict=False)) for key in found}
    columns = {key: by_name.get(sanitise(key).lower()) for key in keys}
    return {key: column for key, column in sorted(columns.items()) if column is not None and key != column}
