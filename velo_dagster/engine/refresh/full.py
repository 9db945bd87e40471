"""full: recompute the SELECT over all inputs and replace the table in one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from velo_dagster.engine.columns import check_unique, orderable, output
from velo_dagster.engine.failures import run_sql
from velo_dagster.engine.inputs import visible
from velo_dagster.engine.refresh.work import Work, Write, replace_all
from velo_dagster.plan.project import PlannedInput
from velo_dagster.sources.contract import ID
from velo_dagster.sql.names import quote
from velo_dagster.sql.spark import Ties, has_ties, spark_select, system_columns
from velo_dagster.sql.statements import Query
from velo_dagster.sql.validate import unordered_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


OPEN = "; rows that an order leaves equal are not told apart"
OPEN_WITHIN = "; rows that an order in a subquery leaves equal are not told apart"


def full(work: Work, reason: str) -> Write:
    frame, remark = selected(work)
    rows = output(frame, work.plan.statement)
    check_unique(rows, work.plan)
    return replace_all(work, rows, reason + remark)


def selected(work: Work) -> tuple[DataFrame, str]:
    """The statement's SELECT over the inputs as they are now, rows that its order leaves equal told apart.

    Beside it: where that could not be done.
    """
    query, spark = work.plan.statement.query, work.spark
    ordered = any(unordered_functions(query))
    views: dict[str, str] = {}
    frames: dict[str, DataFrame] = {}
    for number, one in enumerate(work.inputs):
        views[one.name] = f"velo_input_{number}"
        frames[one.name] = visible(in_source_order(one.snapshot(spark)) if ordered else one.snapshot(spark))
        frames[one.name].createOrReplaceTempView(views[one.name])
    columns = {name: frame.columns for name, frame in frames.items()}
    times = {one.name: _time_field(one) for one in work.plan.inputs if "event.time.field" in one.properties}

    def rendered(ties: Ties | None) -> str:
        return spark_select(query, views, (), columns=columns, event_times=times, ties=ties)

    result = run_sql(spark, rendered(None), query)
    if not has_ties(query):
        return result, ""
    return _without_ties(spark, rendered, _ties(query, result, frames)) or (result, OPEN)


def _ties(query: Query, result: DataFrame, frames: Mapping[str, DataFrame]) -> Ties:
    positions = [number for number, field in enumerate(result.schema, 1) if orderable(field.dataType)]
    inputs = {name: _orderable(frame) for name, frame in frames.items()}
    return Ties(positions, inputs, {name: frame.columns for name, frame in frames.items()}, system_columns(query))


def _without_ties(spark: SparkSession, rendered: Callable[[Ties], str], ties: Ties) -> tuple[DataFrame, str] | None:
    """None if Spark takes the statement only as it is written.

    Only Spark knows the types of a subquery's columns: where it refuses to sort by one, they are left alone.
    """
    from pyspark.errors import AnalysisException

    for one, remark in ((ties, ""), (replace(ties, inner=False), OPEN_WITHIN)):
        try:
            frame = spark.sql(rendered(one))
            frame.schema  # noqa: B018 - over Spark Connect, a query is looked at only when something is asked of it
            return frame, remark
        except AnalysisException:
            continue
    return None


def in_source_order(rows: DataFrame) -> DataFrame:
    """Rows in one partition, in the order of their source, else in that of all their columns: what FIRST, LAST and the
    like see without an order."""
    order = [ID] if ID in rows.columns else [quote(name) for name in sorted(_orderable(visible(rows)), key=str.lower)]
    return rows.orderBy(*order).coalesce(1) if order else rows


def _orderable(frame: DataFrame) -> list[str]:
    return [field.name for field in frame.schema if orderable(field.dataType)]


def _time_field(planned: PlannedInput) -> str:
    _, properties = planned.resolve(os.environ)
    return properties["event.time.field"]
