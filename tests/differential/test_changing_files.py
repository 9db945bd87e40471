"""Many statements over files that change: after every step each table has the rows that DuckDB gives over the same files.

If one of these fails, a user reads wrong rows after an ordinary change of their files, and nothing tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.differential.cases import Case, read_cases
from tests.differential.history import INPUTS, STEPS, Files, doubled, late
from tests.differential.oracle import Oracle, difference
from tests.harness import Play, Rows

TOPICS = "tables rows strings dates numbers joins groups sets subqueries windows ctes keys".split()
CASES = read_cases(*(f"{topic}.sql" for topic in TOPICS))
WHOLE = [case for case in CASES if case.whole]
REMOVE = " WITH ('file.deleted' = 'remove')"


def answers(play: Play, cases: Sequence[Case], extension: str) -> dict[str, Rows]:
    with Oracle(play.folder) as oracle:
        for name, columns in INPUTS.items():
            oracle.files(name, columns, extension)
        return oracle.answers(cases)


def check(play: Play, cases: Sequence[Case], extension: str, step: str) -> None:
    """Load what is new, then compare; all differences are reported together."""
    problems = []
    for name, report in play.load().items():
        if report.error is not None:
            problems.append(f"{name}: {report.error}")
    for case, expected in zip(cases, answers(play, cases, extension).values(), strict=True):
        if not (play.folder / play.warehouse / case.name).exists():
            continue
        rows = play.rows(case.name)
        if rows != expected:
            problems.append(f"{case.place}: {case.name}: {difference(rows, expected)}")
    assert not problems, f"after {step}, {len(problems)} tables are not what they should be:\n" + "\n".join(problems)


def run(play: Play, cases: Sequence[Case], extension: str, stops: Sequence[Callable[[Files], None]]) -> None:
    """Take the cases through the history; load and compare at the stops."""
    play.write("tables.sql", "".join(case.statement(extension, REMOVE) for case in cases))
    files = Files(play.folder, extension)
    for step in STEPS:
        step(files)
        if step in stops:
            check(play, cases, extension, step.__name__)


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_every_step(play: Play, extension: str):
    run(play, WHOLE, extension, STEPS)


def test_every_statement(play: Play):
    """All of them: loaded once duplicates and NULLs are there, and again after files were rewritten, cut and grew."""
    run(play, CASES, "csv", [doubled, late])
