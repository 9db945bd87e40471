"""From a path or a pattern to the files it means now, each with its size and time of change.

Patterns know `*`, `?`, `[...]`, `{a,b}` within one name and `**` for any number of folders. A folder means the files
right in it. Names that begin with `.` or `_` are skipped unless the pattern's own part begins so: they are other
programs' unfinished or private files. A file's name in positions and ids is its path below `base`, the part of what the
user wrote that has no pattern.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from velo_dagster.sources.errors import SourceMisconfigured

_MAGIC = re.compile(r"[*?\[{]")
_HIDDEN = (".", "_")


@dataclass(frozen=True)
class Stat:
    """A file as the system describes it at one moment."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Location:
    """What the user wrote, taken apart. `base` is absolute, `patterns` are relative to it; none is the whole folder.

    `root`: where relative paths count from.
    """

    shown: str
    base: Path
    patterns: tuple[str, ...]
    is_pattern: bool
    root: Path

    def path(self, name: str) -> Path:
        return self.base / name


def locate(written: str, root: Path) -> Location:
    """
    >>> place = locate("file:///data/in/{a,b}-*.csv", Path("/"))
    >>> str(place.base), place.patterns, place.shown
    ('/data/in', ('a-*.csv', 'b-*.csv'), '/data/in/{a,b}-*.csv')
    """
    shown = without_scheme(written)
    path = _absolute(root / shown)
    magic = _MAGIC.search(shown)
    # A file may really be called a[1].csv: what exists under the name as written is meant literally.
    if magic is None or _is(path.exists):
        if shown.endswith("/") or _is(path.is_dir):
            return Location(shown, path, (), is_pattern=False, root=root)
        return Location(shown, path.parent, (path.name,), is_pattern=False, root=root)
    cut = shown.rfind("/", 0, magic.start()) + 1
    patterns = tuple(dict.fromkeys(_braces(shown[cut:])))
    return Location(shown, _absolute(root / shown[:cut]), patterns, is_pattern=True, root=root)


def list_files(location: Location) -> dict[str, Stat]:
    """Name below `base` → what the system says, in the order of names. Raises `OSError` as the system does."""
    found: dict[str, Stat] = {}
    if not location.is_pattern and location.patterns:
        status = location.path(location.patterns[0]).stat()
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(f"{location.shown} is a folder")
        found[location.patterns[0]] = Stat(status.st_size, status.st_mtime_ns)
    for pattern in location.patterns if location.is_pattern else ("*",) * (not location.patterns):
        parts = tuple(part for part in pattern.split("/") if part)
        for name, status in _walk(str(location.base), "", parts):
            found[name] = status
    for name in found:
        _check_name(name)
    return dict(sorted(found.items()))


def matches(location: Location, name: str) -> bool:
    """Whether a file of this name below `base` would be listed, if it were there.

    >>> [matches(locate(one, Path("/")), "b/1.csv") for one in ("/a/**/*.csv", "/a/*.csv", "/a/{b,c}/?.csv", "/a/")]
    [True, False, True, False]
    """
    if not location.is_pattern and location.patterns:
        return name == location.patterns[0]
    patterns = location.patterns if location.is_pattern else ("*",)
    return any(_matches(name.split("/"), [part for part in one.split("/") if part]) for one in patterns)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not parts or not pattern:
        return not parts and not pattern
    head, rest = pattern[0], pattern[1:]
    if head == "**":
        skips = len(parts) > 1 and not parts[0].startswith(_HIDDEN)
        return _matches(parts, rest or ["*"]) or (skips and _matches(parts[1:], pattern))
    if parts[0].startswith(_HIDDEN) and not head.startswith(parts[0][0]):
        return False
    return re.match(fnmatch.translate(head), parts[0]) is not None and _matches(parts[1:], rest)


def without_scheme(written: str) -> str:
    """
    >>> without_scheme("file:///a.csv"), without_scheme("file://data/a.csv"), without_scheme("file:a.csv")
    ('/a.csv', 'data/a.csv', 'a.csv')
    """
    for prefix in ("file://localhost/", "file://", "file:"):
        if written.startswith(prefix):
            return written[len(prefix) - prefix.endswith("t/") :]
    return written


def _absolute(path: Path) -> Path:
    # Not resolved: a link is what the user named, and what it points to may change.
    return Path(os.path.normpath(Path.cwd() / path))


def _is(look: Callable[[], bool]) -> bool:
    """What the look says; no, where it is not allowed or not possible: listing the files then says why."""
    try:
        return look()
    except OSError:
        return False


def _braces(pattern: str) -> Iterator[str]:
    """Every pattern that `{a,b}` stands for; braces may be nested, and ones that don't match stand for themselves."""
    depth, start, commas = 0, -1, []
    for index, character in enumerate(pattern):
        if character == "{":
            if depth == 0:
                start, commas = index, []
            depth += 1
        elif character == "," and depth == 1:
            commas.append(index)
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                cuts = [start, *commas, index]
                for left, right in pairwise(cuts):
                    yield from _braces(pattern[:start] + pattern[left + 1 : right] + pattern[index + 1 :])
                return
    yield pattern


def _walk(base: str, prefix: str, parts: tuple[str, ...]) -> Iterator[tuple[str, Stat]]:
    """Files below `base/prefix` that the remaining parts of the pattern match."""
    head, rest = parts[0], parts[1:]
    deep = head == "**"
    if deep and not rest:
        rest = ("*",)
    matches = re.compile(fnmatch.translate(head)).match
    if deep:
        yield from _walk(base, prefix, rest)
    for entry in _entries(base, prefix):
        name = entry.name
        if name.startswith(_HIDDEN) and not head.startswith(name[0]):
            continue
        path = f"{prefix}{name}"
        if deep:
            # Links to folders are not followed here: they may lead in a circle.
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(base, f"{path}/", parts)
        elif not matches(name):
            continue
        elif rest:
            if entry.is_dir():
                yield from _walk(base, f"{path}/", rest)
        elif entry.is_file():
            status = _stat(entry)
            if status is not None:
                yield path, status


def _entries(base: str, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(f"{base}/{prefix}") as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        # A folder below the base may go while we walk; the base itself must be there.
        if prefix:
            return []
        raise


def _stat(entry: os.DirEntry[str]) -> Stat | None:
    try:
        status = entry.stat()
    except FileNotFoundError:
        # It went between being listed and being looked at: it is not there.
        return None
    return Stat(status.st_size, status.st_mtime_ns)


def _check_name(name: str) -> None:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SourceMisconfigured(
            f"The file name {os.fsencode(name)!r} is not UTF-8 and can't be recorded.",
            steps=["Rename the file, or write a pattern that leaves it out."],
            original=error,
        ) from error
