"""Row-by-row SELECTs on Spark: each input row gives at most one output row, which keeps its identity.

`system`: which columns of the rows are system columns, and so not part of `*`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from velo_dagster.engine.columns import Declared, orderable
from velo_dagster.engine.inputs import visible
from velo_dagster.engine.nested import Noted, nested, nested_types
from velo_dagster.sources.contract import ID
from velo_dagster.sql.names import quote
from velo_dagster.sql.path_values import Nested
from velo_dagster.sql.spark import RowSelect, row_select
from velo_dagster.sql.statements import CreateTableAs
from velo_dagster.store.table import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "velo_rows"
RANK = "_velo_rank"


def taken_apart(statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> RowSelect:
    """The SELECT, with the hidden and system columns of `rows` kept out of its stars."""
    frames = {statement.query.inputs[0].name: visible(rows)}
    return _apart(
        statement, rows, system, nested(rows.sparkSession, frames, lambda known: _apart(statement, rows, system, known))
    )


def _apart(statement: CreateTableAs, rows: DataFrame, system: Sequence[str], known: Nested) -> RowSelect:
    select = row_select(statement, [name for name in rows.columns if name.startswith(HIDDEN) or name in system], known)
    assert select is not None, f"{statement.name} is not a row-by-row SELECT"
    return select


def reads_text(statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> bool:
    """Whether a path of the SELECT leads into a text: what it gives then depends on all rows."""
    noted = Noted()
    _apart(statement, rows, system, Nested(nested_types({statement.query.inputs[0].name: visible(rows)}), noted))
    return bool(noted.paths)


def mapped(spark: SparkSession, statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> DataFrame:
    """The SELECT over `rows`, each result with the `_velo_id` of its row, if that has one."""
    select = taken_apart(statement, rows, system)
    rows.createOrReplaceTempView(VIEW)
    identity = f", {select.alias}.{ID}" if ID in rows.columns else ""
    where = f" WHERE {select.where}" if select.where else ""
    return spark.sql(f"SELECT {select.items}{identity} FROM {VIEW} AS {select.alias}{where}")


def winners(spark: SparkSession, statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> DataFrame:
    """Of all rows that share a key the last in source order, else, where rows have no identity, the greatest."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    shown = [one.name for one in rows.schema if not one.name.startswith(HIDDEN) and orderable(one.dataType)]
    # By name: which row is the greatest must not depend on the order in which columns came to stand.
    order = [ID] if ID in rows.columns else sorted(shown, key=str.lower)
    of_key = Window.partitionBy(*_key_names(statement)).orderBy(*(f.col(quote(name)).desc() for name in order))
    ranked = _keyed(spark, statement, rows, system).withColumn(RANK, f.row_number().over(of_key))
    return ranked.where(f"{RANK} = 1").drop(RANK, *_key_names(statement))


def keys_of(spark: SparkSession, statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> DataFrame:
    """The distinct keys of `rows`, under hidden names, which no expression of the user's can mean."""
    return _keyed(spark, statement, rows, system).select(*_key_names(statement)).distinct()


def with_keys(
    spark: SparkSession, statement: CreateTableAs, rows: DataFrame, keys: DataFrame, system: Sequence[str]
) -> DataFrame:
    """Those of `rows` whose key is one of `keys`."""
    _keyed(spark, statement, rows, system).createOrReplaceTempView("velo_keyed")
    keys.createOrReplaceTempView("velo_keys")
    names = _key_names(statement)
    match = " AND ".join(f"r.{name} <=> k.{name}" for name in names)
    return spark.sql(f"SELECT r.* FROM velo_keyed r LEFT SEMI JOIN velo_keys k ON {match}").drop(*names)


def has_misfits(spark: SparkSession, statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> bool:
    """Whether some row has a key that the key's declared type does not hold."""
    raw = _raw_keyed(spark, statement, rows, system)
    checked = [one for one in _declared_keys(statement, raw).values() if one.checked]
    return bool(checked) and not raw.where(~reduce(and_, (one.fits for one in checked))).isEmpty()


def key_name(number: int) -> str:
    return f"{HIDDEN}key_{number}"


def _key_names(statement: CreateTableAs) -> list[str]:
    return [key_name(n) for n in range(len(statement.keys))]


def _keyed(spark: SparkSession, statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> DataFrame:
    """The rows, each with its key as it is stored: rows share a key if they share it there. Every row has to have one
    that fits, or the one it was rounded to would be taken from another row."""
    raw = _raw_keyed(spark, statement, rows, system)
    declared = _declared_keys(statement, raw)
    return raw.select(
        *(declared[name].exactly().alias(name) if name in declared else raw[quote(name)] for name in raw.columns)
    )


def _raw_keyed(spark: SparkSession, statement: CreateTableAs, rows: DataFrame, system: Sequence[str]) -> DataFrame:
    """The rows, each with its key as the SELECT gives it."""
    select = taken_apart(statement, rows, system)
    rows.createOrReplaceTempView(VIEW)
    items = ", ".join(f"{expression} AS {key_name(n)}" for n, (_, expression) in enumerate(select.keys))
    return spark.sql(f"SELECT {select.alias}.*, {items} FROM {VIEW} AS {select.alias}")


def _declared_keys(statement: CreateTableAs, keyed: DataFrame) -> dict[str, Declared]:
    columns = {column.name.casefold(): column for column in statement.columns}
    return {
        key_name(n): Declared(keyed, key_name(n), columns[key.casefold()])
        for n, key in enumerate(statement.keys)
        if key.casefold() in columns
    }
