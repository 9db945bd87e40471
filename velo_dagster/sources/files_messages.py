"""The sentences about files: what happened, to which file, and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from velo_dagster.sources.errors import (
    WAITING_IS_NO_USE,
    BrokenFile,
    MissingSource,
    SourceChanged,
    SourceError,
    SourceFailed,
    SourceMisconfigured,
    SourceRefused,
    SourceUnreachable,
    category_of,
)
from velo_dagster.sources.files_listing import Location
from velo_dagster.sources.formats import base
from velo_dagster.sql.problems import nearest

LOOKED_AT = 1000
"""How many names of a folder are compared with what was written: more would take longer than it helps."""


def waiting_for(location: Location) -> str:
    return f"files matching pattern '{location.shown}'" if location.is_pattern else f"file '{location.shown}'"


def missing(location: Location, original: BaseException | str) -> MissingSource:
    """Nothing is there (yet)."""
    shown = location.shown
    if location.is_pattern:
        what = f"No files match pattern '{shown}'."
        first = f"Put a file there, or check the pattern; it is looked for below {location.base}."
    else:
        what = f"File '{shown}' does not exist."
        first = f"Create the file, or check the path; it is looked for at {location.path(''.join(location.patterns))}."
    similar = _similar(location)
    return MissingSource(
        what,
        steps=[
            *([f"Did you mean {' or '.join(similar)}?"] if similar else []),
            first,
            'Wait for it: WITH ("file.wait.timeout" = "30s", "file.retry.interval" = "2s").',
            "Several files? Use a pattern: FROM 'file:///data/orders-*.csv'; *, ?, [ab], {a,b} and ** are known.",
            'Load it by itself when it turns up: WITH ("watch" = "true").',
            'Start with an empty file: WITH ("file.create.empty" = "true").',
        ],
        original=original,
    )


def _similar(location: Location) -> list[str]:
    """Files that are there and look like what was written, as one would write them."""
    if not location.patterns:
        return []
    try:
        with os.scandir(location.base) as entries:
            names = [entry.name for entry in islice(entries, LOOKED_AT)]
    except OSError:
        # The folder is not there either, or may not be read: the original error says so.
        return []
    folder = location.shown.rpartition("/")[0]
    wanted = location.patterns[0].rpartition("/")[2]
    return [f"{folder}/{name}" if folder else name for name in nearest(wanted, names)]


def from_system(error: OSError, location: Location, name: str | None = None) -> SourceError:
    """What the operating system said, as an error of its category."""
    path = location.shown if name is None else location.path(name)
    category = category_of(error)
    if category == "missing":
        return missing(location, error)
    if category == "auth":
        return SourceRefused(
            f"No right to read '{path}'.",
            steps=[WAITING_IS_NO_USE, f"Give this user the right: chmod a+r '{path}' (folders need a+rx)."],
            original=error,
        )
    if category == "network":
        return SourceUnreachable(
            f"'{path}' can't be reached.",
            steps=["Check the mount or the network, then load again.", 'Or wait: WITH ("file.wait.timeout" = "5m").'],
            original=error,
        )
    if category == "config":
        return SourceMisconfigured(
            f"'{path}' can't be read as a file.", steps=[WAITING_IS_NO_USE, "Check the path."], original=error
        )
    return SourceFailed(f"'{path}' could not be read.", steps=["Load again."], original=error)


def changed(location: Location, name: str, how: str) -> SourceChanged:
    return SourceChanged(
        f"File '{location.path(name)}' {how} while it was being read.",
        steps=[
            "Load again; the table is as it was.",
            "Write files under another name and rename them when they are done, or only append to them.",
        ],
    )


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """What a format says about a file's bytes, with the file's name."""
    try:
        yield
    except base.BrokenFile as broken:
        raise BrokenFile(f"File '{path}' can't be read: {broken.reason}.") from broken
