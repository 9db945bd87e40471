"""A SELECT over the tables of a warehouse, without a JVM: DuckDB over what the JVM-free reader opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.store.plain_select import translate
from velo_dagster.store.plain_types import NeedsSpark
from velo_dagster.store.reader import Column, OpenTable, open_named
from velo_dagster.store.table import Warehouse

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def query(sql: str, warehouse: Warehouse) -> pa.Table:
    """The result, if DuckDB means by this SELECT what Spark does; else `NeedsSpark`."""
    import duckdb

    opened: dict[str, OpenTable] = {}

    def columns_of(name: str) -> tuple[Column, ...]:
        if name.lower() not in opened:
            opened[name.lower()] = open_named(warehouse, name)
        return opened[name.lower()].columns

    translated = translate(sql, columns_of)
    with duckdb.connect(config=SETTINGS) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for view, name in translated.tables.items():
            connection.register(view, opened[name.lower()].dataset())
        try:
            rows = connection.sql(translated.sql).to_arrow_table()
        except duckdb.Error as error:
            # An overflow, say: Spark decides whether that is an error, and says so in its own words.
            raise NeedsSpark(f"DuckDB could not: {error}") from error
    return rows.rename_columns(list(translated.names))
