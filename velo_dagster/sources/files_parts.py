"""Cutting what is to be read into parts that several tasks can read at once.

A part is plain JSON: {file, kind, start, stop, bytes, entry}. `start` 0 is the file's beginning, no `stop` its end, and
`entry` is what the position says of the file, so that whoever reads the part can tell whether it still is that file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from velo_dagster.sources.files_end import Opened
from velo_dagster.sources.files_messages import named
from velo_dagster.sources.files_position import Files, Range

# What a task reads: enough to be worth starting it, and to write files of a good size, yet no more than is lost easily.
LEAST_BYTES = 32 * 1024 * 1024
MOST_BYTES = 128 * 1024 * 1024
# Less than that is not worth another task, even if a core has nothing to do.
WORTH_BYTES = 4 * 1024 * 1024
CORES = os.cpu_count() or 2
# Several tasks per core, all of one size, so that no core waits long for the last one.
TASKS = 2 * CORES
# Opening a file costs about as much as reading this many bytes.
_FILE_COST = 256 * 1024

Part = Mapping[str, Any]


def parts_of(ranges: Iterable[Range], until: Files, opened: Callable[[str], Opened]) -> Iterator[Part]:
    """The parts of all ranges; a long range of lines is cut where a record begins."""
    ranges = tuple(ranges)
    target = task_bytes(sum(_end(item, until) - item.start for item in ranges))
    for item in ranges:
        entry = until.entries[item.file]
        stop = _end(item, until)
        pieces: Sequence[tuple[int, int | None]] = [(item.start, item.stop)]
        if item.stop is not None and not entry.whole and stop - item.start > target:
            file = opened(item.file)
            with named(item.file):
                first = file.format.body(file.open_, stop) if item.start == 0 else item.start
                pieces = file.format.split(file.open_, first, stop, target)
        for start, end in pieces:
            yield {
                "file": item.file,
                "kind": item.kind,
                "start": start,
                "stop": end,
                "bytes": max((entry.size if end is None else end) - start, 0),
                "entry": entry.to_json(),
            }


def _end(item: Range, until: Files) -> int:
    return until.entries[item.file].size if item.stop is None else item.stop


def task_bytes(total: int) -> int:
    """How many bytes one task should read where all of them together read so many."""
    if total < CORES * LEAST_BYTES:
        return max(-(-total // CORES), WORTH_BYTES)
    return min(max(-(-total // TASKS), LEAST_BYTES), MOST_BYTES)


def grouped(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts put together so that each group is about a task's worth of work."""
    target = task_bytes(sum(part["bytes"] + _FILE_COST for part in parts))
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
