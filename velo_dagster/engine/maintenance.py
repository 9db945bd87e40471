"""Compaction and vacuum, once in a while, after a load.

Neither hides positions nor breaks a reader: compaction changes no row, and vacuum keeps every file that a version of
the last seven days needs, which is what running readers and unread changes read. A table that falls further behind
finds its changes gone and is recomputed, which is slower and equally exact.
"""

from __future__ import annotations

from velo_dagster.engine.session import Session
from velo_dagster.store.table import Table

EVERY = 25
KEEP_HOURS = 168


def maintain(table: Table, load: int, session: Session) -> None:
    """Compact and vacuum after every 25th load."""
    if load % EVERY == 0:
        table.compact(session.spark, KEEP_HOURS)
