"""groups: find the parts of the result that may have changed, compute those anew, write what is different.

A part is all rows that share the key by which the SELECT can be taken apart (`plan.blocks`). Its rows are compared with
those that the table holds, so what did not change is not written, and what reads the table is not told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from velo_dagster.engine.columns import check_unique, orderable, output
from velo_dagster.engine.floats import is_beyond
from velo_dagster.engine.inputs import Changes, first_line, gone_for_good
from velo_dagster.engine.refresh.added import added, together
from velo_dagster.engine.refresh.apart import UNSURE, Apart, marked, take_apart
from velo_dagster.engine.refresh.differences import (
    Computed,
    How,
    computed,
    held_with,
    holding,
    types,
    write_differences,
)
from velo_dagster.engine.refresh.exactly import write_exactly
from velo_dagster.engine.refresh.few import FEW, only_keys
from velo_dagster.engine.refresh.full import full, selected, understood
from velo_dagster.engine.refresh.whole import replace_unless_same
from velo_dagster.engine.refresh.work import COLUMNS_MOVED, Work, Write, columns_moved, replace_all
from velo_dagster.engine.scale import size_of
from velo_dagster.plan.deltas import CHANGE, Parts
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

T = TypeVar("T")
MOST = 0.3
"""Above this share of all rows, parts are not worth finding."""
LITTLE = 0.2
"""Up to this share of all that is read, an input whose rows were all replaced is compared with what it was."""
ADDED = How("merge", "new rows were added to their groups")
SMALL_ENOUGH = "small enough to be computed whole"


def groups(work: Work) -> Write:
    everything = size_of([work.target, *(one.table for one in work.inputs)]).bytes
    if everything < work.small:
        return full(work, work.restart) if work.restart else _small(work)
    apart = take_apart(work)
    if isinstance(apart, str):
        return full(work, work.restart or apart)
    if work.restart:
        return _whole(work, apart, work.restart)
    gap = next((one.gap() for one in work.inputs if one.gap()), "")
    if gap:
        return _whole(work, apart, gap)
    changes = {
        one.name: one.changes(work.spark, work.keep, compare=size_of([one.table]).bytes <= LITTLE * everything)
        for one in work.inputs
        if not one.unchanged
    }
    obstacle = next((one.obstacle for one in changes.values() if one.obstacle), "") or _moved(work, changes)
    if obstacle:
        return _whole(work, apart, obstacle)
    return _in_parts(work, apart, changes)


def _in_parts(work: Work, apart: Apart, changes: dict[str, Changes]) -> Write:
    changed = [name for name, one in changes.items() if one.count]
    parts = apart.parts(frozenset(apart.views[name] for name in changed))
    _make_views(work, apart, changes)
    rows = output(apart.named(work.spark.sql(parts.rows)), work.plan.statement)
    stored = dict(zip(parts.columns, rows.columns, strict=True))
    keys = [stored[key] for key in parts.keys]
    obstacle = _unfit(work, rows, keys)
    if obstacle:
        return _whole(work, apart, obstacle)
    rows_read = sum(one.count for one in changes.values())
    if len(changed) == 1:
        view, removed = apart.views[changed[0]], changes[changed[0]].removed
        write = None if removed else _added(work, apart, parts, view, stored, rows_read)
        write = write or _or_why(lambda: _exactly(work, apart, parts, view, keys, rows_read, nothing_gone=not removed))
        if write is not None:
            return write if isinstance(write, Write) else _whole(work, apart, write)
    _make_old_views(work, apart, changes)
    found = understood(work.spark, parts.touched)
    if found is None:
        return _whole(work, apart, UNSURE)
    touched = _or_why(lambda: _counted(computed(work, _as_stored(work, apart, found, keys))))
    if isinstance(touched, str):
        return _whole(work, apart, touched)
    frame, few, count = touched
    if count > max(FEW, MOST * work.target.row_count()):
        return _whole(work, apart, f"{count:,} of its parts may have changed")
    known = only_keys(frame, keys, "r", few)
    return write_differences(
        work,
        rows=holding(work, rows, frame, keys, known),
        held=held_with(work, keys, frame, few),
        keys=keys,
        unique=parts.unique,
        rows_read=rows_read,
    )


def _counted(found: Computed) -> tuple[DataFrame, pa.Table | None, int]:
    frame, few = found
    return frame, few, frame.count() if few is None else few.num_rows


def _or_why(compute: Callable[[], T]) -> T | str:
    """What is computed of rows that changed; or why it can't be, where all rows have an answer nevertheless."""
    from pyspark.errors import PySparkException

    try:
        return compute()
    except Exception as error:
        gone = gone_for_good(error)
        if gone is not None:
            return f"an older version of an input is no longer there ({gone})"
        if is_beyond(error) or not isinstance(error, PySparkException):
            raise
        # A row that is gone again may hold what the SELECT refuses. If it is still there, all of it refuses it, too.
        return f"what changed could not be computed: {first_line(error)}"


