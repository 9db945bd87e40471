"""What a statement says about tables that it joins: where it is written, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from velo_dagster.cli import cli
from velo_dagster.orchestration.definitions import build_velo_definitions
from velo_dagster.plan.project import TablePlan, load_project
from velo_dagster.plan.references import driving_of, exemption, missable, missing_of
from velo_dagster.sql.joins import named_columns
from velo_dagster.sql.parse import parse
from velo_dagster.sql.spark import spark_select
from velo_dagster.sql.statements import CreateTableAs

GIVEN = """
CREATE TABLE orders AS SELECT id, user_id FROM file://orders.csv;
CREATE TABLE users AS SELECT user_id, name FROM file://users.csv;
CREATE TABLE limits AS SELECT user_id, top FROM file://limits.csv;
"""
JOIN = (
    "SELECT o.id, u.name, l.top FROM orders o JOIN users u{users} ON o.user_id = u.user_id "
    "LEFT JOIN limits l{limits} ON o.user_id = l.user_id"
)


def planned(folder: Path, users: str = "", limits: str = "", closing: str = "'compression' = 'zstd'") -> TablePlan:
    select = JOIN.format(users=users, limits=limits)
    (folder / "t.sql").write_text(f"{GIVEN}CREATE TABLE e AS {select} WITH ({closing});")
    project = load_project(folder)
    assert not project.problems, project.problems
    return project.table("e")


@pytest.mark.parametrize(
    ("users", "closing", "expected"),
    [
        ("", "'compression' = 'zstd'", {"orders": "wait", "users": "wait", "limits": "wait"}),
        ("", "'missing.reference' = 'Skip'", {"orders": "wait", "users": "skip", "limits": "skip"}),
        ("", "'missing.reference' = 'fail'", {"orders": "fail", "users": "fail", "limits": "fail"}),
        ("", "'users.missing.reference' = 'skip'", {"orders": "wait", "users": "skip", "limits": "wait"}),
        (
            " WITH ('missing.reference' = 'fail')",
            "'missing.reference' = 'skip', 'USERS.missing.reference' = 'null'",
            {"orders": "wait", "users": "fail", "limits": "skip"},
        ),
        (" WITH ('missing.reference' = '${VELO_HOW:-skip}')", "'missing.reference' = 'fail'", {"users": "skip"}),
    ],
)
def test_what_is_said_nearest_to_a_table_counts(tmp_path: Path, users: str, closing: str, expected: dict[str, str]):
    plan = planned(tmp_path, users, closing=closing)
    found = {one.name: missing_of(one).how for one in plan.inputs}
    assert {name: found[name] for name in expected} == expected
    assert missable(plan) == {name for name, how in found.items() if how == "skip"}


def test_a_policy_is_no_property_of_a_source(tmp_path: Path):
    """Else its landing would be read anew for it."""
    select = "SELECT o.id, u.name FROM file://orders.csv o JOIN users u ON o.user_id = u.user_id"
    prints = []
    for closing in ("'delimiter' = ';'", "'delimiter' = ';', 'users.missing.reference' = 'skip'"):
        (tmp_path / "t.sql").write_text(f"{GIVEN}CREATE TABLE e AS {select} WITH ({closing});")
        project = load_project(tmp_path)
        assert not project.problems
        prints.append(next(one.fingerprint for one in project.table("e").inputs if one.kind == "source"))
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    ("select", "driving"),
    [
        ("SELECT 1 FROM a JOIN b ON true", "a"),
        ("SELECT 1 FROM (SELECT * FROM a JOIN c) x JOIN b ON true", "a"),
        ("WITH x AS (SELECT * FROM b) SELECT 1 FROM x JOIN a ON true", "b"),
        ("SELECT 1 FROM a UNION ALL SELECT 1 FROM b", None),
        ("SELECT 1 FROM range(3) JOIN a", None),
    ],
)
def test_the_driving_input_is_the_one_that_gives_the_rows(tmp_path: Path, select: str, driving: str | None):
    tables = "".join(f"CREATE TABLE {name} AS SELECT id FROM file://{name}.csv;" for name in "abc")
    (tmp_path / "t.sql").write_text(f"{tables} CREATE TABLE e AS {select.replace('1', '1 AS n')};")
    found = driving_of(load_project(tmp_path).table("e"))
    assert (found.name if found is not None else None) == driving


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("SELECT o.id, u.name FROM orders o JOIN users u ON o.k = u.k", ["name", "k"]),
        ("SELECT o.id, users.a.b FROM orders o JOIN users USING (k, l)", ["k", "l", "a"]),
        ("SELECT o.* FROM orders o WHERE EXISTS (SELECT 1 FROM users u WHERE u.k = o.k)", ["k"]),
        ("SELECT * FROM orders o JOIN users u ON o.k = u.k", None),
        ("SELECT u.* FROM orders o JOIN users u ON o.k = u.k", None),
        ("SELECT o.id FROM orders o NATURAL JOIN users u", None),
        ("SELECT u.id FROM orders o JOIN users u ON o.k = u.k WHERE o.k IN (SELECT u.z FROM items u)", None),
    ],
)
def test_columns_that_a_statement_names_of_a_table(select: str, names: list[str] | None):
    found = named_columns(statement(select).query, "users")
    assert (sorted(found) if found is not None else None) == (sorted(names) if names is not None else None)


def test_a_filled_table_is_joined_whatever_its_condition_says():
    """Its one row is every row's; the conditions of other joins, and what stands around, stay as they are."""
    text = """SELECT o.id FROM orders o /* all */ INNER JOIN users u WITH ('missing.reference' = 'null')
      ON (o.k = u.k AND o.n > ANY (SELECT n FROM users2)) -- why
      LEFT JOIN limits l ON l.k = o.k CROSS JOIN rates WHERE o.id > 1"""
    query = statement(text).query
    views = {one.name: f"v_{one.name}" for one in query.inputs}
    made = spark_select(query, views, filled=["users", "rates"])
    words = " ".join(made.split())
    assert "INNER JOIN `v_users` u ON TRUE" in words, words
    assert "LEFT JOIN `v_limits` l ON l.k = o.k CROSS JOIN `v_rates`" in words and words.endswith("WHERE o.id > 1")


def statement(select: str) -> CreateTableAs:
    (parsed,), problems = parse(f"CREATE TABLE e AS {select}", "a.sql")
    assert not problems and isinstance(parsed, CreateTableAs)
    return parsed


def test_what_is_exempt_by_choice_is_said_by_plan_and_by_the_asset(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert exemption(planned(tmp_path)) == ""
    assert exemption(planned(tmp_path, closing="'missing.reference' = 'skip'")) == "", "it heals"
    planned(tmp_path, closing="'users.missing.reference' = 'null'")
    assert cli.main(["plan", str(tmp_path)], standalone_mode=False) is None
    out = capsys.readouterr().out
    joined = "a changed row touches the rows of o it joins by o.user_id = u.user_id"
    assert f"  reads  table users (while it is not ready: null): {joined}\n" in out
    assert (
        "  exempt by choice from equalling a full reload: missing.reference: rows that were loaded without users" in out
    )
    planned(tmp_path, closing="'join.time' = 'load'")
    found = {spec.key.to_user_string(): spec for spec in build_velo_definitions(tmp_path).resolve_all_asset_specs()}
    assert found["e"].metadata["velo/exempt"] == "join.time = load: rows stay as they were joined"
    assert str(found["e"].metadata["velo/refresh"]).startswith("once, because 'join.time' = 'load'")
    assert "velo/exempt" not in found["orders"].metadata
