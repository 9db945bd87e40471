"""Queries for Spark: what the engine calls."""

from __future__ import annotations

from velo_dagster.sql.event_time import EventTime, Shown, Times
from velo_dagster.sql.floats import Edits
from velo_dagster.sql.render import spark_select, system_columns
from velo_dagster.sql.rows import RowSelect, row_select
from velo_dagster.sql.stars import follows_column_order
from velo_dagster.sql.ties import Ties, has_ties

__all__ = [
    "Edits",
    "EventTime",
    "RowSelect",
    "Shown",
    "Ties",
    "Times",
    "follows_column_order",
    "has_ties",
    "row_select",
    "spark_select",
    "system_columns",
]
