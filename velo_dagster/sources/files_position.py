"""How far each file has been read, as a value, and what lies between two such values.

A position names every file that was delivered: what it looked like, how far it was read, and hashes by which we know it
again. Why two positions are enough to say what lies between them:

- `started` is the position's serial number at the time a file was read from its beginning. It rises whenever a file is
  new, rewritten, truncated, or comes back with other content, and never else. So two entries with the same `started`
  are two moments of one file that only grew, and the later one holds the earlier one's rows.
- `tail_open` is the start of a last record that had no line end when it was delivered. More bytes may change that
  record, so whatever follows such an entry takes it back (`at >= tail_open`) and reads on from there.
- Entries with different `started` share nothing: all rows of the file are taken back, and it is read from its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from velo_dagster.sources.contract import ID, Position
from velo_dagster.sources.errors import SourceMisconfigured

VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One file of a position.

    `read` counts bytes (rows for columnar formats, bytes of the unpacked stream for compressed files). `whole` marks a
    format that can't grow at its end: it is known by all of its bytes and, unless `cut`, read to its end. `cut` says
    that a bound stopped the reading at `read`, `grows` that the file was seen growing, `fresh` that it changed so
    shortly before we looked that its time of change proves nothing, `gone` that it vanished and its rows are kept.
    `columns` are the names that the file's head, or its first record, shows; None while nothing of it was read.
    """

    size: int
    mtime_ns: int
    read: int
    started: int
    head: str
    tail: str
    full: str | None = None
    tail_open: int | None = None
    records: int | None = None
    kind: str | None = None
    whole: bool = False
    cut: bool = False
    grows: bool = False
    fresh: bool = False
    gone: bool = False
    columns: tuple[str, ...] | None = None

    @property
    def settled(self) -> int:
        """Where reading goes on: behind the last record that can't change any more."""
        return self.read if self.tail_open is None else self.tail_open

    @property
    def stop(self) -> int | None:
        """Where the rows delivered end; None is the end of the file."""
        return None if self.whole and not self.cut else self.read

    @property
    def hashed(self) -> int:
        """How many of the file's first bytes the hashes speak of."""
        return self.size if self.whole else self.read

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without what is at its default and without the columns, which many files share."""
        return {
            key: value
            for key, value in vars(self).items()
            if key == "tail_open" or (value is not None and value is not False and key != "columns")
        }


@dataclass(frozen=True)
class Files:
    """A position, taken apart."""

    serial: int = 0
    entries: Mapping[str, Entry] = field(default_factory=dict)

    @classmethod
    def parse(cls, position: Position | None) -> Files:
        if position is None:
            return cls()
        if position.get("version") != VERSION:
            raise SourceMisconfigured(
                f"This position of files has version {position.get('version')!r}; this program knows {VERSION}.",
                steps=["Use the version of velo-dagster that made the last load, or load again with --full-refresh."],
            )
        lists = [tuple(names) for names in position["columns"]]
        entries = {
            name: Entry(**(entry | {"columns": lists[entry["columns"]]}) if "columns" in entry else entry)
            for name, entry in position["files"].items()
        }
        return cls(position["serial"], entries)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; lists of columns stand in it once, however many files have them."""
        lists: dict[tuple[str, ...], int] = {}
        files: dict[str, dict[str, Any]] = {}
        for name, entry in sorted(self.entries.items()):
            files[name] = entry.to_json()
            if entry.columns is not None:
                files[name]["columns"] = lists.setdefault(entry.columns, len(lists))
        return {"columns": [list(names) for names in lists], "files": files, "serial": self.serial, "version": VERSION}


@dataclass(frozen=True)
class Range:
    """Bytes (or rows) of one file to be read. `start` 0 is the beginning, header and all; no `stop` is the end."""

    file: str
    start: int
    stop: int | None
    kind: str | None


@dataclass(frozen=True)
class Between:
    """What lies between two positions: files and ends of files whose rows go, and ranges that come."""

    removed_files: tuple[str, ...]
    removed_tails: tuple[tuple[str, int], ...]
    ranges: tuple[Range, ...]


def between(since: Files, until: Files) -> Between:
    """What must be taken back and read to get from the rows of one position to those of the other."""
    removed_files = [name for name, old in since.entries.items() if old.read > 0 and name not in until.entries]
    removed_tails: list[tuple[str, int]] = []
    ranges: list[Range] = []
    for name, new in sorted(until.entries.items()):
        old = since.entries.get(name)
        start = 0
        if old is not None and old.started != new.started:
            if old.read > 0:
                removed_files.append(name)
        elif old is not None:
            if (old.stop, old.tail_open) == (new.stop, new.tail_open):
                continue
            start = old.settled
            if old.tail_open is not None:
                removed_tails.append((name, old.tail_open))
        if new.read > start if new.stop is not None else new.size > 0:
            ranges.append(Range(name, start, new.stop, new.kind))
    return Between(tuple(sorted(removed_files)), tuple(removed_tails), tuple(ranges))


def removed_condition(what: Between) -> str | None:
    """The rows that go, as a condition on `_velo_id`.

    >>> removed_condition(Between(("it's.csv",), (("b.csv", 7),), ()))
    "(_velo_id.file IN ('it\\\\'s.csv') OR (_velo_id.file = 'b.csv' AND _velo_id.at >= 7))"
    """
    terms: list[str] = []
    if what.removed_files:
        terms.append(f"{ID}.file IN ({', '.join(map(_literal, what.removed_files))})")
    terms += [f"({ID}.file = {_literal(name)} AND {ID}.at >= {at})" for name, at in what.removed_tails]
    return f"({' OR '.join(terms)})" if terms else None


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"
