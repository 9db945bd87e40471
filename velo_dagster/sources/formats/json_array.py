"""A file that is one JSON array, read as if it were JSON lines.

The bytes pass through a filter that keeps their number: the array's own brackets and commas become line ends, and line
ends between values become blanks. So an element's offset is its offset in the file, and all else is as for lines. A
comma with nothing before it stays a comma, which makes the next record bad, as it should be. An array that is not
closed breaks the file: it may have been cut anywhere. Lines that are to be skipped pass as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import numpy as np

from velo_dagster.sources.formats.base import BrokenFile, Open
from velo_dagster.sources.formats.json import JsonLinesFormat
from velo_dagster.sources.formats.streams import Pieces

_CHUNK = 1024 * 1024
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_BLANK, _LINE_END = 32, 10


class JsonArrayFormat(JsonLinesFormat):
    """One JSON array of objects, read as a whole."""

    kind = "json"

    @property
    def appendable(self) -> bool:
        return False

    def open(self, open_: Open) -> BinaryIO:
        file = super().open(open_)
        return cast(BinaryIO, Pieces(file, self._as_lines(file)))

    def _as_lines(self, file: BinaryIO) -> Iterator[bytes]:
        walk, lines = _Walk(), self.options.skip_lines
        while data := file.read(_CHUNK):
            skipped = 0
            while lines and (end := self.cutter.line_end(data, skipped)) is not None:
                lines, skipped = lines - 1, end
            if lines:
                skipped = len(data)
            yield data[:skipped]
            if skipped < len(data):
                yield walk.step(data[skipped:])
        walk.end()


class _Walk:
    """Goes through an array; knows between chunks how deep it is, whether in a text, and if the element has begun."""

    def __init__(self) -> None:
        self.depth = 0
        self.in_text = False
        self.escaped = False
        self.filled = False
        self.begun = False
        self.elements = 0

    def step(self, data: bytes) -> bytes:
        octets = np.frombuffer(data, np.uint8)
        outside = self._outside(octets, data)
        opens = outside & ((octets == ord("[")) | (octets == ord("{")))
        closes = outside & ((octets == ord("]")) | (octets == ord("}")))
        depth = self.depth + np.cumsum(opens.astype(np.int32) - closes.astype(np.int32), dtype=np.int32)
        self.depth = int(depth[-1])
        lines = octets.copy()
        lines[outside & ((octets == 10) | (octets == 13))] = _BLANK
        first = self._begin(octets, opens)
        if first is not None:
            lines[first] = _BLANK
        ends = (outside & (octets == ord(",")) & (depth == 1)) | (closes & (octets == ord("]")) & (depth == 0))
        ink = (octets > _BLANK) & ~ends
        if first is not None:
            ink[first] = False
        self._separate(lines, octets, np.flatnonzero(ends), np.cumsum(ink))
        return lines.tobytes()

    def end(self) -> None:
        if self.depth or self.in_text:
            raise BrokenFile("the JSON array is not closed: the file is cut short or not complete yet")

    def _outside(self, octets: Any, data: bytes) -> Any:
        """Which bytes lie outside texts."""
        quote = octets == ord('"')
        skip = 1 if self.escaped else 0
        if skip:
            quote[0] = False
        self.escaped = False
        if b"\\" in data:
            for match in _ESCAPE.finditer(data, skip):
                quote[match.end() - 1] = False
            tail = len(data) - len(data.rstrip(b"\\"))
            self.escaped = (tail - (skip if tail == len(data) else 0)) % 2 == 1
        inside = (np.cumsum(quote, dtype=np.int64) + self.in_text) % 2 == 1
        self.in_text = bool(inside[-1])
        return ~inside & ~quote

    def _begin(self, octets: Any, opens: Any) -> int | None:
        """Where the array opens, once."""
        if self.begun or not opens.any():
            return None
        self.begun = True
        return int(np.argmax(opens))

    def _separate(self, lines: Any, octets: Any, ends: Any, ink: Any) -> None:
        """Turn commas and the closing bracket into line ends where an element stands before them."""
        before = np.concatenate(([0], ink[ends])) if len(ends) else np.zeros(1, np.int64)
        filled = np.diff(before) > 0
        if len(ends):
            filled[0] |= self.filled
            empty_array = self.elements == 0 and len(ends) == 1 and octets[ends[0]] == ord("]")
            lines[ends[filled | empty_array]] = _LINE_END
            self.elements += len(ends)
            self.filled = bool(int(ink[-1]) > int(before[-1]) or not filled[-1])
        else:
            self.filled |= bool(int(ink[-1]) > 0)
