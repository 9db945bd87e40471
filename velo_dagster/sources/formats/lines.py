"""What formats of lines share: they can be read from any record's start, and grow at their end.

A file is read in blocks that begin and end at record borders. A record that does not end within `max_record` bytes, or
whose quote is still open where the range ends, is bad up to its first line end, and reading goes on behind that: one
forgotten quote does not swallow the rest of the file. What is bad follows from the bytes alone, not from the blocks.
"""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from velo_dagster.sources.formats.base import (
    BadRow,
    BrokenFile,
    FileFormat,
    FileSurvey,
    FormatOptions,
    Open,
    Rows,
    Tail,
    Wanted,
)
from velo_dagster.sources.formats.records import Cut, Cutter, Offsets
from velo_dagster.sources.formats.streams import is_ascii_based, opened

_BOM = b"\xef\xbb\xbf"
_SAMPLE = 1024 * 1024
_HEAD = 64 * 1024
_SCAN = 4 * 1024 * 1024
_NO_RECORDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Block:
    """`size` bytes of a file between two record borders; records by where they start and end within `data`.

    `broken` says why all of it is one bad record, of which `data` is the beginning.
    """

    offset: int
    size: int
    data: bytes
    starts: Offsets
    ends: Offsets
    broken: str | None = None

    def line(self, offset: int) -> int:
        """How many line ends lie before a place of the file that is in this block."""
        return self.data.count(b"\n", 0, offset - self.offset)


@dataclass(frozen=True)
class Records:
    """The records of a block that are text, as UTF-8, with their offsets in the file; and those that are not text."""

    data: bytes
    starts: Offsets
    ends: Offsets
    at: Offsets
    bad: list[BadRow]

    def bad_row(self, index: int, reason: str) -> BadRow:
        """A record that turned out to be bad."""
        text = self.data[self.starts[index] : self.ends[index]].decode()
        return BadRow(int(self.at[index]), 0, reason, text)


