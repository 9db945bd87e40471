"""What a load did, as a value: the CLI prints it, Dagster shows it, tests compare it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Steps:
    """A stopwatch: how long each step of a load took, by its name; a step that is made again adds to it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


class Outcome(StrEnum):
    """How a load of one table ended. Only BLOCKED and FAILED are not well."""

    BULK = "bulk"
    INCREMENT = "increment"
    UNCHANGED = "unchanged"
    NO_ROWS = "no rows yet"
    BLOCKED = "blocked"
    FAILED = "failed"


@dataclass(frozen=True)
class LoadReport:
    """One load of one table.

    `rejected`: bad rows kept aside, of all loads so far. `skipped`: bad rows that this load left out. `retries`: by
    source, what was counted while it was waited for; only sources that were tried more than once. `steps`: seconds by
    step; Spark computes while it commits.
    """

    table: str
    outcome: Outcome
    method: str = ""
    reason: str = ""
    load: int = 0
    version: int | None = None
    rows_read: int = 0
    rows_changed: int = 0
    rejected: int = 0
    skipped: int = 0
    ready: bool = True
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    retries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    error: Exception | None = None

    @property
    def retried(self) -> int:
        """How often a source was tried again."""
        return sum(counted["retries"] for counted in self.retries.values())

    @property
    def well(self) -> bool:
        return self.outcome not in (Outcome.BLOCKED, Outcome.FAILED)

    def __str__(self) -> str:
        """One line: mode, method, rows read, rows changed, version, seconds."""
        parts = [str(self.outcome)]
        if self.version is not None:
            parts = [f"{self.outcome} by {self.method}"]
            parts[0] += f" ({self.reason})" if self.method == "full" else ""
            parts += [f"{count(self.rows_read, 'row')} read"] if self.rows_read else []
            parts += [f"{count(self.rows_changed, 'row')} changed"]
            parts += [f"{count(self.rejected, 'row')} rejected"] if self.rejected else []
            parts += [f"{count(self.skipped, 'bad row')} skipped"] if self.skipped else []
            parts += [f"version {self.version}"]
            parts += [] if self.ready else ["not ready yet: its first load goes on"]
        if self.retried:
            waited = sum(counted["waited_seconds"] for counted in self.retries.values())
            parts.append(f"{self.retried} {'retry' if self.retried == 1 else 'retries'} in {waited:.1f} s")
        return f"{self.table}: {', '.join(parts)}, {self.seconds:.1f} s"


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "row"), count(20000, "row")
    ('1 row', '20,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
