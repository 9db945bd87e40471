"""Many statements over files that change: after every step each table has the rows that DuckDB gives over these files.

If one of these fails, a user reads wrong rows after an ordinary change of their files, and nothing tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.differential.cases import Case, read_cases
from tests.differential.history import INPUTS, STEPS, Files, doubled
from tests.differential.oracle import Oracle, difference
from tests.harness import Interpreting, Play, Rows
from velo_dagster.engine.session import EmbeddedEngine

TOPICS = ("rows", "strings", "dates", "numbers", "joins", "groups", "sets", "subqueries", "windows", "ctes", "keys")
CASES = read_cases("tables.sql", *(f"{topic}.sql" for topic in TOPICS))
WHOLE = [case for case in CASES if case.whole]
REMOVE = " WITH ('file.deleted' = 'remove')"


def answers(play: Play, cases: Sequence[Case], extension: str) -> dict[str, Rows]:
    with Oracle(play.folder) as oracle:
        for name, columns in INPUTS.items():
            oracle.files(name, columns, extension)
        return oracle.answers(cases)


def check(play: Play, cases: Sequence[Case], extension: str, step: str) -> None:
    """Load what is new, then compare; all differences are reported together."""
    reports = play.load()
    problems = [f"{name}: {report.error}" for name, report in reports.items() if report.error is not None]
    expected = answers(play, cases, extension)
    for case in cases:
        if reports[case.name].error is None:
            rows = play.rows(case.name)
            if rows != expected[case.name]:
                problems.append(f"{case.place}: {case.name}: {difference(rows, expected[case.name])}")
    assert not problems, f"after {step}, {len(problems)} tables are not what they should be:\n" + "\n".join(problems)


def run(play: Play, cases: Sequence[Case], extension: str, stops: Sequence[Callable[[Files], None]]) -> None:
    """Take the cases through the history; load and compare at the stops."""
    play.write("tables.sql", "".join(case.statement(extension, REMOVE) for case in cases))
    files = Files(play.folder, extension)
    for step in STEPS:
        step(files)
        if step in stops:
            check(play, cases, extension, step.__name__)


@pytest.fixture
def long_play(tmp_path: Path, engine: EmbeddedEngine) -> Play:
    """For histories; each statement's own result is also compared as users' queries run, in `test_every_statement`."""
    return Play(tmp_path, Interpreting(engine))


def test_every_step_over_csv(long_play: Play):
    run(long_play, WHOLE, "csv", STEPS)


def test_every_step_over_json_lines(long_play: Play):
    """Those that read files themselves; what reads tables does not see the format."""
    run(long_play, [case for case in WHOLE if case.reads_files], "jsonl", STEPS)


def test_every_statement(play: Play):
    """All of them, where duplicates and NULLs are."""
    run(play, CASES, "csv", [doubled])


@pytest.mark.fuzz
@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_every_statement_after_every_step(play: Play, extension: str):
    run(play, CASES, extension, STEPS)
