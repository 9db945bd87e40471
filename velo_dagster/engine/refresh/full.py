"""full: recompute the SELECT over all inputs and replace the table in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.engine.columns import check_unique, orderable, output
from velo_dagster.engine.failures import run_sql
from velo_dagster.engine.inputs import visible
from velo_dagster.engine.refresh.work import Work, Write, replace_all
from velo_dagster.plan.project import PlannedInput
from velo_dagster.sources.contract import ID
from velo_dagster.sql.spark import Ties, has_ties, spark_select
from velo_dagster.sql.validate import unordered_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def full(work: Work, reason: str) -> Write:
    rows = output(selected(work), work.plan.statement)
    check_unique(rows, work.plan)
    return replace_all(work, rows, reason)


def selected(work: Work) -> DataFrame:
    """The statement's SELECT over the inputs as they are now; rows that its order leaves equal are told apart."""
    query, spark = work.plan.statement.query, work.spark
    ordered = any(unordered_functions(query))
    views: dict[str, str] = {}
    frames: dict[str, DataFrame] = {}
    for number, one in enumerate(work.inputs):
        views[one.name] = f"velo_input_{number}"
        frames[one.name] = visible(in_source_order(one.snapshot(spark)) if ordered else one.snapshot(spark))
        frames[one.name].createOrReplaceTempView(views[one.name])
    columns = {name: frame.columns for name, frame in frames.items()}
    times = {one.name: one.properties["event.time.field"] for one in work.plan.inputs if _has_time(one)}
    result = run_sql(spark, spark_select(query, views, (), columns=columns, event_times=times), query)
    if not has_ties(query):
        return result
    positions = [number for number, field in enumerate(result.schema, 1) if orderable(field.dataType)]
    inputs = {
        name: [field.name for field in frame.schema if orderable(field.dataType)] for name, frame in frames.items()
    }
    ties = Ties(positions, inputs)
    return spark.sql(spark_select(query, views, (), columns=columns, event_times=times, ties=ties))


def in_source_order(rows: DataFrame) -> DataFrame:
    """Rows in the order of their source, in one partition: what FIRST, LAST and the like see without an order."""
    return rows.orderBy(ID).coalesce(1) if ID in rows.columns else rows


def _has_time(planned: PlannedInput) -> bool:
    return "event.time.field" in planned.properties
