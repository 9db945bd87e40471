"""What changed, by the SQL of `plan.deltas`, asked of DuckDB: another engine, and a quick one."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache, lru_cache

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from tests.reload.grammar import TABLES
from velo_dagster.plan.blocks import ROW_MARK
from velo_dagster.plan.deltas import CHANGE, Deltas, Parts
from velo_dagster.plan.whole import why_whole
from velo_dagster.sql.dialect import Velo

DUCKDB = {"int": "INTEGER", "text": "TEXT"}


def qualified(statement: str) -> exp.Expr:
    schema = MappingSchema(dialect="spark")
    for name, columns in TABLES.items():
        schema.add_table(name, dict.fromkeys(columns, "string"))
    tree = sqlglot.parse_one(statement, dialect=Velo)
    return qualify(tree, schema=schema, dialect="spark", validate_qualify_columns=False)


@lru_cache(maxsize=16)
def for_duckdb(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


@cache
def connection() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    found.execute("SET threads = 1")
    return found


def _literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def random_rows(source: random.Random, table: str, most: int) -> list[tuple]:
    """Rows with NULLs and duplicates, from few values, so that they meet."""
    values = {"int": [None, 0, 1, 2, 3, 4], "text": [None, "", "x", "y", "Zoë", "x y"]}
    kinds = TABLES[table].values()
    return [tuple(source.choice(values[kind]) for kind in kinds) for _ in range(source.randint(0, most))]


class World:
    """Three tables as they were and as they are, and what changed in between."""

    def __init__(self, seed: int) -> None:
        source = random.Random(seed)
        self.connection = connection()
        self.changed: set[str] = set()
        for name in TABLES:
            old = random_rows(source, name, 8)
            new = list(old)
            if source.random() < 0.7:
                source.shuffle(new)
                new = [*new[: source.randint(len(new) // 2, len(new))], *random_rows(source, name, 3)]
            self._make(name, old, new)

    def _make(self, name: str, old: list[tuple], new: list[tuple]) -> None:
        had, has = Counter(old), Counter(new)
        versions = {"old": had, "new": has, "gone": had - has, "came": has - had}
        if versions["gone"] or versions["came"]:
            self.changed.add(name)
        columns = ", ".join(f"c.{column}::{DUCKDB[type_]} AS {column}" for column, type_ in TABLES[name].items())
        nothing = f"({', '.join('NULL' for _ in TABLES[name])}, true)"
        for version, rows in versions.items():
            values = ", ".join([nothing, *(f"({', '.join(map(_literal, row))}, false)" for row in rows.elements())])
            mark = f"hash({', '.join(TABLES[name])}) AS {ROW_MARK}"
            self.connection.execute(
                f"CREATE OR REPLACE TABLE {name}_{version} AS SELECT *, {mark} FROM (SELECT {columns} "
                f"FROM (VALUES {values}) c({', '.join(TABLES[name])}, nothing) WHERE NOT nothing)"
            )
        both = " UNION ALL ".join(f"SELECT *, '{kind}' AS {CHANGE} FROM {name}_{kind}" for kind in ("gone", "came"))
        self.connection.execute(f"CREATE OR REPLACE TABLE {name}_changed AS {both}")

    def ask(self, sql: str) -> Counter[tuple]:
        return Counter(self.connection.sql(sql).fetchall())


def as_at(parts: Parts, version: str) -> str:
    return parts.rows.replace("_new`", f"_{version}`")


def updated(world: World, parts: Parts) -> Counter[tuple]:
    """The old result, with the parts that were touched computed anew."""
    world.connection.execute(f"CREATE OR REPLACE TABLE touched AS {for_duckdb(parts.touched)}")
    match = " AND ".join(f'r."{key}" IS NOT DISTINCT FROM t."{key}"' for key in parts.keys)
    kept = world.ask(f"SELECT r.* FROM ({for_duckdb(as_at(parts, 'old'))}) r ANTI JOIN touched t ON {match}")
    return kept + world.ask(f"SELECT r.* FROM ({for_duckdb(parts.rows)}) r SEMI JOIN touched t ON {match}")


def by_rows(world: World, parts: Parts, name: str) -> tuple[Counter[tuple], Counter[tuple]]:
    """The result before one input changed, with what its new rows give; and what its old rows give that are gone."""
    both = world.ask(for_duckdb(parts.exact[name]))
    gone, came = (
        Counter({row[:-1]: count for row, count in both.items() if row[-1] == kind}) for kind in ("gone", "came")
    )
    return world.ask(for_duckdb(parts.rows.replace(f"{name}_new`", f"{name}_old`"))) + came, gone


def check(statement: str, seeds: range) -> bool:
    """Whether the statement is computed in parts; if so, that it then is what a recomputation gives."""
    tree = qualified(statement)
    if why_whole(tree) is not None:
        return False
    plain = tree.copy()
    for table in plain.find_all(exp.Table):
        if table.name in TABLES:
            table.set("this", exp.to_identifier(f"{table.name}_new"))

    @cache
    def of_changed(changed: frozenset[str]) -> Parts:
        return Deltas(frozenset(TABLES), changed).parts(tree)

    for seed in seeds:
        world = World(seed)
        parts = of_changed(frozenset(world.changed))
        asked = world.ask(for_duckdb(parts.rows))
        shown = Counter(row[: len(unhidden(parts))] for row in asked.elements())
        assert shown == world.ask(for_duckdb(plain.sql("spark"))), f"data {seed}: the statement taken apart is another"
        assert updated(world, parts) == asked, f"data {seed}: parts\n{parts.touched}"
        for name in parts.exact:
            grown, gone = by_rows(world, parts, name)
            assert grown == asked + gone, f"data {seed}: rows of {name}\n{parts.exact[name]}"
    return True


def unhidden(parts: Parts) -> list[str]:
    return [name for name in parts.columns if not name.startswith("_velo_")]
