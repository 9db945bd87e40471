"""Random statements over random histories: a table that is kept up to date equals one that is computed from nothing.

What a user loses if this fails: the promise. In two halves, the second nearer to the product and slower:

- the algebra that finds out what changed (`plan.deltas`), asked of DuckDB, one statement per seed;
- projects of many tables, loaded by Spark into Delta tables while their files come, grow, change and go, with loads
  that are bounded, killed or full refreshes in between. After each step every table is compared with one load of the
  same files into a warehouse of its own, bit by bit, and with DuckDB (`reload.kinds.LEFT_OUT`: where not, and why).

A failure prints its seed and, made as small as some tries can, the project that shows it, ready to be kept in
`fixtures/reload`. `make fuzz SEEDS=5000` runs both halves for longer.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from tests.harness import Interpreting
from tests.reload.algebra import check
from tests.reload.grammar import Grammar
from tests.reload.history import History, read, written
from tests.reload.random_history import LAYERS, random_history
from tests.reload.run import Difference, Outcome, run
from tests.reload.shrink import shrunk
from tests.reload.statements import of_files
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.errors import VeloError

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "5000"))
HISTORIES = range(FIRST // sum(LAYERS), FIRST // sum(LAYERS) + -(-SEEDS // sum(LAYERS)))
"""So that both halves try as many statements."""
TRIES = int(os.environ.get("TRIES", "40"))
"""How often a history that shows a difference is made smaller."""
FIXTURES = Path(__file__).parent / "fixtures/reload"
FOUND = sorted(FIXTURES.glob("found/*.sql"))


def chosen() -> list[str]:
    lines = (FIXTURES / "chosen.sql").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("--")]


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


@pytest.mark.parametrize("seed", [6])
def test_tables_over_changing_files(tmp_path: Path, engine: EmbeddedEngine, seed: int):
    """A short one: what is computed in parts takes Spark long to plan, however little it is."""
    outcome = _followed(random_history(seed, steps=3, layers=(6, 2)), tmp_path, engine, f"short history {seed}")
    assert outcome.methods["groups"] and outcome.methods["merge"], outcome


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", HISTORIES)
def test_tables_over_changing_files_for_long(tmp_path: Path, engine: EmbeddedEngine, seed: int):
    outcome = _followed(random_history(seed), tmp_path, engine, f"history {seed}")
    print(f"history {seed}: {outcome}; no difference")  # noqa: T201


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_once(tmp_path: Path, engine: EmbeddedEngine, path: Path):
    run(read(path), tmp_path, Interpreting(engine))


def test_what_is_printed_is_small_and_can_be_kept(tmp_path: Path):
    """A fault that needs one table and one line of a file, found in a random history, is told by little more."""
    history = random_history(3)
    name, text = next((name, text) for name, text in history.steps[0].files.items() if text and text.count("\n") > 3)
    line = text.splitlines()[2]
    table = of_files(name.partition("/")[0], keyed=False).name

    def shows(smaller: History) -> Difference | None:
        tables = [one.name for one in smaller.statements]
        for number, step in enumerate(smaller.steps):
            if table in tables and line in (step.files.get(name) or "").splitlines():
                return Difference(number, table, "a line")
        return None

    found = shows(history)
    assert found is not None
    least, _ = shrunk(history, found, shows, tries=200)
    assert [one.name for one in least.statements] == [table]
    assert [dict(step.files) for step in least.steps] == [{name: f"{text.splitlines()[0]}\n{line}\n"}]
    kept = tmp_path / "kept.sql"
    kept.write_text(written(history, "all of it"))
    assert read(kept).steps == history.steps and read(kept).sql == history.sql


def _followed(history: History, folder: Path, engine: EmbeddedEngine, name: str) -> Outcome:
    """Take the history through its steps; where that shows a difference, say what is the least that does."""
    numbers = itertools.count()

    def shows(smaller: History) -> Difference | None:
        try:
            run(smaller, folder / str(next(numbers)), Interpreting(engine))
        except Difference as difference:
            return difference
        except VeloError:
            # Without what was left out it can't be loaded at all: that is another thing.
            return None
        return None

    try:
        return run(history, folder / str(next(numbers)), Interpreting(engine))
    except Difference as found:
        least, difference = shrunk(history, found, shows, TRIES)
        raise AssertionError(f"{name}: {found}\n\n{written(least, str(difference))}") from found
    except Exception as error:
        raise AssertionError(f"{name}: {error}\n\n{written(history, name)}") from error
