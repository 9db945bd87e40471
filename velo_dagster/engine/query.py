"""A SELECT over the tables of a warehouse, answered by Spark: for what cannot be answered without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velo_dagster.engine.failures import explained, run_sql
from velo_dagster.engine.floats import exact_calls, in_either_form
from velo_dagster.engine.nested import Noted, Texts
from velo_dagster.engine.session import Engine
from velo_dagster.errors import Terminal, VeloError
from velo_dagster.sql.names import quote
from velo_dagster.sql.nested import Type, read_type
from velo_dagster.sql.parse import parse_select
from velo_dagster.sql.path_values import Nested, TextReader
from velo_dagster.sql.spark import Edits, spark_select
from velo_dagster.sql.statements import InputRef, Query
from velo_dagster.store.plain_select import UnknownColumn
from velo_dagster.store.reader import ATTEMPT, OpenTable, open_named
from velo_dagster.store.table import Warehouse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


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
    """A SELECT over tables that are there, by the names it has for them; each is read at the version it had then."""

    query: Query
    tables: Mapping[str, OpenTable]

    def text(self, texts: TextReader, floats: Edits | None = None) -> str:
        """The SELECT in Spark's words, over views of the tables."""
        columns = {name: [column.name for column in table.columns] for name, table in self.tables.items()}
        types = {name: _types(table) for name, table in self.tables.items()}
        return spark_select(self.query, self._views, columns=columns, nested=Nested(types, texts), floats=floats)

    @property
    def _views(self) -> dict[str, str]:
        return {name: f"query_{number}" for number, name in enumerate(self.tables)}

    def run(self, engine: Engine) -> pa.Table:
        """The result."""
        with engine.session() as spark:
            from pyspark.errors import PySparkException

            frames = {name: _view(spark, self._views[name], table) for name, table in self.tables.items()}
            texts = Texts(spark, frames)
            try:
                return in_either_form(lambda wide: self._selected(spark, texts, wide).toArrow())
            except PySparkException as error:
                raise explained(error, self.query, self.query.span, lead="The query failed. ") from error

    def _selected(self, spark: SparkSession, texts: Texts, wide: bool) -> DataFrame:
        plain = run_sql(spark, self.text(texts), self.query, no_column=UnknownColumn.code)
        exact = exact_calls(spark, self.query, lambda floats: self.text(texts, floats), wide=wide)
        return plain if exact is None else spark.sql(self.text(texts, exact)).toDF(*plain.columns)


def understand(sql: str, warehouse: Warehouse) -> SparkQuery:
    """The SELECT, or what is wrong with it that can be said before Spark is started."""
    query = parse_select(sql)
    for ref in query.inputs:
        if ref.uri is not None:
            raise NotATable(ref)
    understood = SparkQuery(query, {ref.name: open_named(warehouse, ref.name) for ref in query.inputs})
    understood.text(Noted())
    return understood


def _types(table: OpenTable) -> dict[str, Type]:
    shown = {column.name for column in table.columns}
    fields = json.loads(table.delta.schema().to_json())["fields"]
    return {field["name"]: read_type(field["type"]) for field in fields if field["name"] in shown}


def _view(spark: SparkSession, view: str, table: OpenTable) -> DataFrame:
    """What a query may see of a table, under a name of its own."""
    from pyspark.sql import functions as f

    rows = spark.read.format("delta").option("versionAsOf", table.version).load(table.delta.table_uri)
    if table.attempts is not None:
        rows = rows.where(f.col(ATTEMPT).isin(sorted(table.attempts)))
    shown = rows.select(*(f.col(quote(column.name)) for column in table.columns))
    shown.createOrReplaceTempView(view)
    return shown
