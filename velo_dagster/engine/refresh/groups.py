"""groups: find the parts of the result that may have changed, compute those anew, write what is different.

A part is all rows that share the key by which the SELECT can be taken apart (`plan.blocks`). Its rows are compared with
those that the table holds, so what did not change is not written, and what reads the table is not told of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from velo_dagster.engine.columns import check_unique, orderable, output
from velo_dagster.engine.floats import is_beyond
from velo_dagster.engine.inputs import Changes, first_line, gone_for_good
from velo_dagster.engine.refresh.added import added, together
from velo_dagster.engine.refresh.apart import UNSURE, Apart, marked, take_apart
from velo_dagster.engine.refresh.differences import How, computed, held_with, holding, types, write_differences
from velo_dagster.engine.refresh.few import FEW, only_keys
from velo_dagster.engine.refresh.full import full, selected, understood
from velo_dagster.engine.refresh.whole import replace_unless_same
from velo_dagster.engine.refresh.work import COLUMNS_MOVED, Work, Write, columns_moved, replace_all
from velo_dagster.engine.scale import size_of
from velo_dagster.plan.deltas import Parts
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    from pyspark.errors import PySparkException

    changed = [name for name, one in changes.items() if one.count]
    parts = apart.parts(frozenset(apart.views[name] for name in changed))
    _make_views(work, apart, changes)
    found = understood(work.spark, parts.touched)
    if found is None:
        return _whole(work, apart, UNSURE)
    rows = output(apart.named(work.spark.sql(parts.rows)), work.plan.statement)
    stored = dict(zip(parts.columns, rows.columns, strict=True))
    keys = [stored[key] for key in parts.keys]
    obstacle = _unfit(work, rows, keys)
    if obstacle:
        return _whole(work, apart, obstacle)
    rows_read = sum(one.count for one in changes.values())
    if len(changed) == 1 and not changes[changed[0]].removed:
        write = _added(work, apart, parts, apart.views[changed[0]], stored, rows_read)
        if write is not None:
            return write
    try:
        touched, few = computed(work, _as_stored(work, apart, found, keys))
        count = touched.count() if few is None else few.num_rows
    except Exception as error:
        gone = gone_for_good(error)
        if gone is not None:
            return _whole(work, apart, f"an older version of an input is no longer there ({gone})")
        if is_beyond(error) or not isinstance(error, PySparkException):
            raise
        # A row that is gone again may hold what the SELECT refuses. If it is still there, all of it refuses it, too.
        return _whole(work, apart, f"what changed could not be computed: {first_line(error)}")
    if count > max(FEW, MOST * work.target.row_count()):
        return _whole(work, apart, f"{count:,} of its parts may have changed")
    known = only_keys(touched, keys, "r", few)
    return write_differences(
        work,
        rows=holding(work, rows, touched, keys, known),
        held=held_with(work, keys, touched, few),
        keys=keys,
        unique=parts.unique,
        rows_read=rows_read,
    )


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
    for one in work.inputs:
        view, found = apart.views[one.name], changes.get(one.name)
        frames = {"new": one.snapshot(work.spark), "old": one.snapshot(work.spark)}
        if found is not None and found.count:
            frames["old"] = one.old_snapshot(work.spark)
            frames["gone"] = found.of("delete", "update_preimage")
            frames["came"] = found.of("insert", "update_postimage")
        for version, frame in frames.items():
            marked(frame).createOrReplaceTempView(f"{view}_{version}")


def _moved(work: Work, changes: dict[str, Changes]) -> str:
    """Which input has other columns than before, if one has."""
    for one in work.inputs:
        if one.name in changes and types(one.old_snapshot(work.spark)) != types(one.snapshot(work.spark)):
            return f"the columns of {one.label} changed"
    return ""


def _unfit(work: Work, rows: DataFrame, keys: Sequence[str]) -> str:
    """Why what the table holds can't be compared with parts; empty if it can."""
    if not all(orderable(rows.schema[key].dataType) for key in keys):
        return "its key has a type that can't be compared"
    if dict(types(rows)) != dict(types(work.target.snapshot(work.spark))):
        return "its columns changed"
    return COLUMNS_MOVED if columns_moved(work, rows) else ""
