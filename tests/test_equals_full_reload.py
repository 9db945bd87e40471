"""Random statements over random histories: a table that is kept up to date equals one that is computed from nothing.

What a user loses if this fails: the promise. In two rounds, the second nearer to the product and slower: the algebra
that finds out what changed, asked of DuckDB; and loads by Spark into Delta tables, where files are added and rewritten
at random. A failure prints its seed and statement; `make fuzz SEEDS=5000` runs more.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.harness import Interpreting, Play
from tests.reload.algebra import check
from tests.reload.grammar import TABLES, Grammar, random_rows
from velo_dagster.engine.session import EmbeddedEngine

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "5000"))
CASES = Path(__file__).parent / "fixtures/reload/chosen.sql"


def chosen() -> list[str]:
    return [line for line in CASES.read_text().splitlines() if line and not line.startswith("--")]


@pytest.mark.parametrize("block", range(12))
def test_parts_that_changed(block: int):
    in_parts = sum(_checked(seed) for seed in range(block * 20, block * 20 + 20))
    assert in_parts > 10, "most statements should be computed in parts"


@pytest.mark.fuzz
def test_parts_that_changed_for_long():
    in_parts = sum(_checked(seed) for seed in range(FIRST, FIRST + SEEDS))
    print(f"{SEEDS} seeds from {FIRST}, {in_parts} of them computed in parts, no difference")  # noqa: T201


@pytest.mark.parametrize("statement", chosen())
def test_a_statement_for_each_rule(statement: str):
    assert check(statement, range(20))


def _checked(seed: int) -> bool:
    statement = Grammar(seed).statement()
    try:
        return check(statement, range(seed * 10, seed * 10 + 2))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {statement}") from error


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.fuzz) for seed in range(2, 12))])
def test_tables_over_changing_files(tmp_path: Path, engine: EmbeddedEngine, seed: int):
    """Loaded step by step, against one load of the same files."""
    source = random.Random(seed)
    play = Play(tmp_path, Interpreting(engine), small=0)
    names = [f"t{number}" for number in range(6)]
    sql = [f"CREATE TABLE {name} ({_declared(name)}) AS SELECT * FROM file://{name}/*.csv;" for name in TABLES]
    sql += [f"CREATE TABLE {name} AS {Grammar(seed * 1000 + n).statement()};" for n, name in enumerate(names)]
    play.write("t.sql", "\n".join(sql))
    for table in TABLES:
        _write(play, source, table, 0)
    methods: Counter[str] = Counter()
    for step in range(3):
        if step:
            for table in source.sample(list(TABLES), k=source.randint(1, 2)):
                _write(play, source, table, source.randint(0, 2))
        reports = play.loaded()
        methods.update(report.method for report in reports.values() if report.table in names)
        fresh = play.reloaded()
        for name in names:
            assert play.rows(name) == fresh.rows(name), f"step {step}, {name}: {sql[len(TABLES) + names.index(name)]}"
    assert methods["groups"], methods


def _write(play: Play, source: random.Random, table: str, number: int) -> None:
    """A new file, or one that is written again."""
    rows = random_rows(source, table, 8)
    lines = [",".join("" if value is None else f'"{value}"' for value in row) for row in rows]
    play.write(f"{table}/{number}.csv", "\n".join([",".join(TABLES[table]), *lines]) + "\n")


def _declared(table: str) -> str:
    types = {"int": "BIGINT", "text": "STRING"}
    return ", ".join(f"{name} {types[type_]}" for name, type_ in TABLES[table].items())
