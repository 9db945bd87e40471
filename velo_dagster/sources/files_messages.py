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
    """Nothing is there (yet). Only what fits this case: nobody reads a list of everything."""
    if location.is_pattern:
        check = f"Put a file there, or check the pattern; it is looked for below {location.base}."
    elif not location.patterns:
        check = f"Put a file there, or check the path; it is looked for at {location.base}."
    else:
        place = location.path("".join(location.patterns))
        check = f"Create the file, or check the path; it is looked for at {place}."
    likely = _home(location) or _other_root(location) or _near(location)
    several = location.patterns and not location.is_pattern and not likely
    return MissingSource(
        _absent(location),
        steps=[
            *([likely] if likely else []),
            check,
            'Wait for it: WITH ("file.wait.timeout" = "30s"). In Dagster it is loaded by itself when it turns up '
            '("watch" = "true", the default).',
            *(["Several files? Use a pattern, such as FROM 'file://data/orders-*.csv'."] if several else []),
        ],
        original=original,
    )


def gone(location: Location, *, keep: bool) -> str:
    """Nothing is there any more, of what was read before."""
    rows = "its rows stay (file.deleted = keep)" if keep else "its rows go with it (file.deleted = remove)"
    return f"{_absent(location)} It was read before; {rows}."


def _absent(location: Location) -> str:
    shown = location.shown
    if location.is_pattern:
        return f"No files match pattern '{shown}'."
    if location.patterns:
        return f"File '{shown}' does not exist."
    return f"Folder '{shown}' holds no files." if location.base.is_dir() else f"Folder '{shown}' does not exist."


def _home(location: Location) -> str | None:
    """`~` is a shell's word."""
    if not location.shown.lstrip("/").startswith("~"):
        return None
    return "~ is not expanded here: write the whole path, with three slashes, such as file:///home/ann/orders.csv."


def _other_root(location: Location) -> str | None:
    """Whether the same path from the other beginning is there: two slashes or three are easily mixed up.

    It is not shown, because parts of it may come from variables. Patterns are not tried out: that may take long.
    """
    whole = location.patterns and not location.is_pattern
    written = location.path(location.patterns[0]) if whole else location.base
    root = Path.cwd() / location.root
    absolute = location.shown.startswith("/")
    if not absolute and not written.is_relative_to(root):
        return None
    other = root / written.relative_to("/") if absolute else Path("/") / written.relative_to(root)
    try:
        there = other.is_file() if whole else other.is_dir()
        if not there or other in (root, Path("/")) or written.exists():
            return None
    except OSError:
        # It may not be looked at, so it is no file for this user.
        return None
    if absolute:
        return "It is there below the project's folder: for a path from there write file:// with two slashes."
    return "It is there below /: for a path from the root of the file system write file:/// with three slashes."


def _near(location: Location) -> str | None:
    similar = _similar(location)
    return f"Did you mean {' or '.join(similar)}?" if similar else None


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
        steps = {} if broken.remedy is None else {"steps": [broken.remedy]}
        # A reader's own words may end in a full stop.
        raise BrokenFile(f"File '{path}' can't be read: {broken.reason.rstrip('.')}.", **steps) from broken
