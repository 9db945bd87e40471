"""Files that a failed write leaves behind: no commit names them, and Delta removes them only days later, by VACUUM.
A disk that a load has filled must not stay full for that long.

The name of a data file does not tell who wrote it, so why is a file that is removed here never one that another run is
about to commit?
- All writes of ours go to the sub-folder `data/` of a table. What somebody else writes into it (their own OPTIMIZE)
  goes elsewhere, and is not looked at.
- Every write of ours announces itself by a file below `_velo/writing/` before its first data file, and withdraws that
  only when it has ended.
- First the files are listed, then announcements are looked for, then the log is read. A write that is not announced at
  that moment either began later, so its files are not in the list, or has ended: then the log names what it committed,
  and what the log does not name will never be committed.
With another write announced, nothing is removed; VACUUM does it in time. A run that was killed cannot withdraw its
announcement: it counts until its process is gone for a while, or for as long as VACUUM would wait.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from velo_dagster.store.record import FOLDER

DATA = "data"
SETTING = "spark.databricks.delta.write.dataFilesToSubdir"
WRITING = "writing"
GONE_SECONDS = 600.0
"""How long after its announcement a process that is gone may still have something under way in its JVM."""
FORGOTTEN_SECONDS = 168 * 3600.0


@contextmanager
def announced(table: Path, attempt: str) -> Iterator[Announcement]:
    """Announce a write to a table; withdrawn when it ends or fails, but not when it is torn down: the JVM may go on."""
    mine = Announcement(table, table / FOLDER / WRITING / attempt)
    mine.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        mine.path.write_text(json.dumps({"host": socket.gethostname(), "process": os.getpid()}))
        yield mine
    except Exception:
        mine.path.unlink(missing_ok=True)
        raise
    mine.path.unlink()


@dataclass(frozen=True)
class Announcement:
    """One write to one table."""

    table: Path
    path: Path

    def remove_leftovers(self) -> int:
        """Remove what this write, which has failed, left behind, unless another write may need it; how many files."""
        began = self.path.stat().st_mtime_ns
        listed = [file for file in (self.table / DATA).rglob("*") if file.is_file() and _is_since(file, began)]
        if not listed or self._others():
            return 0
        named = _named_since(self.table, began)
        leftover = [file for file in listed if not _belongs_to(file, self.table, named)]
        for file in leftover:
            file.unlink(missing_ok=True)
        return len(leftover)

    def _others(self) -> bool:
        return any(_counts(path) for path in self.path.parent.iterdir() if path != self.path)


def _is_since(file: Path, began: int) -> bool:
    """Whether a file was last written after a moment of the same file system's clock; not if it is gone."""
    try:
        return file.stat().st_mtime_ns >= began
    except FileNotFoundError:
        return False


def _counts(path: Path) -> bool:
    """Whether an announcement may be that of a write that still goes on."""
    try:
        age = time.time() - path.stat().st_mtime
        said = json.loads(path.read_text() or "{}")
    except FileNotFoundError:
        return False
    if age > FORGOTTEN_SECONDS:
        return False
    here = said.get("host") == socket.gethostname()
    return not here or age < GONE_SECONDS or _runs(said["process"])


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It is there, and somebody else's.
        return True
    return True


def _named_since(table: Path, began: int) -> set[str]:
    """The files that commits since then name, in any role. A commit is never older than its files."""
    names: set[str] = set()
    for commit in (table / "_delta_log").glob("*.json"):
        if not _is_since(commit, began):
            continue
        for line in commit.read_text(encoding="utf-8").splitlines():
            for action in json.loads(line).values():
                if isinstance(action, dict) and "path" in action:
                    names.add(unquote(action["path"]))
    return names


def _belongs_to(file: Path, table: Path, named: set[str]) -> bool:
    """Whether a commit names the file, or the one whose checksum (`.NAME.crc`) it is."""
    below = file.relative_to(table)
    checked = below.with_name(below.name[1:].removesuffix(".crc"))
    return str(below) in named or (below.suffix == ".crc" and str(checked) in named)
