"""Named points at which a test can stop production code.

`VELO_CRASH_AT=after-commit` makes the process kill itself there, as `kill -9` would; unset, a crash point does nothing.
`POINTS` is the list that tests go through, so a point that no test visits cannot exist.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "before-end",
    "after-end",
    "before-rejected-commit",
    "after-rejected-commit",
    "before-positions-file",
    "before-landing-commit",
    "after-landing-commit",
    "before-commit",
    "before-version",
    "after-commit",
    "after-acknowledge",
    "before-maintenance",
    "after-maintenance",
)


def crash_point(name: str) -> None:
    assert name in POINTS, f"unknown crash point {name!r}"
    if os.environ.get("VELO_CRASH_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)
