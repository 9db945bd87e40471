"""Plain text: one column, `value`, a record per line, empty lines included."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from velo_dagster.sources.formats import convert, types
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
from velo_dagster.sources.formats.records import LineCutter

VALUE = "value"


class TextFormat(LineFormat):
    """Lines of text. Their type is STRING, whatever they look like, unless declared otherwise."""

    kind = "text"

    def __init__(self, options: FormatOptions) -> None:
        super().__init__(options)
        self.cutter = LineCutter(keep_empty=True)

    def names(self, open_: Open) -> tuple[str, ...]:
        return (VALUE,)

    def is_whole(self, open_: Open, record: bytes) -> bool:
        try:
            record.decode(self.options.encoding)
        except UnicodeDecodeError:
            return False
        return True

    def observe(self, records: Records, names: tuple[str, ...], declared: Mapping[str, str]) -> FileSurvey:
        count = len(records.at)
        bad = list(records.bad)
        columns = {VALUE: types.TEXT} if count else {}
        if VALUE in declared:
            columns = {}
            bad += _convert(records, to_arrow(declared[VALUE]))[2]
        return surveyed(columns, bad, count + len(records.bad))

    def reader(self, open_: Open, wanted: Wanted) -> Callable[[Records], Rows]:
        own = (wanted.names or (VALUE,))[0]
        type_ = dict(wanted.columns).get(own, pa.null())

        def read(records: Records) -> Rows:
            if pa.types.is_null(type_):
                array, at, bad = pa.nulls(len(records.at)), records.at, []
                if len(at) and not self.options.ignore_unknown:
                    raise Misfit(own, int(at[0]), _texts(records)[0].as_py())
            else:
                array, at, bad = _convert(records, type_)
            if bad and own not in wanted.declared:
                raise Misfit(own, bad[0].offset, bad[0].text)
            arrays = [array if name == own else pa.nulls(len(at), other) for name, other in wanted.columns]
            return Rows(arrays, at, records.bad + bad)

        return read


def _convert(records: Records, type_: pa.DataType) -> tuple[pa.Array, np.ndarray, list[BadRow]]:
    """The lines under a type with their offsets, and those that do not fit it."""
    texts = _texts(records)
    array, misfits = convert.convert(texts, type_, declared=True)
    if misfits is None:
        return array, records.at, []
    bad = [
        records.bad_row(row, f"{clip(texts[row].as_py())!r} is not {named_type(type_)}")
        for row in np.flatnonzero(misfits).tolist()
    ]
    return array.filter(pa.array(~misfits)), records.at[~misfits], bad


def _texts(records: Records) -> pa.Array:
    """The lines without their ends, as one array."""
    lengths = records.ends - records.starts
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    octets = np.frombuffer(records.data, np.uint8)
    kept = np.zeros(len(octets) + 1, np.int8)
    np.add.at(kept, records.starts, 1)
    np.add.at(kept, records.ends, -1)
    data = octets[np.cumsum(kept[:-1], dtype=np.int8) > 0]
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data))
