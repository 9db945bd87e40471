"""What a commit says about itself: which load it is, who made it, and up to where every input is in the table.

It travels in Delta's `userMetadata`, so data and positions become visible in one atomic step. Positions above 64 KB go
into an immutable file next to the table, written and synced before the commit, which then carries its name and hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from velo_dagster.crash import crash_point
from velo_dagster.errors import Terminal, VeloError

INLINE_LIMIT = 64 * 1024
FOLDER = "_velo"
MARK = "velo_dagster"


def owner(name: str) -> str:
    """The table that users know, of one of its own that they don't.

    >>> owner("orders__landing_0"), owner("orders__rejected"), owner("orders")
    ('orders', 'orders', 'orders')
    """
    return re.sub(r"__(landing_\d+|rejected)$", "", name)


class UnreadablePositions(Terminal, VeloError):
    """The positions of a table cannot be read: loading on would lose or double rows, so nothing is loaded."""

    code = "T502"

    def __init__(self, table: str, version: int, why: str) -> None:
        super().__init__(
            f"The positions of table '{table}' at version {version} cannot be read: {why}. Nothing was loaded.",
            steps=[
                f"If a file below {FOLDER}/ of the table was deleted or changed, put it back.",
                "Otherwise load the table anew: "
                f"velo-dagster load PATH --select {owner(table)} --full-refresh --accept-loss",
            ],
        )


@dataclass(frozen=True)
class Record:
    """One commit of ours. `load` only ever rises; a maintenance commit repeats the load it found."""

    load: int
    attempt: str
    kind: str
    mode: str
    method: str
    reason: str
    fingerprint: str
    positions: Mapping[str, Any]
    schema: tuple[tuple[str, str | None], ...] = ()
    rejects: Mapping[str, int] = field(default_factory=dict)
    ready: bool = True
    goal: Mapping[str, Any] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    """References that this load did without, and how: skip, null or default."""
    filled: int = 0
    """Rows, of all loads so far, that were joined with made-up rows of missing references, and stay so."""
    replaced: int = 0
    """Rows that were there before a commit that replaced all of them."""
    version: int = -1
    table_id: str = ""
    at: int = 0
    metrics: Mapping[str, int] = field(default_factory=dict)

    def as_maintenance(self) -> Record:
        return replace(self, kind="maintenance")

    @property
    def rows_changed(self) -> int:
        """Rows this commit added, changed or removed, as Delta counted them; where it replaced all, those that went
        or those that came, whichever are more.

        >>> Record(1, "a", "load", "increment", "merge", "", "", {}, metrics={"numTargetRowsInserted": 2,
        ...     "numTargetRowsUpdated": 1, "numTargetRowsDeleted": 0, "numOutputRows": 900}).rows_changed
        3
        >>> Record(2, "a", "load", "increment", "full", "", "", {}, replaced=45).rows_changed
        45
        """
        merge = [self.metrics.get(f"numTargetRows{what}") for what in ("Inserted", "Updated", "Deleted")]
        if any(count is not None for count in merge):
            return sum(count or 0 for count in merge)
        return max(self.replaced, self.rows_written + self.metrics.get("numDeletedRows", 0))

    @property
    def rows_written(self) -> int:
        """Rows this commit wrote, but for those that it only copied."""
        return self.metrics.get("numOutputRows", 0) - self.metrics.get("numCopiedRows", 0)


def encode(record: Record, folder: Path) -> str:
    """The text for `userMetadata`; writes a positions file first where they are too long for it."""
    content: dict[str, Any] = {MARK: 1} | {
        key: value for key, value in asdict(record).items() if key not in {"version", "table_id", "at", "metrics"}
    }
    inner = {"positions": content.pop("positions"), "goal": content.pop("goal"), "schema": content.pop("schema")}
    text = json.dumps(inner, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) <= INLINE_LIMIT:
        content |= inner
    else:
        digest = hashlib.sha256(text.encode()).hexdigest()
        crash_point("before-positions-file")
        write_once(folder / f"{digest}.json", text)
        content["positions_file"] = {"name": f"{digest}.json", "sha256": digest}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def decode(text: str, folder: Path, table: str, version: int) -> Record | None:
    """The record in a commit's `userMetadata`; None if the commit is not one of ours."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    if not isinstance(content, dict) or content.pop(MARK, None) != 1:
        return None
    if "positions_file" in content:
        content |= _read_positions(content.pop("positions_file"), folder, table, version)
    content["schema"] = tuple((name, type_) for name, type_ in content["schema"])
    return Record(**content, version=version)


def _read_positions(where: Mapping[str, str], folder: Path, table: str, version: int) -> dict[str, Any]:
    try:
        data = (folder / where["name"]).read_bytes()
    except OSError as error:
        raise UnreadablePositions(table, version, f"{where['name']}: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != where["sha256"]:
        raise UnreadablePositions(table, version, f"{where['name']} is not what the commit names by its hash")
    return json.loads(data)


def write_once(path: Path, text: str) -> None:
    """Write a file so that it is either whole and on disk, or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
