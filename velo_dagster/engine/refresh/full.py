"""full: recompute the SELECT over all inputs and replace the table in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from velo_dagster.engine.columns import check_unique, orderable, output
from velo_dagster.engine.event_time import kept_inputs, kept_results, late_rows, shown, times_of
from velo_dagster.engine.failures import run_sql
from velo_dagster.engine.floats import exact_calls
from velo_dagster.engine.inputs import visible
from velo_dagster.engine.missing import filled
from velo_dagster.engine.nested import nested
from velo_dagster.engine.refresh.rows import mapped, winners
from velo_dagster.engine.refresh.whole import replace_unless_same
from velo_dagster.engine.refresh.work import Work, Write, replace_all
from velo_dagster.engine.scale import size_of
from velo_dagster.sources.contract import ID
from velo_dagster.sql.names import quote
from velo_dagster.sql.path_values import Nested
from velo_dagster.sql.rows import why_not_by_row
from velo_dagster.sql.spark import Edits, Ties, has_ties, spark_select, system_columns
from velo_dagster.sql.validate import unordered_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LITTLE = 8 * 2**20
"""So many bytes of a table are compared with its rows as they should be: where they are the same, nothing is written,
and nothing that reads the table is loaded."""
OPEN = "; rows that an order leaves equal are not told apart"
OPEN_WITHIN = "; rows that an order in a subquery leaves equal are not told apart"


@dataclass(frozen=True)
class Selected:
    """The statement's SELECT over the inputs as they are now: its rows, the text that Spark got, and by input the view
    that it reads. `remark`: where rows that an order leaves equal could not be told apart."""

    frame: DataFrame
    text: str
    views: Mapping[str, str]
    remark: str = ""


def full(work: Work, reason: str) -> Write:
    statement = work.plan.statement
    if why_not_by_row(statement) is None:
        frame, remark = _kept_by_row(work), ""
    else:
        chosen = selected(work)
        frame, remark = chosen.frame, chosen.remark
    rows = output(frame, statement)
    late = late_rows(work)
    if not work.restart and size_of([work.target]).bytes < LITTLE:
        return replace(replace_unless_same(work, rows, "compare", reason + remark), late=late)
    check_unique(rows, work.plan)
    return replace(replace_all(work, rows, reason + remark), late=late)


def _kept_by_row(work: Work) -> DataFrame:
    """A row-by-row SELECT is recomputed for its retention only: per key the last row counts, if it is young enough."""
    (only,) = work.inputs
    statement, snapshot = work.plan.statement, only.snapshot(work.spark)
    rows = winners(work.spark, statement, snapshot, only.system) if statement.keys else snapshot
    return mapped(work.spark, statement, kept_inputs(work.plan, rows, snapshot), only.system)


def selected(work: Work) -> Selected:
    """The SELECT over the inputs as they are now, rows that its order leaves equal told apart."""
    query, spark = work.plan.statement.query, work.spark
    ordered = any(unordered_functions(query))
    asked = system_columns(query)
    unasked = {one.name: [name for name in one.system if name not in asked] for one in work.inputs}
    delivered = {one.name: one.snapshot(spark) for one in work.inputs}
    counted, times = shown(work.plan, delivered, times_of(work.plan, delivered))
    views: dict[str, str] = {}
    frames: dict[str, DataFrame] = {}
    for number, planned in enumerate(work.plan.inputs):
        name, rows = planned.name, counted[planned.name]
        views[name] = f"velo_input_{number}"
        frames[name] = visible(in_source_order(rows) if ordered else rows).drop(*unasked[name])
        frames[name].createOrReplaceTempView(views[name])
    columns = {name: frame.columns for name, frame in frames.items()}
    system = {one.name: [name for name in one.system if name in columns[one.name]] for one in work.inputs}

    def told(known: Nested, ties: Ties | None = None, floats: Edits | None = None) -> str:
        given = {"columns": columns, "system": system, "event_times": times, "filled": filled(work.inputs)}
        return spark_select(query, views, (), **given, ties=ties, nested=known, floats=floats)

    known = nested(spark, frames, told)

    def rendered(ties: Ties | None = None, floats: Edits | None = None) -> str:
        return told(known, ties, floats)

    text = rendered()
    result = run_sql(spark, text, query)
    names = result.columns
    exact = exact_calls(spark, query, lambda floats: rendered(floats=floats), wide=work.wide)
    if exact is not None:
        text = rendered(floats=exact)
        result = spark.sql(text)

    def found(frame: DataFrame, text: str, remark: str = "") -> Selected:
        # Spark names a column that has no name after its expression, and that may be a rewritten one.
        named = frame.toDF(*names) if exact is not None else frame
        return Selected(kept_results(work.plan, named, delivered), text, views, remark)

    if not has_ties(query):
        return found(result, text)
    for ties, remark in _tried(_ties(result, frames, system)):
        broken = rendered(ties, exact)
        frame = understood(spark, broken)
        if frame is not None:
            return found(frame, broken, remark)
    return found(result, text, OPEN)


def _ties(result: DataFrame, frames: Mapping[str, DataFrame], system: Mapping[str, Sequence[str]]) -> Ties:
    positions = [number for number, field in enumerate(result.schema, 1) if orderable(field.dataType)]
    inputs = {name: _orderable(frame) for name, frame in frames.items()}
    return Ties(positions, inputs, {name: frame.columns for name, frame in frames.items()}, system)


def _tried(ties: Ties) -> Sequence[tuple[Ties, str]]:
    """Only Spark knows the types of a subquery's columns: where it refuses to sort by one, they are left alone."""
    return (ties, ""), (replace(ties, inner=False), OPEN_WITHIN)


def understood(spark: SparkSession, text: str) -> DataFrame | None:
    """None if Spark does not take the statement so."""
    from pyspark.errors import AnalysisException

    try:
        frame = spark.sql(text)
        frame.schema  # noqa: B018 - over Spark Connect, a query is looked at only when something is asked of it
    except AnalysisException:
        return None
    return frame


def in_source_order(rows: DataFrame) -> DataFrame:
    """Rows in one partition, in the order of their source, else in that of all their columns: what FIRST, LAST and the
    like see without an order."""
    order = [ID] if ID in rows.columns else [quote(name) for name in sorted(_orderable(visible(rows)), key=str.lower)]
    return rows.orderBy(*order).coalesce(1) if order else rows


def _orderable(frame: DataFrame) -> list[str]:
    return [field.name for field in frame.schema if orderable(field.dataType)]
