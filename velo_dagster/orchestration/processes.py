"""Which process works on a run: told by the run itself, so that a sensor can tell when it died."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

HOST, PROCESS = "velo/host", "velo/process"


def own_tags() -> dict[str, str]:
    return {HOST: socket.gethostname(), PROCESS: _mark(os.getpid()) or ""}


def is_gone(tags: Mapping[str, str]) -> bool:
    """Whether the process that these tags name has ended. Of other machines, and of runs that said nothing: unknown."""
    if tags.get(HOST) != socket.gethostname() or not tags.get(PROCESS):
        return False
    return _mark(int(tags[PROCESS].partition("@")[0])) != tags[PROCESS]


def _mark(pid: int) -> str | None:
    """A process and when it began, because numbers of processes are used again; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return f"{pid}@{stat.rpartition(')')[2].split()[19]}"
