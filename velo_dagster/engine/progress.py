"""How a load stands, for whoever watches it from another thread: what is known, and never a number that is not.

Tables that are waited for are known, and so is what the tasks of a read have noted: rows and bytes, and, because a scan
says how many bytes there are, the time that the rest takes at the same rate. What Spark does with rows afterwards, or
with rows of other tables, it does not tell; then only the step is named.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from velo_dagster.engine.report import count
from velo_dagster.sources.contract import Source
from velo_dagster.sources.meter import noted


@dataclass(frozen=True)
class Reading:
    """A read that goes on: what is read, how many bytes it has, where its tasks note how far they are."""

    label: str
    bytes: int
    folder: Path
    started: float


@dataclass
class Progress:
    """Written by the load, read by whoever watches; each field is set in one step."""

    table: str = ""
    started: float = field(default_factory=time.monotonic)
    doing: str = "loading"
    reading: Reading | None = None
    clock: Callable[[], float] = time.monotonic

    def begins(self, table: str) -> None:
        self.table, self.started, self.doing, self.reading = table, self.clock(), "loading", None

    def stands(self, tables: str, waiting_since: datetime | None) -> None:
        """How the tables stand that the load reads."""
        self.doing = tables if waiting_since is None else f"{tables} since {waiting_since:%H:%M:%S} UTC"

    @contextmanager
    def reads(self, source: Source, size: int) -> Iterator[None]:
        """While this lasts, a source's rows are read."""
        folder = Path(tempfile.mkdtemp(prefix="velo-read-"))
        source.meter = str(folder)
        self.reading = Reading(source.label, size, folder, self.clock())
        try:
            yield
        finally:
            self.reading = source.meter = None
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def told(self, seconds: float, tell: Callable[[str], object]) -> Iterator[None]:
        """While this lasts, how things stand is told every so many seconds."""
        done = threading.Event()

        def telling() -> None:
            while not done.wait(seconds):
                tell(self.line())

        teller = threading.Thread(target=telling, daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()

    def line(self) -> str:
        reading = self.reading
        doing = self.doing if reading is None else self._read(reading)
        return f"{self.table}: {doing}, {self.clock() - self.started:.0f} s so far."

    def _read(self, reading: Reading) -> str:
        """Rows so far, rate and time left; of a read whose tasks have noted nothing, only what is read."""
        try:
            rows, size = noted(reading.folder)
        except FileNotFoundError:
            # It ended just now.
            rows, size = 0, 0
        seconds = self.clock() - reading.started
        if not rows or not seconds:
            return f"reading {reading.label} ({count(reading.bytes, 'byte')})"
        rate = count(round(rows / seconds), "row")
        told = f"reading {reading.label}, {count(rows, 'row')} so far, {rate}/s"
        if 0 < size < reading.bytes:
            left = (reading.bytes - size) * seconds / size
            return (
                f"{told}, {100 * size // reading.bytes} % of {reading.bytes:,} bytes, about {left:.0f} s left to read"
            )
        return told
