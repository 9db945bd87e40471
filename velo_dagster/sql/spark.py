"""Queries for Spark: what the engine calls."""

from __future__ import annotations

from velo_dagster.sql.render import spark_select, system_columns
from velo_dagster.sql.rows import RowSelect, row_select

__all__ = ["RowSelect", "row_select", "spark_select", "system_columns"]
