"""What comments say to Dagster. A line that is misread puts a table into the wrong team's hands, or drops a check."""

from __future__ import annotations

from pathlib import Path

import pytest

from velo_dagster.plan.annotations import Annotations
from velo_dagster.plan.project import load_project

TABLE = "CREATE TABLE t AS SELECT a FROM file://a.csv;"


def read(folder: Path, *lines: str) -> tuple[Annotations, list[str]]:
    (folder / "t.sql").write_text("".join(f"-- {line}\n" for line in lines) + TABLE)
    project = load_project(folder)
    problems = [f"{p.span.line} {p.code} {p.message}" for p in project.problems]
    return project.table("t").annotations, problems


def test_all_of_it(tmp_path: Path):
    found, problems = read(
        tmp_path,
        "dagster: group=shop owners=team:a,b@c.de tags=tier:gold,reviewed kinds=kafka freshness=15m",
        'dagster: automation="0 3 * * *"',
        "What each user has spent,",
        "to the cent.",
        "velo: allow=W104",
        "check positive (WARN): SELECT * FROM t WHERE a < 0",
        "check: SELECT a",
        "  FROM t WHERE a IS NULL",
        "check must (ERROR, blocking): SELECT 1 FROM t WHERE a = 7",
    )
    assert not problems
    assert (found.group, found.owners, found.kinds) == ("shop", ("team:a", "b@c.de"), ("kafka",))
    assert found.tags == {"tier": "gold", "reviewed": ""}
    assert (found.freshness, found.automation) == (900.0, "0 3 * * *")
    assert found.description == "What each user has spent,\nto the cent."
    assert [(c.name, c.severity, c.blocking) for c in found.checks] == [
        ("positive", "WARN", False),
        ("check_2", "ERROR", False),
        ("must", "ERROR", True),
    ]
    assert found.checks[1].query.text == "SELECT a FROM t WHERE a IS NULL"


def test_comments_inside_the_statement_and_above_a_blank_line_are_not_the_tables(tmp_path: Path):
    (tmp_path / "t.sql").write_text("-- a licence\n\n-- Mine.\nCREATE TABLE t AS -- inner\nSELECT a FROM file://a.csv;")
    assert load_project(tmp_path).table("t").annotations.description == "Mine."


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dagster: gruop=a", "W120 'gruop' says nothing to Dagster. Did you mean 'group'?"),
        ("dagster: group", "E133 'group' is no key with a value"),
        ("dagster: group=", "E133 'group' has no value"),
        ("dagster: group=a-b", "E133 group = 'a-b' is not letters, digits and _"),
        ("dagster: owners=bob", "E133 owners = 'bob' is not an e-mail address or team:name"),
        ("dagster: freshness=soon", "E133 freshness = 'soon' is not a duration"),
        ("dagster: automation=sometimes", "E133 automation = 'sometimes' is not eager or off, or a cron schedule"),
        ('dagster: description="a', "E133 The line can't be read"),
        ("check x (LOUD): SELECT 1", "E133 'loud' is nothing that a check can be"),
        ("check x (WARN, blocking): SELECT 1", "E133 A check that only warns can't block"),
        ("check x: SELEC 1", "E133 The check 'x' can't be read"),
        ("check x: SELECT * FROM file://b.csv", "E133 The check 'x' reads a source"),
        ("check x: SELECT * FROM nowhere", "E113 There is no table 'nowhere'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, line: str, said: str):
    _, problems = read(tmp_path, "Words.", line, "More words.")
    (problem,) = problems
    assert problem.startswith(f"2 {said}"), problem


def test_two_checks_of_one_name(tmp_path: Path):
    _, problems = read(tmp_path, "check x: SELECT 1", "check x: SELECT 2")
    assert problems == ["2 E133 There are two checks 'x'."]
