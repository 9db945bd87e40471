"""Event times at work: which rows are late, which windows are final, which rows retention keeps.

Everything here is a function of the rows that an input has delivered and of their order in their own file or partition
(`_velo_id`), never of how loads cut them. So increments and one full reload show the same rows, in every case.

| word | definition |
|---|---|
| late | the row's time is below the greatest time before it in its own file or partition, minus the allowance |
| watermark W | the greatest time that the input has delivered, minus the allowance |
| final | the window's end is at or below W; that of a session, which a row at its very end still joins, below W |
| shown | under `drop` and `reject`: the final windows of the rows that are not late; under `include`: of all rows |
| kept | not older than the greatest time that the input has delivered, minus the retention |

Why a final row never changes, under `drop` and `reject`, while one file or partition grows. Let a window [s, e) be
final: e <= W = m - a, where m is the greatest time so far and a the allowance. A row that comes now, at t, has rows as
late as m before it. If it is not late, t >= m - a = W >= e: it is outside of the window. (A session [s, e] takes in
rows up to t = e, so there e < W <= t is asked for.) If it is late, it is left out. And W only grows: what is final
stays final. Whether a row is late is decided by the rows before it in its file, which do not change, so no row that
counted ceases to count.

What can't be promised. Two files may arrive in either order, and one full reload finds both. If each of them alone
makes the same window final, with other sums, no rule that looks only at what was delivered can keep both first
answers: one of the two orders must see its row change. The table stays exact: a row that is on time in its own file
counts, and the window's row is corrected. So it is when a file is rewritten, when a table that is read replaces rows or
one that is joined changes, and under `include`, which asks for it: late rows count, and correct what was shown. With an
allowance that covers by how much files lag behind each other, nothing changes: then no row of any file is below W when
it comes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from velo_dagster.engine.refresh.work import Work
from velo_dagster.plan.event_time import aged_column, event_time, final_window
from velo_dagster.plan.project import TablePlan
from velo_dagster.sources.contract import ID
from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.names import quote
from velo_dagster.sql.problems import StatementError, error
from velo_dagster.sql.spark import EventTime, Shown, Times
from velo_dagster.store.table import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frames = Mapping[str, "DataFrame"]
MOMENT = f"{HIDDEN}moment"
GREATEST = f"{HIDDEN}greatest"
SECOND = 1_000_000


def input_times(plan: TablePlan, environ: Mapping[str, str] = os.environ) -> dict[str, EventTime]:
    """By input what is said about its event time. A value of the wrong form, or a variable that is not set, raises."""
    found = {one.name: event_time(one, environ) for one in plan.inputs}
    return {name: time for name, time in found.items() if time is not None}


def times_of(plan: TablePlan, frames: Frames) -> Times:
    """The event times of inputs that are read as these frames."""
    fields = input_times(plan)
    return Times(fields, {name: _types(frame, fields.get(name)) for name, frame in frames.items()})


def _types(frame: DataFrame, time: EventTime | None) -> dict[str, str]:
    types = {one.name.lower(): one.dataType.simpleString() for one in frame.schema}
    if time is not None and "." in time.field and time.field.lower() not in types:
        first, *rest = time.field.split(".")
        if first.lower() in types:
            path = ".".join(quote(part) for part in (first, *rest))
            types[time.field.lower()] = frame.selectExpr(path).schema[0].dataType.simpleString()
    return types


@dataclass(frozen=True)
class Clock:
    """The input whose time closes a statement's windows: its rows, with each row's time in microseconds, and rules."""

    rows: DataFrame
    time: EventTime

    @staticmethod
    def of(plan: TablePlan, frames: Frames, times: Times) -> tuple[str, Clock] | None:
        """None if the statement's own SELECT has no window over an input."""
        found = final_window(plan.statement.query)
        if found is None:
            return None
        name, column = found
        where = plan.statement.query.span
        text = times.of_column(name, None, column, where) if column else times.of_input(name, None, where)
        return name, Clock(with_moment(frames[name], text), times.fields.get(name, EventTime("")))

    @property
    def allowance(self) -> int:
        return int(self.time.allowance * SECOND)

    def late_marked(self) -> DataFrame:
        """The rows, each with the greatest time before it in its own file or partition."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        # The last part of an identity is the place in the file or partition, the others say which one that is.
        parts = self.rows.schema[ID].dataType.fieldNames()[:-1]  # pyright: ignore[reportAttributeAccessIssue]
        before = Window.partitionBy(*(f.col(f"{ID}.{part}") for part in parts)).orderBy(ID)
        before = before.rowsBetween(Window.unboundedPreceding, -1)
        return self.rows.withColumn(GREATEST, f.max(MOMENT).over(before))

    @property
    def is_late(self) -> str:
        """The condition on rows of `late_marked`; a row without a time, or the first of its file, is not late."""
        return f"coalesce({MOMENT} < {GREATEST} - {self.allowance}, false)"


def with_moment(rows: DataFrame, time: str) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.withColumn(MOMENT, f.expr(f"unix_micros(CAST({time} AS TIMESTAMP))"))


def greatest(rows: DataFrame) -> int | None:
    """The greatest time of rows that have a moment; None if none has a time."""
    from pyspark.sql import functions as f

    return rows.agg(f.max(MOMENT)).collect()[0][0]


def shown(plan: TablePlan, frames: Frames, times: Times) -> tuple[dict[str, DataFrame], Times]:
    """The inputs without the rows that EMIT FINAL leaves out, and the bounds of the windows to show."""
    final, retention = plan.statement.emit == "final", _retention(plan)
    found = Clock.of(plan, frames, times) if final or retention is not None else None
    if found is None:
        return dict(frames), times
    name, clock = found
    _check_order(plan, name, clock, final=final)
    newest = greatest(clock.rows)
    bounds = Shown(
        final=final,
        until=None if newest is None else newest - clock.allowance,
        retained=retention is not None,
        since=None if newest is None or retention is None else newest - retention,
    )
    counted = dict(frames)
    if final and clock.time.late != "include":
        counted[name] = clock.late_marked().where(f"NOT {clock.is_late}").drop(MOMENT, GREATEST)
    return counted, replace(times, shown=bounds)


def late_rows(work: Work) -> DataFrame | None:
    """The rows that EMIT FINAL rejects, as `<table>__rejected` holds them; None if the statement rejects none."""
    from pyspark.sql import functions as f

    if work.plan.statement.emit != "final":
        return None
    frames = {one.name: one.snapshot(work.spark) for one in work.inputs}
    found = Clock.of(work.plan, frames, times_of(work.plan, frames))
    if found is None or found[1].time.late != "reject":
        return None
    name, clock = found
    shown = [column for column in frames[name].columns if not column.startswith(HIDDEN)]
    system = next(one.system for one in work.inputs if one.name == name)
    places = [column for column in ("_file", "_line") if column in system]
    texts = [quote(column) for column in shown if column not in system]
    place = f.concat_ws(":", *places) if len(places) == 2 else f.to_json(ID)
    reason = (
        f"concat('late: ', timestamp_micros({MOMENT}), ' is more than {clock.time.allowance:f}s before ', "
        f"timestamp_micros({GREATEST}))"
    )
    late = clock.late_marked().where(clock.is_late)
    text = f.to_json(f.struct(*texts))
    return late.select(
        place.alias("place"), f.expr(reason).alias("reason"), text.alias("text"), f.to_json(f.struct(ID)).alias(ID)
    )


def _check_order(plan: TablePlan, name: str, clock: Clock, *, final: bool) -> None:
    if final and clock.time.late != "include" and ID not in clock.rows.columns:
        label = next(one.label for one in plan.inputs if one.name == name)
        message = f"'late.data.strategy' needs the order in which rows came, which '{label}' does not keep."
        step = "Read the source itself, or a table that takes its rows one by one; or leave the property out."
        raise StatementError(error("E134", message, plan.statement.query.span, step))


def _retention(plan: TablePlan) -> int | None:
    """In microseconds, how far back rows are kept."""
    given = plan.statement.properties.get("retention")
    seconds = parse_duration(given) if given else None
    return None if seconds is None else int(seconds * SECOND)


def kept_inputs(plan: TablePlan, rows: DataFrame, all_rows: DataFrame) -> DataFrame:
    """Of a row-by-row SELECT's input rows those that retention keeps, counted back from the greatest of all rows."""
    (only,) = plan.inputs
    times = times_of(plan, {only.name: all_rows})
    time = times.of_input(only.name, None, plan.statement.query.span)
    return _kept(with_moment(rows, time), greatest(with_moment(all_rows, time)), plan)


def kept_results(plan: TablePlan, result: DataFrame, frames: Frames) -> DataFrame:
    """Of a SELECT's rows those that retention keeps, by the column that is an input's event time."""
    aged = aged_column(plan) if _retention(plan) is not None and "time_window" not in _meta(plan) else None
    if aged is None:
        return result
    name, column = aged
    times = times_of(plan, {name: frames[name]})
    where = plan.statement.query.span
    newest = greatest(with_moment(frames[name], times.of_input(name, None, where)))
    fields = {name: replace(times.fields[name], field=column)}
    own = Times(fields, {name: _types(result, fields[name])})
    return _kept(with_moment(result, own.of_input(name, None, where)), newest, plan)


def _meta(plan: TablePlan) -> Mapping[str, object]:
    return plan.statement.query.tree.meta


def _kept(rows: DataFrame, newest: int | None, plan: TablePlan) -> DataFrame:
    """A row without a time is not older than anything."""
    retention = _retention(plan)
    if newest is not None and retention is not None:
        rows = rows.where(f"{MOMENT} IS NULL OR {MOMENT} >= {newest - retention}")
    return rows.drop(MOMENT)