def _exactly(
    work: Work, apart: Apart, parts: Parts, view: str, keys: Sequence[str], rows_read: int, *, nothing_gone: bool
) -> Write | None:
    """What changed rows of one input give goes and comes; None where more than that may have changed."""
    found = understood(work.spark, parts.exact[view]) if view in parts.exact else None
    if found is None:
        return None
    both = output(apart.named(found), work.plan.statement)
    return write_exactly(work, both, keys, rows_read, nothing_gone=nothing_gone)


def _added(
    work: Work, apart: Apart, parts: Parts, view: str, stored: Mapping[str, str], rows_read: int
) -> Write | None:
    """Rows that came in one input, and nothing else: added to what the table holds; None where they can't be.

    `stored`: how the table calls the columns of the parts.
    """
    alone = added(work, parts, view)
    if alone is None:
        return None
    new, few = alone
    keys = [stored[key] for key in parts.keys]
    touched = new.select(*(quote(key) for key in parts.keys)).toDF(*keys)
    here = None if few is None else few.select(parts.keys).rename_columns(keys)
    held = held_with(work, keys, touched, here)
    rows = together(work, apart, parts, new, held.frame.select(*(quote(stored[name]) for name in parts.columns)))
    if rows is None:
        return None
    return write_differences(work, rows=rows, held=held, keys=keys, unique=True, rows_read=rows_read, how=ADDED)


def _as_stored(work: Work, apart: Apart, touched: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keys under the names, and of the types, that the table has them in."""
    if len(keys) == len(apart.names) and apart.hide:
        return output(apart.named(touched), work.plan.statement)
    return touched.toDF(*keys)


def _whole(work: Work, apart: Apart, reason: str) -> Write:
    """All of it, keys of parts included, so that the next load can compute it in parts."""
    parts = apart.parts(frozenset())
    for one in work.inputs:
        marked(one.snapshot(work.spark)).createOrReplaceTempView(f"{apart.views[one.name]}_new")
    rows = output(apart.named(work.spark.sql(parts.rows)), work.plan.statement)
    check_unique(rows, work.plan)
    stored = dict(zip(parts.columns, rows.columns, strict=True))
    laid_out = rows if parts.by_row else _by_key(rows, [stored[key] for key in parts.keys])
    return replace_all(work, laid_out, reason)


def _by_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows so that those of a part, and of parts whose keys are close, lie in one file."""
    fit = [quote(key) for key in keys if orderable(rows.schema[key].dataType)]
    return rows.repartitionByRange(*fit).sortWithinPartitions(*fit) if fit else rows


def _small(work: Work) -> Write:
    chosen = selected(work)
    rows = output(chosen.frame, work.plan.statement)
    return replace_unless_same(work, rows, "groups", SMALL_ENOUGH + chosen.remark)


def _make_views(work: Work, apart: Apart, changes: dict[str, Changes]) -> None:
    """Of every input as it is, and of its changed rows."""
    from pyspark.sql import functions as f

    for one in work.inputs:
        view, found = apart.views[one.name], changes.get(one.name)
        frames = {"new": marked(one.snapshot(work.spark))}
        if found is not None and found.count:
            frames["gone"] = marked(found.of("delete", "update_preimage"))
            frames["came"] = marked(found.of("insert", "update_postimage"))
            gone, came = (frames[kind].withColumn(CHANGE, f.lit(kind)) for kind in ("gone", "came"))
            frames["changed"] = gone.unionByName(came)
        for version, frame in frames.items():
            frame.createOrReplaceTempView(f"{view}_{version}")


def _make_old_views(work: Work, apart: Apart, changes: dict[str, Changes]) -> None:
    """Of every input as it was."""
    for one in work.inputs:
        found = changes.get(one.name)
        moved = found is not None and found.count
        frame = one.old_snapshot(work.spark) if moved else one.snapshot(work.spark)
        marked(frame).createOrReplaceTempView(f"{apart.views[one.name]}_old")


def _moved(work: Work, changes: dict[str, Changes]) -> str:
    """Which input has other columns than before, if one has."""
    for one in work.inputs:
        if one.name in changes and not one.same_columns():
            return f"the columns of {one.label} changed"
    return ""


def _unfit(work: Work, rows: DataFrame, keys: Sequence[str]) -> str:
    """Why what the table holds can't be compared with parts; empty if it can."""
    if not all(orderable(rows.schema[key].dataType) for key in keys):
        return "its key has a type that can't be compared"
    if dict(types(rows)) != dict(types(work.target.snapshot(work.spark))):
        return "its columns changed"
    return COLUMNS_MOVED if columns_moved(work, rows) else ""
