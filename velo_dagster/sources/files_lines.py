"""Line numbers for byte offsets: counted when somebody asks for them, and each byte only once.

A line ends with LF, CR LF, or a CR alone. Records may span lines; a record's line is the one on which it begins.
"""

from __future__ import annotations

import numpy as np

from velo_dagster.sources.files_hash import Open
from velo_dagster.sources.formats.base import FormatOptions
from velo_dagster.sources.formats.streams import opened

_BLOCK = 4 * 1024 * 1024


class LineCounter:
    """Answers for rising offsets, starting anew where one lies before the last."""

    def __init__(self, options: FormatOptions, open_: Open) -> None:
        self._options = options
        self._open = open_
        self._rewind()

    def line_of(self, at: int) -> int:
        return int(self.lines_of(np.array([at], dtype=np.int64))[0])

    def lines_of(self, at: np.ndarray) -> np.ndarray:
        """The line, counted from 1, on which each of these offsets lies; they must rise."""
        if len(at) and at[0] < self._at:
            self._rewind()
        ends = [np.empty(0, dtype=np.int64)]
        counted = self._count
        last = int(at[-1]) if len(at) else 0
        with opened(self._open, self._options.compression, self._options.encoding) as file:
            file.seek(self._at)
            while self._at < last and (data := file.read(min(_BLOCK, last - self._at))):
                found = self._ends(data)
                ends.append(found)
                self._count += len(found)
                self._at += len(data)
        return counted + np.searchsorted(np.concatenate(ends), at, side="right") + 1

    def _rewind(self) -> None:
        self._at, self._count, self._after_cr = 0, 0, False

    def _ends(self, data: bytes) -> np.ndarray:
        """Offsets behind the line ends in a block that begins at the counter; LF after CR belongs to it."""
        values = np.frombuffer(data, dtype=np.uint8)
        feeds = np.flatnonzero(values == 10)
        if b"\r" in data or self._after_cr:
            returns = np.flatnonzero(values == 13)
            lone = returns[~np.isin(returns + 1, feeds)]
            ends = np.union1d(feeds, lone)
            if self._after_cr and len(feeds) and feeds[0] == 0:
                ends = ends[1:]
            self._after_cr = data.endswith(b"\r")
        else:
            ends = feeds
        return ends + self._at + 1
