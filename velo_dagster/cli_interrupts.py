"""How commands end when they are interrupted: by Ctrl-C, or by another program that asks them to."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or a signal by which another program asks this one to end."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number
        super().__init__(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Signals that end the command raise `Interrupted`, once: whoever catches it has time to tidy up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        # The connection to Spark logs every call that is cut off.
        logging.disable()
        raise Interrupted(number)

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one in before:
        signal.signal(one, stop)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for one, handler in before.items():
            signal.signal(one, handler)