class LineFormat(FileFormat):
    """A format whose records follow one another as text."""

    cutter: Cutter

    def __init__(self, options: FormatOptions) -> None:
        super().__init__(options)
        self._ascii_based = is_ascii_based(options.encoding)

    @property
    def appendable(self) -> bool:
        return self.options.compression is None and self._ascii_based

    @abstractmethod
    def observe(self, records: Records, names: tuple[str, ...], declared: Mapping[str, str]) -> FileSurvey:
        """The evidence and the bad rows of one block."""

    @abstractmethod
    def reader(self, open_: Open, wanted: Wanted) -> Callable[[Records], Rows]:
        """What reads the records of one block."""

    @abstractmethod
    def is_whole(self, open_: Open, record: bytes) -> bool:
        """Whether an unterminated last record may be all of it."""

    def open(self, open_: Open) -> BinaryIO:
        return opened(open_, self.options.compression, self.options.encoding)

    def names(self, open_: Open) -> tuple[str, ...]:
        return ()

    def body(self, open_: Open, size: int) -> int:
        _, end = self.head(open_)
        return size if end is None else end

    def tail(self, open_: Open, start: int, size: int) -> Tail:
        if not self.appendable:
            # A file that is read as a whole is complete by itself: what does not end in it never will.
            return Tail(self._last_border(open_, start, None, final=True), None)
        complete = self._last_border(open_, start, size, final=False)
        if size - complete > self.options.max_record:
            return Tail(complete, None)
        with self.open(open_) as file:
            file.seek(complete)
            rest = _read(file, size - complete)
        return Tail(complete, size if rest.strip(b"\r\n") and self.is_whole(open_, rest) else None)

    def split(self, open_: Open, start: int, stop: int | None, target: int) -> list[tuple[int, int | None]]:
        if not self.appendable or stop is None:
            return [(start, stop)]
        step = min(max(target // 8, _HEAD), _SCAN)
        slack = min(step, target // 8) // 2
        cuts, goal = [start], start + target
        for border in self._borders(open_, self.first(open_, start), stop, target, step):
            # The border nearest to the goal, and no crumbs at the end.
            if border >= goal - slack and stop - border > slack:
                cuts.append(border)
                goal = max(goal + target, border + target // 2)
        return list(zip(cuts, [*cuts[1:], stop], strict=True))

    def limit(self, open_: Open, start: int, stop: int | None, records: int) -> tuple[int, int]:
        at, left = self.first(open_, start), records
        for block in self.blocks(open_, at, stop):
            count = 1 if block.broken else len(block.starts)
            if count > left:
                return block.offset + (int(block.starts[left]) if left and not block.broken else 0), records
            at, left = block.offset + block.size, left - count
        return at, records - left

    def sample(self, open_: Open, start: int, stop: int | None, declared: Mapping[str, str]) -> FileSurvey:
        names, first = self.names(open_), self.first(open_, start)
        starts = [(first, _SAMPLE)]
        if self.appendable and self.cutter.anywhere and stop is not None and stop - first > 4 * _SAMPLE:
            starts += [(self._next_border(open_, (first + stop) // 2, stop), _SAMPLE // 4)]
        found = FileSurvey()
        for begin, size in starts:
            block = next(self.blocks(open_, begin, stop, size=size), None)
            if block is not None and not block.broken:
                found = found.join(self.observe(self.records(block), names, declared))
        return found

    def survey(self, open_: Open, start: int, stop: int | None, declared: Mapping[str, str]) -> FileSurvey:
        names = self.names(open_)
        found, lines = FileSurvey(), 0
        for block in self.blocks(open_, self.first(open_, start), stop):
            if block.broken:
                here = FileSurvey({}, (broken_row(block),), 1, 1)
            else:
                here = self.observe(self.records(block), names, declared)
            rows = [replace(row, line=lines + block.line(row.offset)) for row in here.bad_rows]
            found = found.join(replace(here, bad_rows=tuple(sorted(rows, key=lambda row: row.offset))))
            lines += 1 if block.broken else block.data.count(b"\n")
        return found

    def read(self, open_: Open, start: int, stop: int | None, wanted: Wanted) -> Iterator[Rows]:
        read = self.reader(open_, wanted)
        for block in self.blocks(open_, self.first(open_, start), stop):
            yield Rows([], _NO_RECORDS, [broken_row(block)]) if block.broken else read(self.records(block))

    def head(self, open_: Open) -> tuple[bytes, int | None]:
        """The bytes before the first record, and where they end; None while they are not complete."""
        with self.open(open_) as file:
            data, size = b"", _HEAD
            while True:
                chunk = _read(file, size - len(data))
                data += chunk
                ended = len(data) < size
                end = self._head_end(data, ended)
                if end is not None or ended:
                    return data[:end], end
                if size > self.options.max_record:
                    raise BrokenFile(f"the lines before the first record do not end within {size} bytes")
                size *= 2

    def _head_end(self, data: bytes, ended: bool) -> int | None:
        """Behind the byte order mark and the lines to skip."""
        if len(data) < len(_BOM) and not ended:
            return None
        if self.options.encoding == "utf-8" and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            # No text in UTF-8 has these bytes.
            reason = "it begins as text in UTF-16 does, and is read as UTF-8"
            raise BrokenFile(reason, 'Say how it is encoded: WITH ("encoding" = "utf-16").')
        at = len(_BOM) if data.startswith(_BOM) else 0
        for _ in range(self.options.skip_lines):
            end = self.cutter.line_end(data, at)
            if end is None:
                return None
            at = end
        return at

    def first(self, open_: Open, start: int) -> int:
        """Where to begin reading: at the first record if at the start."""
        if start:
            return start
        head, end = self.head(open_)
        return len(head) if end is None else end

    def blocks(
        self,
        open_: Open,
        start: int,
        stop: int | None,
        *,
        size: int | None = None,
        final: bool = True,
        find: bool = True,
    ) -> Iterator[Block]:
        """The range in blocks. `final`: what does not end before `stop` never will. `find`: say where records are."""
        with self.open(open_) as file:
            window = _Window(file, start, stop)
            while True:
                window.fill(size or self.options.block)
                if not window.data:
                    return
                block = self._block(window, final and window.ended, find)
                if block is not None:
                    yield block
                elif window.ended:
                    return

    def _block(self, window: _Window, final: bool, find: bool) -> Block | None:
        """The next block of what the window holds; None if that takes more bytes."""
        data, most, offset = window.data, self.options.max_record, window.at
        reach = None if find or final else self.cutter.reach(data)
        cut = self.cutter.cut(data, final) if reach is None else Cut(_NO_RECORDS, _NO_RECORDS, reach)
        too_long = np.flatnonzero(cut.ends - cut.starts > most)
        if len(too_long):
            index = int(too_long[0])
            cut = Cut(cut.starts[:index], cut.ends[:index], int(cut.starts[index]))
        if cut.consumed:
            return Block(offset, cut.consumed, window.take(cut.consumed), cut.starts, cut.ends)
        if len(too_long) or len(data) > most + 1 or final:
            return self._broken(window, self._endless())
        return None

    def _endless(self) -> str:
        """Why a record has no end. How much of it was looked at depends on where the file was cut, so where a quote may
        be the reason, it is told beside the length: the same row has the same reason however it is read."""
        length = f"the record is longer than {self.options.max_record} bytes"
        return length if self.cutter.anywhere else f"a quoted field is not closed, or {length}"

    def _broken(self, window: _Window, reason: str) -> Block:
        """One bad record: everything up to the next line end, of which only the beginning is kept."""
        offset, beginning = window.at, b""
        while (end := self.cutter.line_end(window.data, 0)) is None and not window.ended:
            beginning += window.take(len(window.data))[: _HEAD - len(beginning)]
            window.fill(self.options.block)
        beginning += window.take(len(window.data) if end is None else end)[: _HEAD - len(beginning)]
        return Block(offset, window.at - offset, beginning.rstrip(b"\r\n"), _NO_RECORDS, _NO_RECORDS, reason)

    def _borders(self, open_: Open, start: int, stop: int, target: int, step: int) -> Iterator[int]:
        """Record borders in the range, about every `target` bytes; every `step` bytes where all is to be looked at."""
        if self._ends_anywhere(open_, start, stop):
            for near in range(start + target, stop, target):
                yield self._next_border(open_, near, stop)
            return
        for block in self.blocks(open_, start, stop, size=step, find=False):
            yield block.offset + block.size

    def _ends_anywhere(self, open_: Open, start: int, stop: int) -> bool:
        """Whether every line end of the range is a record's end: always, or because no byte there says otherwise."""
        if self.cutter.anywhere:
            return True
        with self.open(open_) as file:
            file.seek(start)
            left = stop - start
            while data := file.read(min(left, _SCAN)):
                if any(mark in data for mark in self.cutter.marks):
                    return False
                left -= len(data)
        return True

    def _next_border(self, open_: Open, near: int, stop: int) -> int:
        """The first record border at or behind a place, where every line end is one."""
        with self.open(open_) as file:
            window = _Window(file, near - 1, stop)
            while True:
                window.fill(_HEAD)
                end = self.cutter.line_end(window.data, 0)
                if end is not None or window.ended:
                    return stop if end is None else window.at + end
                window.take(len(window.data))

    def _last_border(self, open_: Open, start: int, stop: int | None, final: bool) -> int:
        """Behind the last record that ends before `stop`."""
        if self.appendable and stop is not None and self._ends_anywhere(open_, start, stop):
            return self._last_line_end(open_, start, stop)
        at = start
        for block in self.blocks(open_, self.first(open_, start), stop, size=_SCAN, final=final, find=False):
            at = block.offset + block.size
        return at

    def _last_line_end(self, open_: Open, start: int, stop: int) -> int:
        with self.open(open_) as file:
            end = stop
            while end > start:
                begin = max(start, end - _HEAD)
                file.seek(begin)
                data = _read(file, end - begin)
                if len(data) < end - begin:
                    raise BrokenFile(f"the file ends at byte {begin + len(data)}, before byte {stop}")
                reach = self.cutter.reach(data)
                if reach:
                    return begin + reach
                end = begin
        return start

    def records(self, block: Block) -> Records:
        """The block's records as UTF-8, those that are no text set apart."""
        data, starts, ends, encoding = block.data, block.starts, block.ends, self.options.encoding
        try:
            if not self._ascii_based or encoding == "utf-8":
                if not data.isascii():
                    data.decode()
            else:
                data = data.decode(encoding).encode()
                cut = self.cutter.cut(data, final=True)
                starts, ends = cut.starts, cut.ends
            return Records(data, starts, ends, block.offset + block.starts, [])
        except UnicodeDecodeError:
            return self._text_only(block)

    def _text_only(self, block: Block) -> Records:
        encoding = self.options.encoding if self._ascii_based else "utf-8"
        texts: list[bytes] = []
        kept: list[int] = []
        bad: list[BadRow] = []
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True):
            record = block.data[start:end]
            try:
                texts.append(record.decode(encoding).encode())
                kept.append(start)
            except UnicodeDecodeError as error:
                reason = f"byte {record[error.start]:#04x} at {block.offset + start + error.start} is not {encoding}"
                bad.append(BadRow(block.offset + start, 0, reason, record.decode(encoding, "replace")))
        lengths = np.array([len(text) for text in texts], np.int64)
        ends = np.cumsum(lengths + 1) - 1
        data = b"".join(text + b"\n" for text in texts)
        return Records(data, ends - lengths, ends, block.offset + np.array(kept, np.int64), bad)


class _Window:
    """The part of a file that is in memory: `data`, which begins at `at`. `ended`: no bytes follow it."""

    def __init__(self, file: BinaryIO, at: int, stop: int | None) -> None:
        self.file, self.at, self.stop = file, at, stop
        file.seek(at)
        self.data = b""
        self.ended = False

    def fill(self, size: int) -> None:
        """Read on; a file that ends before `stop` is not the file that was measured."""
        end = self.at + len(self.data)
        want = size if self.stop is None else min(size, self.stop - end)
        chunk = _read(self.file, want)
        if self.stop is not None and len(chunk) < want:
            raise BrokenFile(f"the file ends at byte {end + len(chunk)}, before byte {self.stop}")
        self.data = self.data + chunk if self.data else chunk
        self.ended = len(chunk) < size if self.stop is None else end + len(chunk) >= self.stop

    def take(self, size: int) -> bytes:
        """Let go of the first bytes."""
        taken, self.data = self.data[:size], self.data[size:]
        self.at += size
        return taken


def _read(file: BinaryIO, size: int) -> bytes:
    """That many bytes, fewer only at the end; a file may give them in pieces."""
    data = file.read(size) if size > 0 else b""
    while 0 < len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def broken_row(block: Block) -> BadRow:
    """The bad row that a broken block is."""
    assert block.broken is not None
    return BadRow(block.offset, 0, block.broken, block.data.decode(errors="replace"))
