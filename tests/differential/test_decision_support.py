"""Decision-support queries as tables: many joins, nested aggregates, correlated subqueries, subtotals, windows.

If one of these fails, a user's report has wrong numbers. Each is compared with DuckDB over the same files, after the
bulk load and again after sales were added and rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.differential.cases import Case, read_cases
from tests.differential.commerce import Commerce
from tests.differential.oracle import Oracle, difference
from tests.differential.retail import Retail
from tests.harness import Play

DECLARED = re.compile(r"(\w+) (\w+(?:\(\d+,\d+\))?)(?:, |\)$)")


def check(play: Play, cases: Sequence[Case], moment: str) -> None:
    """Load what is new and compare. A query without an answer would prove nothing."""
    reports = play.load()
    problems = [f"{name}: {report.error}" for name, report in reports.items() if report.error is not None]
    with Oracle(play.folder) as oracle:
        for case in cases:
            if case.columns:
                oracle.files(case.name, dict(DECLARED.findall(case.columns)), "csv")
        expected = oracle.answers(cases)
    for case in cases:
        values = [value for row in expected[case.name] for value in row if value is not None]
        assert values, f"{case.place}: {case.name} has no answer {moment}"
        if reports[case.name].error is None:
            rows = play.rows(case.name)
            if rows != expected[case.name]:
                problems.append(f"{case.place}: {case.name}: {difference(rows, expected[case.name])}")
    assert not problems, f"{moment}, {len(problems)} tables are not what they should be:\n" + "\n".join(problems)


@pytest.mark.parametrize(
    ("fixture", "data"), [("tpch.sql", Commerce), ("retail.sql", Retail)], ids=["wholesale", "retail"]
)
def test_decision_support(play: Play, fixture: str, data: Callable[[Path], Commerce | Retail]):
    cases = read_cases(fixture)
    play.write("tables.sql", "".join(case.statement() for case in cases))
    world = data(play.folder)
    world.bulk()
    check(play, cases, "after the bulk load")
    world.change()
    check(play, cases, "after sales were added and rewritten")
