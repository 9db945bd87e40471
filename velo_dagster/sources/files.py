"""Files as a source: a path, a folder or a pattern, read in bulk and in increments.

A row's identity is its file (below the pattern's fixed folder) and where it stands in it: the byte of its record, or
the row's number in columnar files. Their order, file name then place, is the source's order. What a file is and how far
it was read, and what is in it, is the business of the `files_*` modules; this one puts them together behind the
contract.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from velo_dagster.sources import files_messages as messages
from velo_dagster.sources import retry
from velo_dagster.sources.contract import Bounds, Position, Probe, Scan, Schema, Source, Survey, T
from velo_dagster.sources.errors import BadRows, BrokenFile, MissingSource, SourceError, SourceMisconfigured
from velo_dagster.sources.files_access import FileAccess
from velo_dagster.sources.files_content import FileContent
from velo_dagster.sources.files_end import Rules, advance, same_content
from velo_dagster.sources.files_formats import FormatSettings, check_one_format, names_its_columns
from velo_dagster.sources.files_listing import Location, Stat, list_files
from velo_dagster.sources.files_parts import Part, parts_of
from velo_dagster.sources.files_place import entries_of, marks
from velo_dagster.sources.files_position import Entry, Files, between, removed_condition
from velo_dagster.sources.files_schema import shown_order
from velo_dagster.sql.properties import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROBE_SECONDS = 5.0
RETRY = "RetryWithBackoff"
NO_TIME_TO_RETRY = (
    f"'failure_strategy' = '{RETRY}' reads again for as long as 'wait.timeout' says, which is 0s: "
    "bad rows fail the load at once."
)


class FileSource(Source):
    """One pattern of files, opened for one table."""

    id_type: ClassVar[str] = "STRUCT<file STRING, at BIGINT>"

    def __init__(
        self,
        uri: str | None,
        properties: Mapping[str, str],
        *,
        root: Path,
        declared: Mapping[str, str],
        environ: Mapping[str, str] | None = None,
        clock: retry.Clock | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.properties = resolve("file", properties)
        written = uri or self.properties["path"] or ""
        if not written:
            raise SourceMisconfigured(
                "A file source needs a path.", steps=["Write FROM 'file:///data/orders.csv', or the property 'path'."]
            )
        self.label = written
        self.files = FileAccess(written, root, FormatSettings.of(self.properties.values))
        self.evolution = self.properties["schema.evolution"]
        self.content = FileContent(self.files, dict(declared), self.evolution, marks_bad_rows=self.marks_bad_rows)
        self.policy, warnings = retry.policy_of(self.properties.values, environ)
        self.warnings = warnings
        if self.properties["failure_strategy"] == RETRY and self.policy.timeout == 0:
            self.warnings = (*warnings, NO_TIME_TO_RETRY)
        self.metrics = retry.RetryMetrics()
        self.rules = Rules(
            keep_gone=self.properties["file.deleted"] == "keep",
            verify_full=self.properties["file.verify"] == "full",
            file_records=self.properties["max_records"],
        )
        seconds = self.properties["loading.bulk.max_duration"]
        self.bounds = Bounds(
            self.properties["loading.bulk.max_records"],
            self.properties["loading.incremental.max_records"],
            None if seconds is None else float(seconds),
        )
        self._clock = clock
        self._now_ns = now_ns
        self._notes: list[str] = []

    @property
    def keeps_bad_rows(self) -> bool:
        """Bad rows are kept aside with their reasons."""
        return self.properties["failure_strategy"] == "SendToDLQ"

    @property
    def marks_bad_rows(self) -> bool:
        """Bad rows come with their reasons instead of failing the read."""
        return self.properties["failure_strategy"] in ("SendToDLQ", "LogAndContinue")

    def patiently(self, load: Callable[[], T], note: Callable[[str], None]) -> T:
        """Under RetryWithBackoff, a file that can't be read may still be being written: it is read again, for as long
        as wait.timeout says, and its rows fail the load only then."""
        if self.properties["failure_strategy"] != RETRY:
            return load()

        def told(error: SourceError, seconds: float) -> None:
            note(f"{str(error.what).partition(chr(10))[0]} Reading again in {seconds:g} s.")

        return retry.call(
            load,
            self.policy,
            waiting_for=messages.waiting_for(self.files.location),
            metrics=self.metrics,
            clock=self._clock,
            on_wait=told,
            only=(BadRows, BrokenFile),
        )

    def notes(self) -> list[str]:
        """What the last call of `end` has seen and not delivered, one line per file."""
        return list(self._notes)

    # -- where it ends ------------------------------------------------------------------------------------------------

    def tries(self) -> Mapping[str, Any]:
        return self.metrics.as_dict()

    def probe(self, since: Position | None = None) -> Probe:
        found: list[Probe] = []
        # A file system that hangs can't be interrupted: the look runs aside, and is left alone when its time is up.
        look = threading.Thread(target=lambda: found.append(self._probe(Files.parse(since))), daemon=True)
        look.start()
        look.join(PROBE_SECONDS)
        if found:
            return found[0]
        return Probe(False, f"'{self.label}' did not answer within {PROBE_SECONDS:.0f} s.", "network")

    def _probe(self, since: Files) -> Probe:
        try:
            with self.files.told():
                listed = self._list(since, create=False)
                for name in list(listed)[:1]:
                    self.files.open(name).close()
        except SourceError as error:
            return Probe(False, str(error), error.category)
        if not listed and not self.properties["file.create.empty"]:
            said = messages.gone(self.files.location, keep=self.rules.keep_gone)
            return Probe(True, said, MissingSource.category, gone=True)
        size = sum(stat.size for stat in listed.values())
        return Probe(True, f"{len(listed)} files, {size} bytes", None)

    def end(self, since: Position | None, max_records: int | None = None, *, wait: bool = True) -> Position:
        known = Files.parse(since)
        self._notes = []

        def attempt() -> Files:
            with self.files.told():
                listed = self._list(known, create=wait)
                found, self._notes = advance(
                    known, listed, self.files.opened, self.rules, now_ns=self._now_ns(), max_records=max_records
                )
            return found

        if not wait:
            return self._position(attempt())
        found = retry.call(
            attempt,
            self.policy,
            waiting_for=messages.waiting_for(self.files.location),
            metrics=self.metrics,
            clock=self._clock,
        )
        return self._position(found)

    def _position(self, files: Files) -> Position:
        return {**files.to_json(), **marks(self.files.written, self.files.location.base)}

    def _list(self, since: Files, *, create: bool) -> dict[str, Stat]:
        """The files there are now. None at all is an error, unless some were there before and their folder still is.

        That some were there shows in the serial number; entries of removed files are not kept.
        """
        location = self.files.location
        try:
            listed = list_files(location)
        except FileNotFoundError as error:
            if self.properties["file.create.empty"]:
                return self._create_empty(location) if create else {}
            if since.serial and location.base.is_dir():
                return {}
            raise messages.missing(location, error) from error
        if not listed and not since.serial and not self.properties["file.create.empty"]:
            raise messages.missing(location, f"no file below {location.base} matches")
        check_one_format(self.files.settings, listed)
        return listed

    def _create_empty(self, location: Location) -> dict[str, Stat]:
        if location.is_pattern or not location.patterns:
            location.base.mkdir(parents=True, exist_ok=True)
            return {}
        path = location.path(location.patterns[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return list_files(location)

    # -- what lies between --------------------------------------------------------------------------------------------

    def scan(self, since: Position | None, until: Position) -> Scan:
        end = Files.parse(until)
        what = between(Files.parse(since), end)
        with self.files.told():
            parts = tuple(parts_of(what.ranges, end, self.files.opened))
        lists = [
            (entry.columns, not names_its_columns(entry.kind))
            for _, entry in sorted(end.entries.items())
            if entry.columns
        ]
        names = shown_order(dict.fromkeys(lists))
        return Scan(removed_condition(what), _marked(parts, end), sum(part["bytes"] for part in parts), names)

    def is_empty(self, position: Position) -> bool:
        return not any(entry.columns for entry in Files.parse(position).entries.values())

    def summary(self, position: Position) -> str:
        entries = Files.parse(position).entries
        size = sum(entry.hashed for entry in entries.values())
        gone = sum(entry.gone for entry in entries.values())
        files = "1 file" if len(entries) == 1 else f"{len(entries)} files"
        return f"{files}, {size} bytes" + (f", {gone} of them gone" if gone else "")

    def reached(self, position: Position, goal: Position) -> bool:
        have, want = Files.parse(position).entries, Files.parse(goal).entries
        return all(
            _holds(have[name], entry) if name in have else not (entry.read and self.files.exists(name))
            for name, entry in want.items()
        )

    def verify(self, scan: Scan, until: Position) -> None:
        entries = Files.parse(until).entries
        for name in dict.fromkeys(part["file"] for part in scan.parts):
            with self.files.told():
                same = self._has(name, entries[name])
            if not same:
                how = "changed" if self.files.exists(name) else "disappeared"
                raise messages.changed(self.files.location, name, how)

    def lost(self, position: Position, held: Position | None = None) -> tuple[str, ...]:
        if not self.rules.keep_gone:
            return ()
        given, kept = (entries_of(one, self.files.written, self.files.location) for one in (position, held))
        return tuple(
            name
            for name, entry in given.items()
            if entry.read and not _is_later(kept.get(name), entry) and not self.files.exists(name)
        )

    def _has(self, name: str, entry: Entry) -> bool:
        """Whether the file still has all that the entry says was read."""
        try:
            status = self.files.location.path(name).stat()
            stat = Stat(status.st_size, status.st_mtime_ns)
            if stat == Stat(entry.size, entry.mtime_ns) and not entry.fresh:
                return True
            return same_content(entry, stat, partial(self.files.open, name))
        except (FileNotFoundError, NotADirectoryError):
            return False

    # -- what is in it ------------------------------------------------------------------------------------------------

    def schema(self, scan: Scan, known: Schema) -> Schema:
        return self.content.schema(scan, known)

    def survey(self, spark: SparkSession, scan: Scan, known: Schema) -> Survey:
        return self.content.survey(spark, scan, known)

    def read(self, spark: SparkSession, scan: Scan, schema: Schema, system_columns: Sequence[str] = ()) -> DataFrame:
        return replace(self.content, meter=self.meter).read(spark, scan, schema, system_columns)


def _is_later(have: Entry | None, entry: Entry) -> bool:
    """Whether an entry is of the same or a later state of a file, read to its end."""
    return have is not None and have.mtime_ns >= entry.mtime_ns and not have.cut


def _holds(have: Entry, want: Entry) -> bool:
    """Whether one entry has all rows of another. A file that was replaced since has what there is now instead."""
    if have.gone:
        # The rest of it will never come.
        return True
    if have.started != want.started or have.stop is None:
        return not have.cut
    return want.stop is not None and have.read >= want.settled


def _marked(parts: Sequence[Part], end: Files) -> tuple[Part, ...]:
    """The parts, those marked whose files show a column that no file before them does: each column is sampled."""
    shown: set[str] = set()
    marked: list[Part] = []
    for part in parts:
        names = end.entries[part["file"]].columns or ()
        marked.append(part if shown.issuperset(names) else {**part, "shows": True})
        shown.update(names)
    return tuple(marked)
