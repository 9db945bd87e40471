"""Which files of a position a pattern means too, however it and the pattern that delivered them are written.

A position names files below the fixed folder of its pattern. The folder itself is in it only as hashes, of its own path
and of those above it: a variable may have put a secret, or a path of one machine, into it. They are enough to know the
folder again among those that another pattern speaks of: a file is the same however it is named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from velo_dagster.sources.contract import Position
from velo_dagster.sources.files_listing import Location, matches
from velo_dagster.sources.files_position import Entry, Files


def marks(written: str, base: Path) -> dict[str, Any]:
    """By what a position is known to be of these files: what was written, and the folder, its own first.

    What was written counts by itself: a project that was moved, or is mounted elsewhere, reads the same files.
    """
    return {"source": _hash(written), "place": [_hash(str(path)) for path in (base, *base.parents)]}


def entries_of(position: Position | None, written: str, location: Location) -> Mapping[str, Entry]:
    """The files of a position that the pattern would deliver if they were there, by their names below its folder."""
    entries = Files.parse(position).entries
    if position is None or position["source"] == _hash(written):
        return entries
    own, theirs = marks(written, location.base)["place"], position["place"]
    if theirs[0] in own:
        inner = location.base.parts[len(location.base.parts) - own.index(theirs[0]) :]
        prefix = "".join(f"{part}/" for part in inner)
        names = {name.removeprefix(prefix): entry for name, entry in entries.items() if name.startswith(prefix)}
    elif own[0] in theirs:
        folder = _folder(location.base, theirs.index(own[0]), theirs[0])
        if folder is None:
            # It is gone with all that was in it, so nobody can say whether the pattern would match: it may have.
            return {f"…/{name}": entry for name, entry in entries.items()}
        names = {f"{folder}/{name}": entry for name, entry in entries.items()}
    else:
        return {}
    return {name: entry for name, entry in names.items() if matches(location, name)}


def _folder(base: Path, depth: int, mark: str) -> str | None:
    """The folder with this mark, so many folders below `base`, by its name there."""
    found = (path for path in base.glob("/".join("*" * depth)) if _hash(str(path)) == mark)
    return next((path.relative_to(base).as_posix() for path in found), None)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
