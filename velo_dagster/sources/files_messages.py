"""The sentences about files: what happened, to which file, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    return MissingSource(
        what,
        steps=[
            first,
            'Wait for it: WITH ("file.wait.timeout" = "30s", "file.retry.interval" = "2s").',
            "Several files? Use a pattern: FROM 'file:///data/orders-*.csv'; *, ?, [ab], {a,b} and ** are known.",
            'Load it by itself when it turns up: WITH ("watch" = "true").',
            'Start with an empty file: WITH ("file.create.empty" = "true").',
        ],
        original=original,
    )


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
