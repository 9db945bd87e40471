"""Compaction and vacuum, once in a while, after a load.

Neither hides positions nor breaks a reader: compaction changes no row, and vacuum keeps every file that a version of
the last seven days needs, which is what running readers and unread changes read. A table that falls further behind
finds its changes gone and is recomputed, which is slower and equally exact.
"""

from __future__ import annotations

from collections.abc import Callable

from velo_dagster.crash import crash_point
from velo_dagster.engine.inputs import first_line
from velo_dagster.engine.session import Session
from velo_dagster.store.table import Table

EVERY = 25
KEEP_HOURS = 168


def maintain(table: Table, load: int, session: Session, note: Callable[[str], None]) -> None:
    """Compact and vacuum after every 25th load. The load is committed by then, so what fails here is only said."""
    if load % EVERY:
        return
    try:
        crash_point("before-maintenance")
        table.compact(session.spark, KEEP_HOURS)
        crash_point("after-maintenance")
    except Exception as error:  # noqa: BLE001 - a full disk, another run's commit: the rows are the same either way
        note(f"{table.name} could not be tidied up after load {load}, which stands: {first_line(error)}")
