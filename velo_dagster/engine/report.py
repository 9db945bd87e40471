"""What a load did, as a value: the CLI prints it, Dagster shows it, tests compare it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
    """One load of one table."""

    table: str
    outcome: Outcome
    method: str = ""
    reason: str = ""
    load: int = 0
    version: int | None = None
    rows_read: int = 0
    rows_changed: int = 0
    rejected: int = 0
    ready: bool = True
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: Exception | None = None

    @property
    def well(self) -> bool:
        return self.outcome not in (Outcome.BLOCKED, Outcome.FAILED)
