"""Row-by-row SELECTs on Spark: each input row gives at most one output row, which keeps its identity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from velo_dagster.engine.columns import orderable
from velo_dagster.sources.contract import ID
from velo_dagster.sql.names import quote
from velo_dagster.sql.spark import RowSelect, row_select, system_columns
from velo_dagster.sql.statements import CreateTableAs
from velo_dagster.store.table import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "velo_rows"
RANK = "_velo_rank"


def taken_apart(statement: CreateTableAs, rows: DataFrame) -> RowSelect:
    """The SELECT, with the hidden and system columns that `rows` has kept out of its stars."""
    asked = system_columns(statement.query)
    select = row_select(statement, [name for name in rows.columns if name.startswith(HIDDEN) or name in asked])
    assert select is not None, f"{statement.name} is not a row-by-row SELECT"
    types = {column.name.casefold(): column.type for column in statement.columns if column.type.upper() != "DECIMAL"}
    keys = tuple((name, _typed(expression, types.get(name.casefold()))) for name, expression in select.keys)
    return replace(select, keys=keys)


def _typed(expression: str, declared: str | None) -> str:
    """Rows share a key if they share it in the type in which it is stored."""
    return expression if declared is None else f"CAST(({expression}) AS {declared})"


def mapped(spark: SparkSession, statement: CreateTableAs, rows: DataFrame) -> DataFrame:
    """The SELECT over `rows`, each result with the `_velo_id` of its row, if that has one."""
    select = taken_apart(statement, rows)
    rows.createOrReplaceTempView(VIEW)
    identity = f", {select.alias}.{ID}" if ID in rows.columns else ""
    where = f" WHERE {select.where}" if select.where else ""
    return spark.sql(f"SELECT {select.items}{identity} FROM {VIEW} AS {select.alias}{where}")


def winners(spark: SparkSession, statement: CreateTableAs, rows: DataFrame) -> DataFrame:
    """Of all rows that share a key the last in source order, else, where rows have no identity, the greatest."""
    select = taken_apart(statement, rows)
    rows.createOrReplaceTempView(VIEW)
    keys = ", ".join(expression for _, expression in select.keys)
    shown = [one.name for one in rows.schema if not one.name.startswith(HIDDEN) and orderable(one.dataType)]
    # By name: which row is the greatest must not depend on the order in which columns came to stand.
    order = [ID] if ID in rows.columns else sorted(shown, key=str.lower)
    ranked = ", ".join(f"{select.alias}.{quote(name)} DESC" for name in order)
    return (
        spark.sql(
            f"SELECT {select.alias}.*, row_number() OVER (PARTITION BY {keys} ORDER BY {ranked}) AS {RANK} "
            f"FROM {VIEW} AS {select.alias}"
        )
        .where(f"{RANK} = 1")
        .drop(RANK)
    )


def keys_of(spark: SparkSession, statement: CreateTableAs, rows: DataFrame) -> DataFrame:
    """The distinct keys of `rows`, under hidden names, which no expression of the user's can mean."""
    select = taken_apart(statement, rows)
    rows.createOrReplaceTempView(VIEW)
    items = ", ".join(f"{expression} AS {key_name(n)}" for n, (_, expression) in enumerate(select.keys))
    return spark.sql(f"SELECT DISTINCT {items} FROM {VIEW} AS {select.alias}")


def with_keys(spark: SparkSession, statement: CreateTableAs, rows: DataFrame, keys: DataFrame) -> DataFrame:
    """Those of `rows` whose key is one of `keys`."""
    select = taken_apart(statement, rows)
    rows.createOrReplaceTempView(VIEW)
    keys.createOrReplaceTempView("velo_keys")
    match = " AND ".join(f"{key_name(n)} <=> ({expression})" for n, (_, expression) in enumerate(select.keys))
    return spark.sql(f"SELECT {select.alias}.* FROM {VIEW} AS {select.alias} LEFT SEMI JOIN velo_keys ON {match}")


def key_name(number: int) -> str:
    return f"{HIDDEN}key_{number}"
