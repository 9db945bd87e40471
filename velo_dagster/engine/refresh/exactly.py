"""Rows that are each made of one row of the input that changed: what its changed rows give goes and comes, all else
stays as it is. Nothing is computed anew to be compared, and of the table only keys are read.

A row of the input may have changed several times, and back: what it gave on the way comes and goes, and is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from velo_dagster.engine.fetched import fetched
from velo_dagster.engine.refresh.differences import NOT_MANY, REASON, write_nothing
from velo_dagster.engine.refresh.work import Work, Write
from velo_dagster.plan.deltas import CHANGE
from velo_dagster.store.few_rows import FewRows
from velo_dagster.store.places import located
from velo_dagster.store.values import counted, row_values

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def write_exactly(
    work: Work, both: DataFrame, keys: Sequence[str], rows_read: int, *, nothing_gone: bool
) -> Write | None:
    """`both`: what rows give that are gone, and that came. None if they are too many, or if rows that go can't be told
    by their keys from others that stay. `nothing_gone`: rows only came, so however many they are, they are added."""
    if work.plan.refresh.keys:
        return None
    rows = fetched(both, NOT_MANY) if work.target.takes_few_rows() else None
    if rows is None:
        return _added(work, both.drop(CHANGE), rows_read) if nothing_gone else None
    try:
        gone, came = _net(rows)
    except UnicodeDecodeError:
        # Bytes that were cast to text and are none: Spark compares them.
        return None
    if not gone.num_rows and not came.num_rows:
        return write_nothing(work, "groups", rows_read)
    going = gone.select(keys)
    found = located(work.target.path, work.version, going)
    if found is None or counted(found[0]) != counted(going):
        return None
    few = FewRows(
        came,
        gone,
        ["insert"] * came.num_rows,
        ["delete"] * gone.num_rows,
        codec=work.codec,
        places=found[1] if work.target.needs_places(work.small) else None,
    )
    return Write("groups", REASON, few, rows_read)


def _added(work: Work, rows: DataFrame, rows_read: int) -> Write:
    def run() -> None:
        rows.write.format("delta").mode("append").save(str(work.target.path))

    return Write("groups", REASON, run, rows_read)


def _net(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What is gone and what came, without what did both.

    >>> import pyarrow as pa
    >>> rows = pa.table({"x": [1, 1, 2, 1, 3], "_velo_change": ["gone", "gone", "gone", "came", "came"]})
    >>> [one["x"].to_pylist() for one in _net(rows)]
    [[1, 2], [3]]
    """
    import pyarrow as pa

    kinds = rows[CHANGE].to_pylist()
    gone, came = (
        rows.drop([CHANGE]).filter(pa.array([kind == one for kind in kinds], pa.bool_())) for one in ("gone", "came")
    )
    left = counted(gone), counted(came)
    some = [list(_more(one, *counts)) for one, counts in ((gone, left), (came, left[::-1]))]
    return tuple(one.take(pa.array(n, pa.int64())) for one, n in zip((gone, came), some, strict=True))


def _more(rows: pa.Table, these: Counter, others: Counter) -> Iterator[int]:
    """Which rows are there more often than others that are the same."""
    more = these - others
    for n, row in enumerate(row_values(rows)):
        if more[row] > 0:
            more[row] -= 1
            yield n
