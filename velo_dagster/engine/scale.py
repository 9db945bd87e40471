"""Settings that follow the size of the data: what is right for a thousand rows is slow for a billion, and the other
way round."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from velo_dagster.store.table import Table

PER_TASK = 64 * 2**20
"""So many bytes of files, packed as they are, one task of a shuffle takes on."""
PER_SNAPSHOT_TASK = 50_000
"""So many files of a table's log one task goes through."""
MOST = 2000


@dataclass(frozen=True)
class Size:
    """How much a load reads: bytes of files, and how many files the largest log lists."""

    bytes: int = 0
    files: int = 0

    def with_table(self, table: Table) -> Size:
        """And all of a table."""
        opened = table.opened()
        if opened is None:
            return self
        import pyarrow as pa

        sizes = pa.table(opened.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
        return Size(self.bytes + sum(sizes), max(self.files, len(sizes)))

    def settings(self) -> dict[str, str]:
        """
        >>> Size(5 * 2**30, 120_000).settings()["spark.databricks.delta.snapshotPartitions"]
        '3'
        """
        tasks = min(MOST, max(2 * (os.cpu_count() or 2), -(-self.bytes // PER_TASK)))
        looks = max(1, -(-self.files // PER_SNAPSHOT_TASK))
        return {
            "spark.sql.shuffle.partitions": str(tasks),
            "spark.databricks.delta.snapshotPartitions": str(looks),
        }


def size_of(tables: Iterable[Table]) -> Size:
    """All of several tables."""
    size = Size()
    for table in tables:
        size = size.with_table(table)
    return size
