"""Cutting what is to be read into parts that several tasks can read at once.

A part is plain JSON: {file, kind, start, stop, bytes, entry}. `start` 0 is the file's beginning, no `stop` its end, and
`entry` is what the position says of the file, so that whoever reads the part can tell whether it still is that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from velo_dagster.sources.files_end import Opened
from velo_dagster.sources.files_messages import named
from velo_dagster.sources.files_position import Files, Range

PART_BYTES = 32 * 1024 * 1024
# Each task costs some tens of milliseconds; a file costs about as much as reading this many bytes.
_FILE_COST = 64 * 1024

Part = Mapping[str, Any]


def parts_of(ranges: Iterable[Range], until: Files, opened: Callable[[str], Opened]) -> Iterator[Part]:
    """The parts of all ranges; a long range of lines is cut where a record begins."""
    for item in ranges:
        entry = until.entries[item.file]
        stop = entry.size if item.stop is None else item.stop
        pieces: Sequence[tuple[int, int | None]] = [(item.start, item.stop)]
        if item.stop is not None and not entry.whole and stop - item.start > 2 * PART_BYTES:
            file = opened(item.file)
            with named(item.file):
                first = file.format.body(file.open_, stop) if item.start == 0 else item.start
                pieces = file.format.split(file.open_, first, stop, PART_BYTES)
        for start, end in pieces:
            yield {
                "file": item.file,
                "kind": item.kind,
                "start": start,
                "stop": end,
                "bytes": max((entry.size if end is None else end) - start, 0),
                "entry": entry.to_json(),
            }


def grouped(parts: Iterable[Part], target: int = PART_BYTES) -> list[list[Part]]:
    """Parts put together so that each group is about a task's worth of work."""
    groups: list[list[Part]] = []
    room = 0
    for part in parts:
        cost = part["bytes"] + _FILE_COST
        if not groups or cost > room:
            groups.append([])
            room = target
        groups[-1].append(part)
        room -= cost
    return groups
