"""Which refresh method a table gets, and why. A wrong one is a table that is wrong after its first increment."""

from __future__ import annotations

from pathlib import Path

import pytest

from velo_dagster.plan.refresh import plan_refresh
from velo_dagster.sql.parse import parse
from velo_dagster.sql.statements import CreateTableAs

FILE = Path(__file__).parent.parent / "fixtures" / "plan" / "refresh.sql"


def cases() -> list[tuple[str, str]]:
    parts = (case.partition("\n--> ") for case in FILE.read_text().split("\n\n")[1:])
    return [(select, answer.strip()) for select, _, answer in parts]


def test_there_are_many_cases():
    assert len(cases()) > 40


@pytest.mark.parametrize(("select", "answer"), cases())
def test_refresh(select: str, answer: str):
    statements, problems = parse(f"CREATE TABLE x AS {select}", "a.sql")
    assert not problems
    assert isinstance(statements[0], CreateTableAs)
    refresh = plan_refresh(statements[0])
    method, keys, reason = [*answer.split(" ", 2), "", ""][:3]
    assert refresh.method == method
    assert refresh.keys == tuple(key for key in keys.split(",") if key not in ("", "-"))
    assert refresh.reason.startswith(reason)
    assert refresh.cost
