"""Every rule of the language that needs no data: the right place, the right code, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from velo_dagster.plan.project import load_project

FILE = Path(__file__).parent.parent / "fixtures" / "validate" / "problems.sql"
GIVEN = """
CREATE TABLE orders AS SELECT id, amount, name FROM file:///orders.csv;
CREATE TABLE users AS SELECT id, email FROM file:///users.csv;
CREATE TABLE all_of_it AS SELECT * FROM file:///all.csv;
CREATE TABLE totals AS SELECT name, sum(amount) AS s FROM orders GROUP BY name;
"""
SOURCES = "sources: {clicks: 'kafka://h:1/clicks', views: 'kafka://h:1/views'}\n"


def cases() -> list[tuple[str, str]]:
    parts = (case.partition("\n-->") for case in FILE.read_text().split("\n\n")[1:])
    return [(text, answer.strip()) for text, _, answer in parts]


@pytest.mark.parametrize(("text", "answer"), cases())
def test_problems(tmp_path: Path, text: str, answer: str):
    (tmp_path / "velo.yaml").write_text(SOURCES)
    (tmp_path / "a_given.sql").write_text(GIVEN)
    (tmp_path / "b.sql").write_text(text)
    problems = load_project(tmp_path).problems
    first = text.count("\n") if text.startswith("--") else 0
    found = [f"{p.span.line - first}:{p.span.column} {p.code}" for p in problems]
    assert ", ".join(found) == answer, [p.render() for p in problems]
    assert all(p.severity == ("error" if p.code.startswith("E") else "warning") for p in problems)
    assert all(Path(p.span.file).name == "b.sql" for p in problems)


def test_a_comment_elsewhere_in_the_file_counts_for_all_of_it(tmp_path: Path):
    text = "-- velo: allow=W104\n\nCREATE TABLE a AS SELECT 1 AS b;\nCREATE TABLE b AS SELECT count(*) AS n FROM a;"
    (tmp_path / "a.sql").write_text(text)
    assert load_project(tmp_path).problems == ()
