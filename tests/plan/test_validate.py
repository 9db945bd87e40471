"""Every rule of the language that needs no data: the right place, the right code, and nothing else."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.cases import answered
from velo_dagster.plan.project import load_project

GIVEN = """
CREATE TABLE orders AS SELECT id, amount, name FROM file:///orders.csv;
CREATE TABLE users AS SELECT id, email FROM file:///users.csv;
CREATE TABLE all_of_it AS SELECT * FROM file:///all.csv;
CREATE TABLE totals AS SELECT name, sum(amount) AS s FROM orders GROUP BY name;
"""
SOURCES = "sources: {clicks: 'kafka://h:1/clicks', views: 'kafka://h:1/views'}\n"


@pytest.mark.parametrize(("text", "answer"), answered("validate/problems.sql"))
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


def test_an_unknown_kind_of_source_is_told_before_a_load(tmp_path: Path):
    (tmp_path / "a.sql").write_text("CREATE TABLE a AS\nSELECT * FROM fil://bob:secret@orders.csv;")
    (problem,) = load_project(tmp_path).errors
    assert (problem.span.line, problem.span.column) == (2, 15)
    assert "'fil' is not a kind of source. Did you mean 'file'?" in problem.message
    assert "secret" not in problem.render()


def test_a_package_adds_its_kind_of_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    point = EntryPoint("ftp", "somewhere:FtpSource", "velo_dagster.sources")
    monkeypatch.setattr("velo_dagster.plan.inputs.entry_points", lambda group: [point] if group == point.group else [])
    (tmp_path / "a.sql").write_text("CREATE TABLE a AS SELECT * FROM ftp://orders.csv;")
    assert load_project(tmp_path).problems == ()


def test_a_kind_of_source_that_comes_later_is_told_before_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.sql").write_text("CREATE TABLE a AS SELECT * FROM postgresql://bob:secret@h/db?table=t;")
    (problem,) = load_project(tmp_path).problems
    assert problem.code == "W115" and "secret" not in problem.render()
    assert "a load of table 'a' will end with E306" in problem.message
    point = EntryPoint("database", "somewhere:Database", "velo_dagster.sources")
    monkeypatch.setattr("velo_dagster.plan.inputs.entry_points", lambda group: [point] if group == point.group else [])
    assert load_project(tmp_path).problems == ()


@pytest.mark.parametrize("text", ["", "-- nothing yet\n", ";;\n"])
def test_a_project_without_statements_says_so(tmp_path: Path, text: str):
    (tmp_path / "a.sql").write_text(text)
    (problem,) = load_project(tmp_path).problems
    assert (problem.code, problem.severity) == ("E142", "error")
    assert "nothing to load" in problem.message


def test_a_file_that_cannot_be_read_is_not_called_empty(tmp_path: Path):
    (tmp_path / "a.sql").write_text("CREAT TABLE a AS SELECT 1")
    assert [problem.code for problem in load_project(tmp_path).problems] == ["E103"]


def test_a_file_in_backticks_is_told_how_to_name_it(tmp_path: Path):
    (tmp_path / "a.sql").write_text("CREATE TABLE a AS SELECT * FROM `my orders.csv`;")
    (problem,) = load_project(tmp_path).errors
    assert (problem.code, problem.steps) == ("E113", ("For a file, write 'file://my orders.csv'.",))
