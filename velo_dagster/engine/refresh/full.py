"""full: recompute the SELECT over all inputs and replace the table in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.engine.columns import check_unique, output
from velo_dagster.engine.inputs import visible
from velo_dagster.engine.refresh.work import Work, Write, replace_all
from velo_dagster.sql.spark import spark_select

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def full(work: Work, reason: str) -> Write:
    rows = output(selected(work), work.plan.statement)
    check_unique(rows, work.plan)
    return replace_all(work, rows, reason)


def selected(work: Work) -> DataFrame:
    """The statement's SELECT over the inputs as they are now."""
    views: dict[str, str] = {}
    columns: dict[str, list[str]] = {}
    for number, one in enumerate(work.inputs):
        views[one.name] = f"velo_input_{number}"
        frame = visible(one.snapshot(work.spark))
        frame.createOrReplaceTempView(views[one.name])
        columns[one.name] = frame.columns
    times = {one.name: one.properties.get("event.time.field") for one in work.plan.inputs}
    named = {name: field for name, field in times.items() if field is not None}
    return work.spark.sql(spark_select(work.plan.statement.query, views, (), columns=columns, event_times=named))
