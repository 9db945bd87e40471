"""DuckDB's answers over the same files; `kinds.LEFT_OUT` says which statements it is not asked, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from tests.harness import Rows, plain
from tests.reload.kinds import KINDS
from tests.reload.statements import INPUTS, Statement

SETTINGS = "SET TimeZone = 'UTC'; SET threads = 1;"


def answers(folder: Path, statements: Sequence[Statement]) -> dict[str, Rows]:
    """The rows of every statement that DuckDB can be asked for."""
    if not any(one.duckdb for one in statements):
        return {}
    with duckdb.connect() as connection:
        connection.execute(SETTINGS)
        for name in INPUTS:
            if any(one.name == name for one in statements):
                _read(connection, folder, name)
        return {one.name: _answer(connection, one) for one in statements if one.duckdb}


def comparable(statement: Statement, rows: Sequence[tuple]) -> Rows:
    """Rows of either engine; numbers that were rounded to nine digits, and no sign of zero."""
    rounded = [kind == "ratio" for kind in (statement.columns or {}).values()]
    return Counter(tuple(_comparable(*one) for one in zip(row, rounded, strict=True)) for row in rows)


def _comparable(value: Any, rounded: bool) -> Any:
    return plain(float(value)) if rounded and isinstance(value, int | Decimal | float) else plain(value)


def _read(connection: duckdb.DuckDBPyConnection, folder: Path, name: str) -> None:
    """All is read as text and cast: what DuckDB guesses about types is no part of the comparison."""
    glob = folder / name / "*.csv"
    options = "all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', nullstr = '~'"
    cast = ", ".join(f'CAST("{column}" AS {KINDS[kind].duckdb}) AS "{column}"' for column, kind in INPUTS[name].items())
    connection.execute(
        f"CREATE TABLE files_{name} AS SELECT {cast}, filename AS _file, row_number() OVER () AS _line "
        f"FROM read_csv('{glob}', {options}, filename = true)"
    )


def _answer(connection: duckdb.DuckDBPyConnection, statement: Statement) -> Rows:
    try:
        connection.execute(f"CREATE TABLE {statement.name} AS {statement.duckdb}")
        columns = ", ".join(f'"{name}"' for name in statement.columns or ())
        return comparable(statement, connection.sql(f"SELECT {columns} FROM {statement.name}").fetchall())
    except duckdb.Error as error:
        raise RuntimeError(f"DuckDB does not take {statement.name}: {statement.duckdb}") from error
