"""Where records start and end in a block of bytes that begins at a record's start.

Lines end with LF; a CR before it belongs to the line end. CSV records end with LF, CR or CR LF outside quotes. There a
quote opens only at the start of a field; inside, two quotes stand for one; behind the closing quote, and in a field
that did not begin with one, quotes are ordinary characters. That is also how Arrow's CSV parser reads, so both see the
same records.

Quotes at once: number the quotes of a block from 0. If every even one stands at the start of the block, or behind a
delimiter, a line end or another quote, then a byte lies inside quotes exactly if an odd number of quotes stands before
it. By induction: outside quotes, an even quote behind a delimiter or line end opens a field; the odd one that follows
either closes it or, if the next even one stands right behind it, is the first of a pair, and the field goes on. A block
that is not like that is walked through by a regular expression instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Offsets = np.ndarray[Any, np.dtype[np.int64]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]

_LF, _CR = 10, 13


@dataclass(frozen=True)
class Cut:
    """Records in a block: where each starts, where its text ends, and how many bytes they and their line ends take."""

    starts: Offsets
    ends: Offsets
    consumed: int


class Cutter(Protocol):
    """Finds records. `anywhere`: every line end is a record's end, so that one can start looking in any place; it is
    also where none of the `marks` stands."""

    anywhere: bool
    marks: tuple[bytes, ...]

    def cut(self, data: bytes, final: bool) -> Cut:
        """All records. `final`: nothing follows, so an unterminated last record counts if its form is whole."""
        ...

    def reach(self, data: bytes) -> int | None:
        """Behind the last terminated record, found without finding the others; None if that takes a cut."""
        ...

    def line_end(self, data: bytes, start: int) -> int | None:
        """Behind the first line end at or after `start`, inside quotes or not; None if there is none."""
        ...


class LineCutter:
    """One record per line; empty lines are records only where `keep_empty` says so."""

    anywhere = True
    marks = ()

    def __init__(self, keep_empty: bool) -> None:
        self.keep_empty = keep_empty

    def cut(self, data: bytes, final: bool) -> Cut:
        breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == _LF)
        return _cut(data, breaks, final, lone_cr=False, keep_empty=self.keep_empty)

    def reach(self, data: bytes) -> int | None:
        return data.rfind(b"\n") + 1

    def line_end(self, data: bytes, start: int) -> int | None:
        return data.find(b"\n", start) + 1 or None


class CsvCutter:
    """Records of CSV; empty lines are none."""

    anywhere = False

    def __init__(self, delimiter: str, quote: str | None) -> None:
        self.delimiter = ord(delimiter)
        self.quote = None if quote is None else quote.encode()
        # A CR may be a line end, or half of one.
        self.marks: tuple[bytes, ...] = (b"\r",) if self.quote is None else (b"\r", self.quote)
        self._record = None if quote is None else _record_pattern(delimiter, quote)

    def cut(self, data: bytes, final: bool) -> Cut:
        octets = np.frombuffer(data, np.uint8)
        quoted = self.quote is not None and self.quote in data
        if quoted and (breaks := self._unquoted_breaks(octets, data, final)) is None:
            breaks = self._walk(data, final)
        elif not quoted:
            breaks = _breaks(octets, data, final)
        assert breaks is not None
        if final and quoted:
            final = self._whole(data, int(breaks[-1]) + 1 if len(breaks) else 0)
        return _cut(data, breaks, final, lone_cr=True, keep_empty=False)

    def reach(self, data: bytes) -> int | None:
        if self.quote is not None and self.quote in data:
            return None
        # A CR in the last place may be the first half of a line end.
        return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1

    def line_end(self, data: bytes, start: int) -> int | None:
        match = _LINE_END.search(data, start)
        return match.end() if match else None

    def _unquoted_breaks(self, octets: Octets, data: bytes, final: bool) -> Offsets | None:
        """Line ends outside quotes; None if the quotes cannot be counted."""
        assert self.quote is not None
        quotes = np.flatnonzero(octets == self.quote[0])
        opening = quotes[0::2]
        before = octets[opening[1:] - 1] if opening[0] == 0 else octets[opening - 1]
        if not np.isin(before, (self.delimiter, self.quote[0], _LF, _CR)).all():
            return None
        breaks = _breaks(octets, data, final)
        return breaks[np.searchsorted(quotes, breaks) % 2 == 0]

    def _walk(self, data: bytes, final: bool) -> Offsets:
        """Line ends outside quotes, record by record."""
        assert self._record is not None
        breaks: list[int] = []
        at = 0
        while match := self._record.match(data, at):
            at = match.end()
            if at == len(data) and data[at - 1] == _CR and not final:
                break
            breaks.append(at - 1)
        return np.array(breaks, np.int64)

    def _whole(self, data: bytes, start: int) -> bool:
        """Whether what follows the last line end has no open quote."""
        assert self._record is not None
        return self._record.match(data[start:] + b"\n") is not None


_LINE_END = re.compile(rb"\r\n|\n|\r")


def _record_pattern(delimiter: str, quote: str) -> re.Pattern[bytes]:
    d, q = re.escape(delimiter.encode()), re.escape(quote.encode())
    rest = rb"[^\r\n" + d + rb"]*+"
    field = rb"(?:" + q + rb"(?:[^" + q + rb"]++|" + q + q + rb")*+" + q + rest + rb"|(?!" + q + rb")" + rest + rb")"
    return re.compile(field + rb"(?:" + d + field + rb")*+(?:\r\n|\n|\r)")


def _breaks(octets: Octets, data: bytes, final: bool) -> Offsets:
    """The last byte of each line end. A CR in the last place waits for its LF, unless nothing follows."""
    ends = octets == _LF
    if b"\r" in data:
        lone = octets == _CR
        lone[:-1] &= ~ends[1:]
        lone[-1] &= final
        ends |= lone
    return np.flatnonzero(ends)


def _cut(data: bytes, breaks: Offsets, final: bool, *, lone_cr: bool, keep_empty: bool) -> Cut:
    consumed = int(breaks[-1]) + 1 if len(breaks) else 0
    starts = np.empty(len(breaks), np.int64)
    if len(breaks):
        starts[0] = 0
        starts[1:] = breaks[:-1] + 1
    ends = breaks
    if b"\r" in data and len(breaks):
        octets = np.frombuffer(data, np.uint8)
        pair = (breaks > starts) & (octets[breaks - 1] == _CR) & (octets[breaks] == _LF)
        ends = breaks - pair
    if final and consumed < len(data):
        last = len(data) - (not lone_cr and data.endswith(b"\r"))
        starts, ends, consumed = np.append(starts, consumed), np.append(ends, last), len(data)
    if not keep_empty:
        filled = ends > starts
        if not filled.all():
            starts, ends = starts[filled], ends[filled]
    return Cut(starts, ends, consumed)
