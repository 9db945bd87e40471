"""Files as a source: a path, a folder or a pattern, read in bulk and in increments.

A row's identity is its file (below the pattern's fixed folder) and where it stands in it: the byte of its record, or
the row's number in columnar files. Their order, file name then place, is the source's order. What a file is and how far
it was read is the business of the `files_*` modules; this one puts them together behind the contract.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from velo_dagster.sources import files_messages as messages
from velo_dagster.sources import retry
from velo_dagster.sources.contract import BadRow, Bounds, Position, Probe, Scan, Schema, Source, Survey, T
from velo_dagster.sources.errors import BadRows, BrokenFile, SourceError, SourceMisconfigured
from velo_dagster.sources.files_end import Opened, Rules, advance, same_content
from velo_dagster.sources.files_formats import PARQUET, FormatSettings, check_one_format, kind_of, reader_of
from velo_dagster.sources.files_listing import Location, Stat, list_files, locate
from velo_dagster.sources.files_parquet import FileSchema, ParquetRead, has_nanoseconds
from velo_dagster.sources.files_parts import Part, parts_of
from velo_dagster.sources.files_position import Entry, Files, between, removed_condition
from velo_dagster.sources.files_read import BAD_ROWS_SHOWN, Reading, columns_of
from velo_dagster.sources.files_schema import Columns, held_types, join_all, make_schema, shown_order, typed_columns
from velo_dagster.sql.properties import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROBE_SECONDS = 5.0
RETRY = "RetryWithBackoff"
NO_TIME_TO_RETRY = (
    f"'failure_strategy' = '{RETRY}' reads again for as long as 'wait.timeout' says, which is 0s: "
    "bad rows fail the load at once."
)
SAMPLED_PARTS = 16
SYSTEM_COLUMNS = ("_file", "_line")


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
            waiting_for=messages.waiting_for(self.location),
            metrics=self.metrics,
            clock=self._clock,
            on_wait=told,
            only=(BadRows, BrokenFile),
        )

    def notes(self) -> list[str]:
        """What the last call of `end` has seen and not delivered, one line per file."""
        return list(self._notes)

    @cached_property
    def location(self) -> Location:
        return locate(self.written, self.root)

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
            listed = self._list(since, create=False)
            for name in list(listed)[:1]:
                with self._open(name):
                    pass
        except SourceError as error:
            return Probe(False, str(error), error.category)
        except OSError as error:
            translated = self._from_system(error)
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
                raise self._from_system(error) from error
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
        """The files there are now. None at all is an error, unless some were there before and their folder still is.

        That some were there shows in the serial number; entries of removed files are not kept.
        """
        location = self.location
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
        end = Files.parse(until)
        what = between(Files.parse(since), end)
        try:
            parts = tuple(parts_of(what.ranges, end, self._opened))
        except OSError as error:
            raise self._from_system(error) from error
        lists = [(entry.columns, not _by_key(entry.kind)) for _, entry in sorted(end.entries.items()) if entry.columns]
        names = shown_order(dict.fromkeys(lists))
        return Scan(removed_condition(what), _marked(parts, end), sum(part["bytes"] for part in parts), names)

    def summary(self, position: Position) -> str:
        entries = Files.parse(position).entries
        size = sum(entry.hashed for entry in entries.values())
        gone = sum(entry.gone for entry in entries.values())
        files = "1 file" if len(entries) == 1 else f"{len(entries)} files"
        return f"{files}, {size} bytes" + (f", {gone} of them gone" if gone else "")

    def reached(self, position: Position, goal: Position) -> bool:
        have, want = Files.parse(position).entries, Files.parse(goal).entries
        return all(
            _holds(have[name], entry) if name in have else not (entry.read and self._exists(name))
            for name, entry in want.items()
        )

    def verify(self, scan: Scan, until: Position) -> None:
        entries = Files.parse(until).entries
        for name in dict.fromkeys(part["file"] for part in scan.parts):
            try:
                same = self._has(name, entries[name])
            except OSError as error:
                raise self._from_system(error) from error
            if not same:
                how = "changed" if self._exists(name) else "disappeared"
                raise messages.changed(self.location, name, how)

    def lost(self, position: Position) -> tuple[str, ...]:
        if not self.rules.keep_gone:
            return ()
        entries = Files.parse(position).entries
        return tuple(name for name, entry in entries.items() if entry.read and not self._exists(name))

    def _exists(self, name: str) -> bool:
        try:
            return self.location.path(name).exists()
        except OSError as error:
            raise self._from_system(error) from error

    def _has(self, name: str, entry: Entry) -> bool:
        """Whether the file still has all that the entry says was read."""
        try:
            status = self.location.path(name).stat()
            stat = Stat(status.st_size, status.st_mtime_ns)
            if stat == Stat(entry.size, entry.mtime_ns) and not entry.fresh:
                return True
            return same_content(entry, stat, partial(self._open, name))
        except (FileNotFoundError, NotADirectoryError):
            return False

    # -- what is in it ------------------------------------------------------------------------------------------------

    def schema(self, scan: Scan, known: Schema) -> Schema:
        some = _some(scan.parts)
        try:
            return self._schema_of(
                scan, known, lambda reading: join_all(reading.open_part(part).sample() for part in some)
            )
        except OSError as error:
            raise self._from_system(error) from error

    def _schema_of(self, scan: Scan, known: Schema, look: Callable[[Reading], Columns]) -> Schema:
        """The schema that a look at records gives. A bare DECIMAL holds them to nothing at first; if it has values that
        are no numbers, these are bad rows, and another look leaves them out."""
        held = held_types(self.declared, ())
        while True:
            schema = self._made(scan, known, look(replace(self._reading(()), declared=held)), self.declared | held)
            more = held_types(self.declared, schema)
            if more.keys() <= held.keys():
                return schema
            held |= more

    def survey(self, spark: SparkSession, scan: Scan, known: Schema) -> Survey:
        from velo_dagster.sources.files_spark import survey_parts

        by_spark, by_arrow = self._readers(scan)
        typed = [typed_columns(self._typed(part["file"])) for part in by_spark]
        found: list[dict[str, Any]] = []

        def look(reading: Reading) -> Columns:
            found[:] = survey_parts(spark, reading, by_arrow) if by_arrow else []
            return join_all([*typed, *(columns_of(group) for group in found)])

        schema = self._schema_of(scan, known, look)
        bad = [BadRow(*row) for group in found for row in group["bad"]]
        count = sum(group["bad_count"] for group in found)
        if by_spark:
            more, more_count = self._parquet(schema, True, ()).bad_rows(spark, by_spark, self._typed)
            bad, count = [*more, *bad], count + more_count
        return Survey(schema, tuple(bad[:BAD_ROWS_SHOWN]), count)

    def read(self, spark: SparkSession, scan: Scan, schema: Schema, system_columns: Sequence[str] = ()) -> DataFrame:
        from velo_dagster.sources.files_spark import read_rows

        system_columns = self._allowed(system_columns)
        by_spark, by_arrow = self._readers(scan)
        if not by_spark:
            return read_rows(spark, self._reading(schema), by_arrow, schema, system_columns)
        rows = self._parquet(schema, self.marks_bad_rows, system_columns).rows(spark, by_spark, self._typed)
        return (
            rows.union(read_rows(spark, self._reading(schema), by_arrow, schema, system_columns)) if by_arrow else rows
        )

    def _readers(self, scan: Scan) -> tuple[list[Part], list[Part]]:
        """The parts that Spark's own reader takes, and the others."""
        by_spark: list[Part] = []
        by_arrow: list[Part] = []
        for part in scan.parts:
            (by_spark if part["kind"] == PARQUET and self._is_for_spark(part["file"]) else by_arrow).append(part)
        return by_spark, by_arrow

    def _is_for_spark(self, name: str) -> bool:
        try:
            path = self.location.path(name)
            # Spark's listing takes what stands before a colon for the scheme of a URI, and passes over files that are
            # hidden by their names, without a word, even if they are asked for.
            if ":" in str(path) or path.name.startswith(("_", ".")) or path.name.endswith("._COPYING_"):
                return False
            with messages.named(path), self._open(name) as file:
                return not has_nanoseconds(file)
        except OSError as error:
            raise self._from_system(error) from error

    def _parquet(self, schema: Schema, mark_bad: bool, system_columns: Sequence[str]) -> ParquetRead:
        declared = frozenset(name.lower() for name in held_types(self.declared, schema))
        return ParquetRead(str(self.location.base), schema, declared, mark_bad, system_columns)

    def _typed(self, name: str) -> FileSchema:
        """The columns and types that a file itself declares."""
        try:
            with messages.named(self.location.path(name)):
                return tuple(self._opened(name).format.typed_schema(partial(self._open, name)) or ())
        except OSError as error:
            raise self._from_system(error) from error

    def _made(self, scan: Scan, known: Schema, seen: Columns, declared: Mapping[str, str]) -> Schema:
        # A JSON record may leave out any field; a file with a header that lacks a declared column is another matter.
        names_itself = any(_by_key(part["kind"]) for part in scan.parts[:1])
        return make_schema(
            known,
            seen,
            declared,
            self.properties["schema.evolution"],
            shown=scan.names,
            add_declared=names_itself or not (known or seen),
        )

    def _reading(self, schema: Schema) -> Reading:
        names = {field.name.lower() for field in schema}
        held = held_types(self.declared, schema)
        return Reading(
            base=str(self.location.base),
            settings=self.settings,
            columns=tuple((field.name, field.type) for field in schema),
            declared={name: type_ for name, type_ in held.items() if not schema or name.lower() in names},
            mark_bad=self.marks_bad_rows,
        )

    def _allowed(self, system_columns: Sequence[str]) -> tuple[str, ...]:
        unknown = [name for name in system_columns if name not in SYSTEM_COLUMNS]
        if unknown:
            raise SourceMisconfigured(
                f"Files have no column {', '.join(unknown)}.",
                steps=[f"Rows of files have {' and '.join(SYSTEM_COLUMNS)}."],
            )
        return tuple(system_columns)

    def _from_system(self, error: OSError) -> SourceError:
        """What the system said, about the file that it named."""
        name = str(error.filename)
        if name.startswith(f"{self.location.base}/"):
            return messages.from_system(error, self.location, name[len(str(self.location.base)) + 1 :])
        return messages.from_system(error, self.location)


