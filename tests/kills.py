"""A kill inside of this process: an exception that nothing catches, at a crash point that was reached so many times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from velo_dagster import crash


class Killed(BaseException):
    """Not an Exception, so that no handler of ours mistakes it for an error to deal with."""


@contextmanager
def armed(point: str, time: int = 1) -> Iterator[None]:
    """What runs in here is killed when it reaches the point for the `time`-th time, if it does."""
    reached = 0

    def kill(pid: int, number: int) -> None:
        nonlocal reached
        reached += 1
        if reached == time:
            raise Killed(point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VELO_CRASH_AT", point)
        patch.setattr(crash.os, "kill", kill)
        yield


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """What runs in here must reach the point, and is killed there."""
    with armed(point), pytest.raises(Killed):
        yield
