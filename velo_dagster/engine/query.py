"""A SELECT over the tables of a warehouse, answered by Spark: for what cannot be answered without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velo_dagster.engine.failures import explained, run_sql
from velo_dagster.engine.session import Engine
from velo_dagster.errors import Terminal, VeloError
from velo_dagster.sql.names import quote
from velo_dagster.sql.parse import parse_select
from velo_dagster.sql.spark import spark_select
from velo_dagster.sql.statements import InputRef, Query
from velo_dagster.store.plain_select import UnknownColumn
from velo_dagster.store.reader import ATTEMPT, OpenTable, open_named
from velo_dagster.store.table import Warehouse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class NotATable(Terminal, VeloError):
    """A query that reads a source: only tables have rows that stay the same while they are read."""

    code = "Q604"

    def __init__(self, ref: InputRef) -> None:
        super().__init__(
            f"A query reads tables, and {ref.label} is a source.",
            where=ref.span,
            steps=["Create a table from it (CREATE TABLE name AS SELECT * FROM ...), load it, and query that."],
        )


@dataclass(frozen=True)
class SparkQuery:
    """A SELECT in Spark's words, over views of tables that are there; each is read at the version it had then."""

    text: str
    views: Mapping[str, OpenTable]
    query: Query

    def run(self, engine: Engine) -> pa.Table:
        """The result."""
        with engine.session() as spark:
            from pyspark.errors import PySparkException

            for view, table in self.views.items():
                _create_view(spark, view, table)
            try:
                return run_sql(spark, self.text, self.query, no_column=UnknownColumn.code).toArrow()
            except PySparkException as error:
                raise explained(error, self.query, self.query.span, lead="The query failed. ") from error


def understand(sql: str, warehouse: Warehouse) -> SparkQuery:
    """The SELECT, or what is wrong with it that can be said before Spark is started."""
    query = parse_select(sql)
    for ref in query.inputs:
        if ref.uri is not None:
            raise NotATable(ref)
    tables = {ref.name: open_named(warehouse, ref.name) for ref in query.inputs}
    views = {name: f"query_{number}" for number, name in enumerate(tables)}
    columns = {name: [column.name for column in table.columns] for name, table in tables.items()}
    text = spark_select(query, views, columns=columns)
    return SparkQuery(text, {view: tables[name] for name, view in views.items()}, query)


def _create_view(spark: SparkSession, view: str, table: OpenTable) -> None:
    """What a query may see of a table, under a name of its own."""
    from pyspark.sql import functions as f

    rows = spark.read.format("delta").option("versionAsOf", table.version).load(table.delta.table_uri)
    if table.attempts is not None:
        rows = rows.where(f.col(ATTEMPT).isin(sorted(table.attempts)))
    rows.select(*(f.col(quote(column.name)) for column in table.columns)).createOrReplaceTempView(view)
