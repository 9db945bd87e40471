"""Files as a source: a path, a folder or a pattern, read in bulk and in increments.

A row's identity is its file (below the pattern's fixed folder) and where it stands in it: the byte of its record, or the
row's number in columnar files. Their order, file name then place, is the source's order. What a file is and how far it was
read is the business of the `files_*` modules; this one puts them together behind the contract.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from velo_dagster.sources import files_messages as messages
from velo_dagster.sources import retry
from velo_dagster.sources.contract import Position, Probe, Scan, Schema, Source, Survey
from velo_dagster.sources.errors import SourceError, SourceMisconfigured
from velo_dagster.sources.files_end import Opened, Rules, advance, same_content
from velo_dagster.sources.files_formats import FormatSettings, check_one_format, kind_of, reader_of
from velo_dagster.sources.files_listing import Location, Stat, list_files, locate
from velo_dagster.sources.files_position import Entry, Files, between, removed_condition
from velo_dagster.sources.properties import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROBE_SECONDS = 5.0


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
        self.written = uri or self.properties["path"] or ""
        if not self.written:
            raise SourceMisconfigured(
                "A file source needs a path.", steps=["Write FROM 'file:///data/orders.csv', or the property 'path'."]
            )
        self.label = self.written
        self.root = root
        self.declared = dict(declared)
        self.settings = FormatSettings.of(self.properties.values)
        self.policy, warnings = retry.policy_of(self.properties.values, environ)
        self.warnings = self.properties.warnings + warnings
        self.metrics = retry.RetryMetrics()
        self.rules = Rules(
            keep_gone=self.properties["file.deleted"] == "keep",
            verify_full=self.properties["file.verify"] == "full",
            file_records=self.properties["max_records"],
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

    def notes(self) -> list[str]:
        """What the last call of `end` has seen and not delivered, one line per file."""
        return list(self._notes)

    @cached_property
    def location(self) -> Location:
        return locate(self.written, self.root)

    # -- where it ends ------------------------------------------------------------------------------------------------

    def probe(self) -> Probe:
        found: list[Probe] = []
        # A file system that hangs can't be interrupted: the look runs aside, and is left alone when its time is up.
        look = threading.Thread(target=lambda: found.append(self._probe()), daemon=True)
        look.start()
        look.join(PROBE_SECONDS)
        if found:
            return found[0]
        return Probe(False, f"'{self.label}' did not answer within {PROBE_SECONDS:.0f} s.", "network")

    def _probe(self) -> Probe:
        try:
            listed = self._list(Files(), create=False)
            for name in list(listed)[:1]:
                with self._open(name):
                    pass
        except SourceError as error:
            return Probe(False, str(error), error.category)
        except OSError as error:
            translated = messages.from_system(error, self.location)
            return Probe(False, str(translated), translated.category)
        size = sum(stat.size for stat in listed.values())
        return Probe(True, f"{len(listed)} files, {size} bytes", None)

    def end(self, since: Position | None, max_records: int | None = None) -> Position:
        files = Files.parse(since)
        self._notes = []

        def attempt() -> Files:
            try:
                listed = self._list(files, create=True)
                found, self._notes = advance(
                    files, listed, self._opened, self.rules, now_ns=self._now_ns(), max_records=max_records
                )
            except OSError as error:
                raise messages.from_system(error, self.location, _name_in(error, self.location)) from error
            return found

        found = retry.call(
            attempt,
            self.policy,
            waiting_for=messages.waiting_for(self.location),
            metrics=self.metrics,
            clock=self._clock,
        )
        return found.to_json()

    def _list(self, since: Files, *, create: bool) -> dict[str, Stat]:
        """The files there are now. None at all is an error, unless some were there before and their folder still is."""
        location = self.location
        try:
            listed = list_files(location)
        except FileNotFoundError as error:
            if self.properties["file.create.empty"]:
                return self._create_empty(location) if create else {}
            if since.entries and location.base.is_dir():
                return {}
            raise messages.missing(location, error) from error
        if not listed and not since.entries and not self.properties["file.create.empty"]:
            raise messages.missing(location, f"no file below {location.base} matches")
        check_one_format(self.settings, listed)
        return listed

    def _create_empty(self, location: Location) -> dict[str, Stat]:
        if location.is_pattern or not location.patterns:
            location.base.mkdir(parents=True, exist_ok=True)
            return {}
        path = location.path(location.patterns[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return list_files(location)

    def _open(self, name: str) -> BinaryIO:
        return self.location.path(name).open("rb")

    def _opened(self, name: str) -> Opened:
        open_ = partial(self._open, name)
        kind = kind_of(self.settings, name, open_)
        return Opened(open_, reader_of(self.settings, kind), kind)

    # -- what lies between --------------------------------------------------------------------------------------------

    def scan(self, since: Position | None, until: Position) -> Scan:
        from velo_dagster.sources.files_parts import parts_of

        end = Files.parse(until)
        what = between(Files.parse(since), end)
        try:
            parts = tuple(parts_of(what.ranges, end, self._opened))
        except OSError as error:
            raise messages.from_system(error, self.location, _name_in(error, self.location)) from error
        return Scan(removed_condition(what), parts, sum(part["bytes"] for part in parts))

    def reached(self, position: Position, goal: Position) -> bool:
        """A file that was replaced or removed since holds the goal's rows no more: what is there now is further."""
        have, want = Files.parse(position).entries, Files.parse(goal).entries
        return all(name not in have or _further(have[name], entry) for name, entry in want.items()) and want.keys() <= {
            *have,
            *self._vanished(want),
        }

    def verify(self, scan: Scan, until: Position) -> None:
        files = Files.parse(until)
        for name in dict.fromkeys(part["file"] for part in scan.parts):
            self._check(name, files.entries[name])

    def lost(self, position: Position) -> tuple[str, ...]:
        return tuple(name for name, entry in Files.parse(position).entries.items() if entry.read and not self._has(name, entry))