def _holds(have: Entry, want: Entry) -> bool:
    """Whether one entry has all rows of another. A file that was replaced since has what there is now instead."""
    if have.gone:
        # The rest of it will never come.
        return True
    if have.started != want.started or have.stop is None:
        return not have.cut
    return want.stop is not None and have.read >= want.settled


def _by_key(kind: str | None) -> bool:
    """Whether each record names its own columns."""
    return (kind or "").startswith("json")


def _marked(parts: Sequence[Part], end: Files) -> tuple[Part, ...]:
    """The parts, those marked whose files show a column that no file before them does: each column is sampled."""
    shown: set[str] = set()
    marked: list[Part] = []
    for part in parts:
        names = end.entries[part["file"]].columns or ()
        marked.append(part if shown.issuperset(names) else {**part, "shows": True})
        shown.update(names)
    return tuple(marked)


def _some(parts: Sequence[Part]) -> Sequence[Part]:
    """Parts for a sample: the first one, the last one, some spread between, and those that show a column first."""
    if len(parts) <= SAMPLED_PARTS:
        return parts
    step = (len(parts) - 1) / (SAMPLED_PARTS - 1)
    spread = {round(number * step) for number in range(SAMPLED_PARTS)}
    return [part for number, part in enumerate(parts) if number in spread or "shows" in part]
