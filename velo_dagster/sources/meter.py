"""How far the tasks of a read are: each notes its rows and bytes in a file of its own; whoever watches adds them up.

A task that is run again writes over what it noted, so nothing counts twice. Where tasks run on machines that don't
share the folder, nothing is noted, and nothing is known.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def note(folder: str, task: int, rows: int, size: int) -> None:
    """What a task has read so far. It is only for whoever watches: a folder that is not there fails nothing."""
    with suppress(OSError):
        (Path(folder) / str(task)).write_text(f"{rows} {size}")


def noted(folder: Path) -> tuple[int, int]:
    """Rows and bytes of all tasks so far."""
    rows = size = 0
    for file in folder.iterdir():
        words = file.read_text().split()
        if len(words) == 2:
            rows, size = rows + int(words[0]), size + int(words[1])
    return rows, size
