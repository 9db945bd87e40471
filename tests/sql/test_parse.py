"""Text becomes statements, or messages that say where and what: nothing is dropped, nothing is guessed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import FIXTURES, answered
from velo_dagster.errors import Span
from velo_dagster.sql import statements
from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.parse import parse, parse_select
from velo_dagster.sql.problems import StatementError
from velo_dagster.sql.text import to_sql

FOLDER = FIXTURES / "parse"
TEXT = (FOLDER / "statements.sql").read_text()


def durations() -> list[tuple[str, str]]:
    lines = (FOLDER / "durations.txt").read_text().splitlines()
    return [(text, answer.strip()) for text, _, answer in (line.rpartition("|") for line in lines[1:])]


def one(sql: str) -> statements.Statement:
    found, problems = parse(sql, "a.sql")
    assert not problems, [problem.render() for problem in problems]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(("text", "answer"), durations())
def test_duration(text: str, answer: str):
    assert parse_duration(text) == (Decimal(answer) if answer else None)


def test_all_statements_of_the_language_parse():
    found, problems = parse(TEXT, "a.sql")
    assert not problems
    assert len(found) == 53


def test_what_is_written_out_parses_to_the_same():
    for statement in parse(TEXT, "a.sql")[0]:
        assert one(to_sql(statement)) == statement


@pytest.mark.parametrize(("statement", "answer"), answered("parse/refused.sql"))
def test_refused_with_a_place_and_a_code(statement: str, answer: str):
    _, problems = parse(statement, "a.sql")
    told, _, step = answer.partition(" | ")
    place, code, *message = told.split(" ", 2)
    assert len(problems) == 1
    assert f"{problems[0].span.line}:{problems[0].span.column}" == place
    assert problems[0].code == code
    assert problems[0].message.startswith(message[0] if message else "")
    assert not step or problems[0].steps[0].startswith(step)


@pytest.mark.parametrize(
    ("text", "message", "step"),
    [
        ("SELEC 1", "A query begins with SELECT, not with SELEC.", "Did you mean SELECT?"),
        ("CREATE TABLE a AS SELECT 1", "A query begins with SELECT, not with CREATE.", "Write SELECT … FROM table."),
        ("orders", "A query begins with SELECT, not with orders.", "Write SELECT … FROM table."),
        ("SELECT * FROM a foo bar", "The query is complete before 'bar'.", "Remove the rest."),
        ("SELECT * FROM d.csv", "'d.csv' is no table.", "A query reads tables, by names without dots."),
        ("SELECT a FORM b", "'FORM' is not a clause of a SELECT.", "Did you mean FROM?"),
    ],
)
def test_a_query_alone_is_not_told_about_statements(text: str, message: str, step: str):
    with pytest.raises(StatementError) as caught:
        parse_select(text)
    assert caught.value.what == message and caught.value.steps[0].startswith(step)
    assert not any("AS SELECT" in one for one in caught.value.steps)


def test_an_error_does_not_hide_the_next_statement_or_the_next_error():
    text = "CREATE TABLE a AS SELEC 1;\nCREATE TABLE b AS SELECT 1;\n\n  CREATE TABLE c AS SELECT FROM x;"
    found, problems = parse(text, "a.sql")
    assert [s.name for s in found if isinstance(s, statements.CreateTableAs)] == ["b"]
    assert [problem.span.line for problem in problems] == [1, 4]


def test_places_are_those_of_the_file():
    found, _ = parse(
        "-- é comment\n\nCREATE TABLE a AS\n  SELECT *\n  FROM orders JOIN file:///x.csv y USING (id);", "f.sql"
    )
    assert found[0].span == Span("f.sql", 3, 1)
    assert isinstance(found[0], statements.CreateTableAs)
    assert [ref.span for ref in found[0].inputs] == [Span("f.sql", 5, 8), Span("f.sql", 5, 20)]


def test_comments_right_above_belong_to_the_statement():
    found, _ = parse(
        "-- of the file\n\n-- dagster: group=a\n-- velo: allow=W104\nCREATE TABLE a AS SELECT 1; -- x", "f"
    )
    assert found[0].comments == (
        statements.Comment("dagster: group=a", Span("f", 3, 4)),
        statements.Comment("velo: allow=W104", Span("f", 4, 4)),
    )


KEYS = {
    "SELECT symbol PRIMARY KEY, price FROM t": ("symbol",),
    "SELECT region PRIMARY KEY, product PRIMARY KEY, SUM(qty) AS total FROM t GROUP BY 1, 2": ("region", "product"),
    "SELECT t.symbol PRIMARY KEY FROM t": ("symbol",),
    "SELECT UPPER(symbol) AS s PRIMARY KEY FROM t": ("s",),
    "SELECT `Order ID` PRIMARY KEY FROM t": ("Order_ID",),
    "SELECT a, b FROM t WITH ('primary.key' = 'a, b')": ("a", "b"),
}


@pytest.mark.parametrize("select", KEYS)
def test_keys(select: str):
    statement = one(f"CREATE TABLE x AS {select}")
    assert isinstance(statement, statements.CreateTableAs)
    assert statement.keys == KEYS[select]


def test_properties_at_the_relation_and_at_the_end():
    statement = one("CREATE TABLE x AS SELECT * FROM a WITH ('k' = '1') WHERE true WITH (\"k\" = \"2\", 'z' = '3')")
    assert isinstance(statement, statements.CreateTableAs)
    assert statement.inputs[0].properties == {"k": "1"}
    assert statement.properties == {"k": "2", "z": "3"}


def test_equal_uris_are_one_input_and_labels_hide_secrets():
    uri = "postgresql://bob:pw@h/db?query=\"SELECT 'x'\""
    query = parse_select(f"SELECT * FROM {uri} a, {uri} b")
    assert [(ref.name, ref.label) for ref in query.inputs] == [("_input_0", "postgresql://h/db")]


def test_common_table_expressions_are_not_inputs():
    inner = "WITH c AS (SELECT 1) TABLE c"
    query = parse_select(f"WITH a AS (TABLE a), b AS (SELECT * FROM a) SELECT * FROM b, A, c WHERE x IN ({inner})")
    assert [ref.name for ref in query.inputs] == ["a", "c"]


def test_a_query_alone_is_for_the_command_line():
    assert parse_select("SELECT 1;").text == "SELECT 1"
    for wrong in ("", "SELECT 1; SELECT 2", "CREATE TABLE a AS SELECT 1", "SELECT 1 FROM"):
        with pytest.raises(StatementError):
            parse_select(wrong)


names = st.sampled_from(["orders", "t1", "`Order ID`", "status", "key", "`a``b`", "_x"])
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
literals = st.sampled_from(["1", "2.50BD", "'it\\'s'", '"x"', "NULL", "DATE '2024-01-01'", "r'\\d'", "10L"])
relations = st.sampled_from(
    [
        "orders",
        "file:///a-*.csv",
        "'s3://b/{x,y}'",
        "kafka_topic('t')",
        "mysql://h/d?where=\"a='b'\"",
    ]
)


def _with(pairs: dict[str, str]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return f" WITH ({', '.join(f'{quoted(k)} = {quoted(v)}' for k, v in pairs.items())})" if pairs else ""


@st.composite
def selects(draw: st.DrawFn) -> str:
    items = ", ".join(
        f"{draw(literals)} AS c{i}{draw(st.sampled_from(['', ' PRIMARY KEY']))}" for i in range(draw(st.integers(1, 3)))
    )
    properties = _with(draw(st.dictionaries(st.sampled_from(["a", "b.c", "it's"]), values, max_size=2)))
    clauses = draw(
        st.permutations(
            ["GROUP BY x", "HAVING y > 1", "ORDER BY z", "LIMIT 3", "EMIT CHANGES", "WINDOW TUMBLING(ts, 5m)"]
        )
    )
    kept = " ".join(clauses[: draw(st.integers(0, 4))])
    alias = draw(st.sampled_from(["", " q", " AS q"]))
    return f"SELECT {items}, *\n FROM {draw(relations)}{alias}{properties} WHERE a > ANY (1, 2) /* c */ {kept}"


@st.composite
def texts(draw: st.DrawFn) -> str:
    name, select = draw(names), draw(selects())
    closing = _with(draw(st.dictionaries(values.filter(bool), values, max_size=3)))
    return draw(
        st.sampled_from(
            [
                f"CREATE TABLE {name} AS {select}{closing}",
                f"CREATE STREAM {name} AS {select} INTO sink{closing}",
                f"CREATE TABLE {name} (a INT PRIMARY KEY, `b c` MAP(STRING, ARRAY(DECIMAL(5, 1)))){closing}",
                f"INSERT INTO {name} {select.replace(' PRIMARY KEY', '')}{closing}",
                f"UPDATE {name} AS z SET a = 1, b = z.b + 1 FROM {draw(names)} u{closing} WHERE u.id = z.id",
                f"DELETE FROM {name} USING {draw(names)}{closing} WHERE true",
                f"UPSERT INTO {name} {select.replace(' PRIMARY KEY', '')} ON a = b",
                f"BEGIN; DELETE FROM {name} WHERE a = ';'; INSERT INTO {name} VALUES (1); COMMIT",
            ]
        )
    )


@settings(max_examples=200, deadline=None)
@given(texts())
def test_generated_statements_survive_being_written_out(text: str):
    """If this fails, a statement that is stored or shown as SQL means something else when it is read again."""
    statement = one(text)
    again = one(to_sql(statement))
    assert again == statement
    assert to_sql(again) == to_sql(statement)
