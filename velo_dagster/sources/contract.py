"""What every source promises to a load.

A load asks a source four things, in this order: where it ends now (`end`), what lies between the last load's position
and that end (`scan`), which columns that has (`schema`), and the rows themselves (`read`). Everything but `read` and
`survey` runs without Spark. The promises that make a table equal to a full reload:

1. `end` is fixed before anything is read, and `read` delivers exactly what lies before it, however often it is called.
2. `_velo_id` is unique among the rows delivered, and its order is the source's own order, not that of arrival.
3. `scan(a, c)` delivers the same rows as `scan(a, b)` followed by `scan(b, c)`, removals included.
4. A position is plain JSON that only its source understands, and two equal positions mean the same rows.
5. A value is delivered exactly or not at all: what does not fit its column's type ends the read, or marks its row.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Position = Mapping[str, Any]
T = TypeVar("T")

ID = "_velo_id"
ERROR = "_velo_error"
UNFINISHED = "for the end of the line, or of an open quote"
"""How a note ends that tells of bytes which wait for more of them."""


@dataclass(frozen=True)
class Field:
    """A column of a source: its name and Spark type; no type while only NULLs were delivered."""

    name: str
    type: str | None


Schema = tuple[Field, ...]


@dataclass(frozen=True)
class Scan:
    """What lies between two positions: rows that went, and parts to read. `parts` are plain JSON, the source's own.

    `names`: columns in the source's own order, all of those up to the later position whose place it knows. It must not
    depend on what was delivered when: the order of `*` is that of a full reload.
    """

    removed: str | None
    parts: tuple[Mapping[str, Any], ...]
    bytes: int
    names: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return self.removed is None and not self.parts


@dataclass(frozen=True)
class BadRow:
    """A row that could not be delivered, where it stands, and why."""

    place: str
    reason: str
    text: str


@dataclass(frozen=True)
class Survey:
    """What reading all of a scan, slowly and in full, found out: the least types, some bad rows, and how many."""

    schema: Schema
    bad_rows: tuple[BadRow, ...]
    bad_count: int


@dataclass(frozen=True)
class Probe:
    """A bounded look: is it there, may we read it, and if not, why, in a sentence that helps.

    `gone`: it was read before and is not there any more, and yet ready, because a load goes on without it.
    """

    ready: bool
    message: str
    category: str | None
    gone: bool = False


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of one load (`loading.*`); the rest comes in the next."""

    bulk_records: int | None = None
    incremental_records: int | None = None
    bulk_seconds: float | None = None


class Source(ABC):
    """One source, opened for one table. Cheap to make: nothing is touched before the first call."""

    id_type: ClassVar[str]
    increments: ClassVar[bool] = True
    """It can deliver what lies between two positions; if not, each load reads all of it, and says so."""

    label: str
    bounds: Bounds = Bounds()
    evolution: str = "evolve"
    """What becomes of columns that were not there before (`schema.evolution`)."""
    meter: str | None = None
    """A folder in which the tasks of a read may note how far they are (`sources.meter`)."""
    warnings: Sequence[str] = ()
    keeps_bad_rows: bool = False
    """Bad rows are kept aside with their reasons (SendToDLQ)."""
    marks_bad_rows: bool = False
    """Bad rows come with their reasons instead of failing the read (SendToDLQ, LogAndContinue)."""

    def notes(self) -> list[str]:
        """What the last call of `end` has seen and not delivered, in sentences for the user."""
        return []

    def tries(self) -> Mapping[str, Any]:
        """What was counted while `end` waited: attempts, retries, waited_seconds, errors by category and so on."""
        return {}

    @property
    def server(self) -> str | None:
        """What it is reached through, if that is asked about many sources at once; None: each by itself."""
        return None

    @classmethod
    def probe_together(cls, sources: Sequence[tuple[Source, Position | None]]) -> list[Probe]:
        """A look at several sources of one server, in their order, within five seconds, if it can be one call."""
        return [source.probe(since) for source, since in sources]

    @abstractmethod
    def probe(self, since: Position | None = None) -> Probe:
        """Look once, within five seconds, and report; never raises for what is wrong outside.

        Whether a load from `since` could read it: what was delivered before may be gone.
        """

    @abstractmethod
    def end(self, since: Position | None, max_records: int | None = None, *, wait: bool = True) -> Position:
        """Where the source ends now, waiting for it as its properties say; at most `max_records` rows past `since`.

        Without `wait` it is a look: one try, and nothing outside is changed.
        """

    @abstractmethod
    def scan(self, since: Position | None, until: Position) -> Scan:
        """What lies between; `since` None is the beginning."""

    def is_empty(self, position: Position) -> bool:
        """Whether nothing was delivered up to there."""
        return self.scan(None, position).empty

    @abstractmethod
    def schema(self, scan: Scan, known: Schema) -> Schema:
        """`known`, joined with a look at a sample of the scan. Empty if there is no row and no declared column.

        The order of the columns, and that of a survey, is a function of the position the scan leads to.
        """

    @abstractmethod
    def survey(self, spark: SparkSession, scan: Scan, known: Schema) -> Survey:
        """Read all of the scan for its least types and its bad rows."""

    @abstractmethod
    def read(self, spark: SparkSession, scan: Scan, schema: Schema, system_columns: Sequence[str] = ()) -> DataFrame:
        """The scan's rows: the schema's columns, those of the system columns asked for that the kind has, `_velo_id`,
        `_velo_error`. What the schema has itself is not asked for.

        A value that does not fit its inferred type fails the job, and so does a part that is no longer what the scan
        says when it has been read. A bad row fails the job under FailBatch, else it comes with
        `_velo_error` STRUCT<place STRING, reason STRING, text STRING>, which is NULL for good rows.
        """

    @abstractmethod
    def verify(self, scan: Scan, until: Position) -> None:
        """Raise `SourceChanged` if what was read may not have been what `until` describes.

        Called after a job that failed, and after a commit (for sources whose reader cannot look by itself).
        """

    def summary(self, position: Position) -> str:
        """How far that is, in a few words."""
        return json.dumps(position)

    def reached(self, position: Position, goal: Position) -> bool:
        """Does `position` hold all that `goal` does?"""
        return position == goal

    def lost(self, position: Position, held: Position | None = None) -> tuple[str, ...]:
        """What was delivered up to `position` and is meant to stay, but would be missing after a full reload; without
        what a reader at `held` has, too.

        Another source may have delivered it, because the statement reads this one now: only what this one would deliver
        as well, if it still had it, is meant to stay.
        What the source has replaced since is not lost: a full reload delivers what is there now.
        """
        return ()

    def patiently(self, load: Callable[[], T], note: Callable[[str], None]) -> T:
        """Run a load; again, as the source's properties say, if its rows can't be read and may be by and by."""
        return load()

    def acknowledge(self, position: Position) -> None:  # noqa: B027 - most sources have nothing to do here
        """The rows up to `position` are committed: the source may forget them."""
