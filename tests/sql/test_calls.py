"""Aggregates and row functions under the names that users of other engines write, against DuckDB or by hand.

If one of these fails, a number in somebody's report is wrong, or a statement of theirs is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pytest

from tests.harness import Rows, multiset, plain
from velo_dagster.sql.parse import parse, parse_select
from velo_dagster.sql.problems import NotSupportedYet
from velo_dagster.sql.spark import Ties, spark_select
from velo_dagster.sql.validate import validate_statement

ROWS = """
    ('a', 1, 10, 1.50, 'x'), ('a', 2, 20, 2.25, 'y'), ('a', 3, 30, 9.00, NULL), ('a', 4, 20, 4.75, 'x'),
    ('a', 5, 10, 0.25, 'z'), ('b', 6, 7, 3.00, 'q'), ('c', 7, NULL, NULL, NULL), ('c', 8, 4, 1.00, 'm'),
    ('d', 9, -5, 2.50, 'n'), ('d', 10, -5, -2.50, 'n'), ('d', 11, 12, 0.00, 'o')
"""
AGGREGATES: Mapping[str, str | None] = {
    "COUNT(*)": None,
    "COUNT(k)": None,
    "SUM(k)": None,
    "SUM(v)": None,
    "AVG(k)": None,
    "MIN(v)": None,
    "MAX(s)": None,
    "APPROX_COUNT_DISTINCT(k)": "count(DISTINCT k)",
    "FIRST(k)": None,
    "FIRST_VALUE(k)": "first(k)",
    "LAST(k)": None,
    "LAST_VALUE(k)": "last(k)",
    "STRING_AGG(s, '-')": None,
    "STRING_AGG(s, '-' ORDER BY i DESC)": None,
    "LISTAGG(s, '+') WITHIN GROUP (ORDER BY s, i)": "string_agg(s, '+' ORDER BY s, i)",
    "LISTAGG(s)": "string_agg(s, '')",
    "GROUP_CONCAT(s)": "string_agg(s, ',')",
    "GROUP_CONCAT(s, '; ')": "string_agg(s, '; ')",
    "GROUP_CONCAT(s ORDER BY i DESC SEPARATOR '/')": "string_agg(s, '/' ORDER BY i DESC)",
    "GROUP_CONCAT(s SEPARATOR '/')": "string_agg(s, '/')",
    "GROUP_CONCAT(s ORDER BY i DESC)": "string_agg(s, ',' ORDER BY i DESC)",
    "array_sort(COLLECT(k))": "list_sort(list(k) FILTER (k IS NOT NULL))",
    "MEDIAN(v)": None,
    "STDDEV(k)": None,
    "STDDEV_SAMP(k)": None,
    "STDDEV_POP(v)": None,
    "VARIANCE(k)": None,
    "VAR_SAMP(v)": None,
    "VAR_POP(k)": None,
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY v)": None,
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY k DESC)": None,
    "PERCENTILE_CONT(v, 0.75)": "percentile_cont(0.75) WITHIN GROUP (ORDER BY v)",
    "PERCENTILE_CONT(0.75, v)": "percentile_cont(0.75) WITHIN GROUP (ORDER BY v)",
    "PERCENTILE_CONT(coalesce(v, 0), 0.9)": "percentile_cont(0.9) WITHIN GROUP (ORDER BY coalesce(v, 0))",
    "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY k)": None,
    "PERCENTILE_DISC(k, 0.25)": "percentile_disc(0.25) WITHIN GROUP (ORDER BY k)",
    "COVAR_POP(k, v)": None,
    "COVAR_SAMP(k, v)": None,
}
CORRELATIONS = ("CORR(k, v)", "REGR_R2(k, v)", "REGR_SLOPE(k, v)", "REGR_INTERCEPT(k, v)")
"""Where there are not two different values, one engine says NULL, the other NaN: asked over a group that has them."""
ROW_FUNCTIONS = (
    "ROW_NUMBER() OVER (PARTITION BY g ORDER BY i)",
    "RANK() OVER (PARTITION BY g ORDER BY k)",
    "DENSE_RANK() OVER (PARTITION BY g ORDER BY k)",
    "PERCENT_RANK() OVER (PARTITION BY g ORDER BY k)",
    "CUME_DIST() OVER (PARTITION BY g ORDER BY k)",
    "NTILE(2) OVER (PARTITION BY g ORDER BY i)",
    "LAG(k) OVER (PARTITION BY g ORDER BY i)",
    "LAG(k, 2, 0) OVER (PARTITION BY g ORDER BY i)",
    "LEAD(v, 1) OVER (ORDER BY i)",
    "FIRST_VALUE(v) OVER (PARTITION BY g ORDER BY i)",
    "LAST_VALUE(v) OVER (PARTITION BY g ORDER BY i)",
    "NTH_VALUE(v, 2) OVER (PARTITION BY g ORDER BY i)",
)
BUFFERS = {
    "SUM(v) OVER (ROWS WINDOW BUFFER 3 ROWS PARTITION BY g ORDER BY i)": (
        "sum(v) OVER (PARTITION BY g ORDER BY i ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    ),
    "COUNT(*) OVER (ROWS WINDOW BUFFER 1 ROWS ORDER BY i)": "1",
    "LAG(v, 3) OVER (ROWS WINDOW BUFFER 2 ROWS ORDER BY i)": "lag(v, 3) OVER (ORDER BY i)",
    "ROW_NUMBER() OVER (ROWS WINDOW BUFFER 2 ROWS PARTITION BY g ORDER BY i)": (
        "row_number() OVER (PARTITION BY g ORDER BY i)"
    ),
    "FIRST_VALUE(i) OVER (ROWS WINDOW BUFFER 4 ROWS ORDER BY i)": (
        "first_value(i) OVER (ORDER BY i ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)"
    ),
    "MAX(i) OVER (ROWS WINDOW BUFFER 3 ROWS ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)": (
        "max(i) OVER (ORDER BY i ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)"
    ),
    "MIN(i) OVER (ROWS WINDOW BUFFER 9 ROWS ORDER BY i ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)": (
        "min(i) OVER (ORDER BY i ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    ),
    "MIN(i) OVER (ROWS WINDOW BUFFER 2 ROWS ORDER BY i ROWS 5 PRECEDING)": (
        "min(i) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    ),
    "AVG(k) OVER w": "avg(k) OVER (PARTITION BY g ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
}


@pytest.fixture
def rows(spark):
    view = f"SELECT * FROM VALUES {ROWS} AS t(g, i, k, v, s)"
    spark.sql(view).coalesce(1).createOrReplaceTempView("t")
    return spark


def ours(spark, select: str) -> Rows:
    query = parse_select(select)
    ties = Ties([1], {"t": ["g", "i", "k", "v", "s"]})
    frame = spark.sql(spark_select(query, {"t": "t"}, ties=ties if " OVER " in select else None))
    return multiset(frame.toArrow())


def theirs(select: str) -> Rows:
    with duckdb.connect() as connection:
        connection.sql("SET default_null_order = 'nulls_first'")
        connection.sql(f"CREATE TABLE t AS SELECT * FROM (VALUES {ROWS}) t(g, i, k, v, s)")
        return multiset(connection.sql(select).arrow())


def listed(items: Mapping[str, str | None]) -> tuple[str, str]:
    """A select list for us, and one for DuckDB."""
    return (
        ", ".join(f"{item} AS c{n}" for n, item in enumerate(items)),
        ", ".join(f"{other or item} AS c{n}" for n, (item, other) in enumerate(items.items())),
    )


def test_aggregates(rows):
    mine, other = listed(AGGREGATES)
    assert ours(rows, f"SELECT g, {mine} FROM t GROUP BY g") == theirs(f"SELECT g, {other} FROM t GROUP BY g")


def test_correlations(rows):
    mine, other = listed(dict.fromkeys(CORRELATIONS))
    assert ours(rows, f"SELECT {mine} FROM t WHERE g = 'a'") == theirs(f"SELECT {other} FROM t WHERE g = 'a'")


def test_different_values(rows):
    sql = (
        "SELECT g, COUNT(DISTINCT k) AS a, COUNT(DISTINCT s) AS b, SUM(DISTINCT k) AS c, SUM(v) AS d FROM t GROUP BY g"
    )
    assert ours(rows, sql) == theirs(sql)


def test_texts_once_each_in_order(rows):
    """Alone: beside another DISTINCT, Spark 4.2 itself fails over it."""
    sql = "SELECT g, STRING_AGG(DISTINCT s, '-' ORDER BY s) AS c FROM t GROUP BY g"
    assert ours(rows, sql) == theirs(sql)


def test_known_answers(rows):
    """10, 20, 30, 20, 10; one value; no rows."""
    sql = (
        "SELECT VAR_POP(k) a, VAR_SAMP(k) b, round(STDDEV_SAMP(k), 4) c, SUM(k) d, AVG(k) e, COUNT(DISTINCT k) f FROM t"
    )
    assert list(ours(rows, f"{sql} WHERE g = 'a'")) == [tuple(map(plain, (56.0, 70.0, 8.3666, 90, 18, 3)))]
    assert list(ours(rows, "SELECT VAR_SAMP(k) a, STDDEV(k) b, VAR_POP(k) c FROM t WHERE g = 'b'")) == [(None, None, 0)]
    single = ", ".join(f"{item} AS c{n}" for n, item in enumerate((*AGGREGATES, *CORRELATIONS)))
    found = ours(rows, f"SELECT {single} FROM t WHERE i < 0")
    counts = {f"c{n}" for n, item in enumerate(AGGREGATES) if "COUNT" in item}
    names = sorted(f"c{n}" for n in range(len(AGGREGATES) + len(CORRELATIONS)))
    lists = {f"c{n}" for n, item in enumerate(AGGREGATES) if "COLLECT" in item}
    assert list(found) == [tuple(0 if name in counts else () if name in lists else None for name in names)]


def test_row_functions(rows):
    mine, other = listed(dict.fromkeys(ROW_FUNCTIONS))
    assert ours(rows, f"SELECT i, {mine} FROM t") == theirs(f"SELECT i, {other} FROM t")


def test_a_buffer_of_rows_is_a_frame_of_the_last_ones(rows):
    mine, other = listed(BUFFERS)
    named = "WINDOW w AS (ROWS WINDOW BUFFER 2 ROWS PARTITION BY g ORDER BY i)"
    assert ours(rows, f"SELECT i, {mine} FROM t {named}") == theirs(f"SELECT i, {other} FROM t")


def test_a_buffer_stands_behind_what_breaks_ties(rows):
    """Which rows are the last must not depend on how Spark cut the data."""
    query = parse_select("SELECT sum(k) OVER (ROWS WINDOW BUFFER 2 ROWS ORDER BY g) AS s FROM t")
    text = spark_select(query, {"t": "t"}, ties=Ties([1], {"t": ["g", "i"]}))
    assert "ORDER BY g, `t`.`g`, `t`.`i` ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)" in text


@pytest.mark.parametrize(
    "over",
    [
        "sum(x) OVER (ROWS WINDOW BUFFER 2 ROWS ORDER BY x RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)",
        "sum(x) OVER (ROWS WINDOW BUFFER 2 ROWS ORDER BY x ROWS BETWEEN 9 PRECEDING AND 5 PRECEDING)",
    ],
)
def test_a_buffer_that_contradicts_its_frame_is_refused(over: str):
    with pytest.raises(NotSupportedYet, match=r"(?s)E203.*1\. Keep the buffer or the frame"):
        spark_select(parse_select(f"SELECT {over} FROM t"), {"t": "t"})


WRONG = {
    "COUNT()": "COUNT takes at least 1 argument, not 0.",
    "SUM(a, b)": "SUM takes 1 argument, not 2.",
    "MEDIAN()": "MEDIAN takes 1 argument, not 0.",
    "COLLECT(a, b)": "COLLECT takes 1 argument, not 2.",
    "CORR(a)": "CORR takes 2 arguments, not 1.",
    "REGR_R2(a, b, c)": "REGR_R2 takes 2 arguments, not 3.",
    "STRING_AGG(a)": "STRING_AGG needs what stands between the texts.",
    "STRING_AGG(DISTINCT a)": "STRING_AGG needs what stands between the texts.",
    "LISTAGG(a, 5)": "LISTAGG takes the text between the texts second, not a number.",
    "PERCENTILE_CONT(0.5)": (
        "PERCENTILE_CONT takes a fraction, and the values in WITHIN GROUP (ORDER BY …), not without WITHIN GROUP."
    ),
    "PERCENTILE_CONT(1.5) WITHIN GROUP (ORDER BY a)": "PERCENTILE_CONT takes a fraction from 0 to 1, not 1.5.",
    "PERCENTILE_DISC(a, -0.1)": "PERCENTILE_DISC takes a fraction from 0 to 1, not -0.1.",
    "PERCENTILE_DISC('x') WITHIN GROUP (ORDER BY a)": "PERCENTILE_DISC takes a fraction from 0 to 1, not a text.",
    "ROW_NUMBER()": "ROW_NUMBER looks at other rows, and needs OVER.",
    "ROW_NUMBER(a) OVER (ORDER BY a)": "ROW_NUMBER takes no arguments, not 1.",
    "RANK() OVER (PARTITION BY a)": "RANK needs an order of rows.",
    "NTILE(0) OVER (ORDER BY a)": "NTILE takes the number of groups: a whole number, at least 1.",
    "NTILE(2.5) OVER (ORDER BY a)": "NTILE takes the number of groups: a whole number, at least 1.",
    "NTILE(a) OVER (ORDER BY a)": "NTILE takes the number of groups: a whole number, at least 1.",
    "NTILE() OVER (ORDER BY a)": "NTILE takes 1 argument, not 0.",
    "LAG() OVER (ORDER BY a)": "LAG takes 1 to 3 arguments, not 0.",
    "LAG(a, 1.5) OVER (ORDER BY a)": "LAG takes the distance in rows: a whole number that is written out.",
    "LEAD(a, b) OVER (ORDER BY a)": "LEAD takes the distance in rows: a whole number that is written out.",
    "LAG(a) OVER ()": "LAG needs an order of rows.",
    "NTH_VALUE(a) OVER (ORDER BY a)": "NTH_VALUE takes 2 to 3 arguments, not 1.",
    "NTH_VALUE(a, 0) OVER (ORDER BY a)": "NTH_VALUE takes the number of the row: a whole number, at least 1.",
    "NTH_VALUE(a, -1) OVER (ORDER BY a)": "NTH_VALUE takes the number of the row: a whole number, at least 1.",
    "SUM(a) OVER (ROWS WINDOW BUFFER 3 ROWS PARTITION BY a)": "ROWS WINDOW BUFFER takes the last rows, and needs an "
    "order.",
    "SUM(a) OVER (ROWS WINDOW BUFFER 0 ROWS ORDER BY a)": "ROWS WINDOW BUFFER holds at least one row.",
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_arguments_are_told_where_they_stand(call: str):
    """Before Spark is started, with what to write instead."""
    statements, problems = parse(f"CREATE TABLE x AS\n  SELECT 1 AS one, {call} AS y FROM t GROUP BY z", "a.sql")
    found = [*problems, *(problem for one in statements for problem in validate_statement(one))]
    errors = [problem for problem in found if problem.severity == "error"]
    assert [(one.code, one.message) for one in errors] == [("E138", WRONG[call])]
    assert errors[0].span.line == 2 and errors[0].span.column >= 20 and errors[0].steps


def test_right_arguments_are_not_told():
    """A statement that Spark runs must not be refused."""
    items = [
        "STRING_AGG(DISTINCT s, '-' ORDER BY s)",
        *AGGREGATES,
        *CORRELATIONS,
        *ROW_FUNCTIONS,
        *BUFFERS,
        "lag(k, -1) OVER (ORDER BY i)",
        "ntile(1 + 1) OVER w",
    ]
    items += [
        "count(DISTINCT a, b)",
        "first(a, true)",
        "sum(a) FILTER (WHERE b)",
        "rank() OVER (w)",
        "`sum`",
        "max_by(a, b)",
    ]
    items += ["nth_value(a, 2) IGNORE NULLS OVER (ORDER BY b)", "percentile_cont(p) WITHIN GROUP (ORDER BY a)", "t.sum"]
    for item in items:
        statements, problems = parse(f"CREATE TABLE x AS SELECT {item} AS y FROM t WINDOW w AS (ORDER BY k)", "a.sql")
        assert not problems, item
        told = [one for statement in statements for one in validate_statement(statement) if one.severity == "error"]
        assert not told, item
