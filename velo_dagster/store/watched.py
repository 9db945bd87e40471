"""A warehouse that is looked at again and again: what was read of a log is kept until the log changes.

Every commit adds a file to the log's folder, so the folder's time tells. That time is coarse: two commits right after
one another may leave the same. So nothing is kept of a folder that has only just changed.
"""

from __future__ import annotations

import time
from pathlib import Path

from velo_dagster.store.record import Record
from velo_dagster.store.table import Table, Warehouse

SETTLED_SECONDS = 2.0
"""No file system's times are coarser."""

_Kept = dict[tuple[Path, bool], tuple[tuple[int, int], Record]]


class WatchedWarehouse(Warehouse):
    """For a process that lives long: a sensor's, whose ticks find most tables as they were."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._kept: _Kept = {}

    def table(self, name: str) -> Table:
        return _WatchedTable(name, super().table(name).path, self._kept)


class _WatchedTable(Table):
    def __init__(self, name: str, path: Path, kept: _Kept) -> None:
        super().__init__(name, path)
        self._kept = kept

    def record(self, *, trusting: bool = False) -> Record | None:
        state, now = self._state(), time.time()
        kept = self._kept.pop((self.path, trusting), None)
        if kept is None or kept[0] != state:
            record = super().record(trusting=trusting)
            if record is None or state is None or now - state[1] / 1e9 < SETTLED_SECONDS:
                return record
            kept = state, record
        self._kept[self.path, trusting] = kept
        return kept[1]

    def _state(self) -> tuple[int, int] | None:
        """Which folder holds the log, and when it last changed; None if there is none yet."""
        try:
            found = (self.path / "_delta_log").stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns
