"""Float aggregates give the same bits however the rows were cut, and Spark's answers where those are exact.

If one of these fails, a table differs from a full reload in its last digits, or holds a wrong number.
"""

from __future__ import annotations

import math
import random
import statistics
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness import Play
from velo_dagster.engine.floats import exact_calls, in_either_form
from velo_dagster.sql.parse import parse_select
from velo_dagster.sql.spark import Edits, spark_select
from velo_dagster.store.table import Table

ONE = ("sum", "avg", "stddev", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis", "try_sum", "try_avg")
TWO = (
    *("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2"),
    *("regr_sxx", "regr_syy", "regr_sxy", "regr_avgx", "regr_avgy"),
)


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack(">d", value)


def answer(spark, sql: str, *, wide: bool | None = None) -> list[Any]:
    """Rows of a query over views of its inputs' names; near and wide form as they come, or the one asked for."""
    query = parse_select(sql)
    views = {ref.name: ref.name for ref in query.inputs}

    def run(form: bool) -> list[Any]:
        def rendered(floats: Edits) -> str:
            return spark_select(query, views, floats=floats)

        exact = exact_calls(spark, query, rendered, wide=form)
        assert exact is not None, sql
        return spark.sql(rendered(exact)).collect()

    return in_either_form(run) if wide is None else run(wide)


def view(spark, rows: Sequence[tuple[Any, ...]], types: str, name: str = "t") -> None:
    spark.createDataFrame(rows, types).createOrReplaceTempView(name)


def exact(values: Sequence[float]) -> float:
    """The sum as fractions, rounded once. `math.fsum` gives the same, but not where a part of the sum overflows."""
    return float(sum(map(Fraction, values), Fraction(0)))


HARD: Mapping[str, Sequence[float]] = {
    "cancels": [1e16, 1.0, -1e16],
    "tenths": [0.1] * 10,
    "beyond the near form": [1e300, 1.0, -1e300, 1e-300],
    "would overflow on the way": [1.7e308, 1.7e308, -1.7e308],
    "the least there is": [5e-324, 5e-324, -5e-324, 2.5e-310],
    "ties to even": [2.0**53, 1.0, 2.0**-60],
    "ties to even, below": [2.0**53, 1.0, -(2.0**-60)],
    "zeros": [-0.0, -0.0],
}


def test_a_sum_is_the_exact_one_rounded_once(spark):
    view(spark, [(name, value) for name, values in HARD.items() for value in values], "k string, x double")
    sql = "SELECT k, SUM(x) AS s, AVG(x) AS a FROM t GROUP BY k"
    sums = {name: exact(values) for name, values in HARD.items()}
    means = {name: float(sum(map(Fraction, values)) / len(values)) for name, values in HARD.items()}
    for row in answer(spark, sql):
        assert (bits(row.s), bits(row.a)) == (bits(sums[row.k]), bits(means[row.k])), row
    near = "k IN ('cancels', 'tenths', 'ties to even', 'ties to even, below', 'zeros')"
    for row in answer(spark, sql.replace("GROUP", f"WHERE {near} GROUP"), wide=False):
        assert (bits(row.s), bits(row.a)) == (bits(sums[row.k]), bits(means[row.k])), row


def test_a_sum_too_large_for_a_double_is_infinite(spark):
    view(spark, [(1, 1.7e308), (1, 1.7e308), (2, -1.7e308), (2, -1.7e308)], "k int, x double")
    rows = answer(spark, "SELECT k, SUM(x) AS s FROM t GROUP BY k ORDER BY k")
    assert [row.s for row in rows] == [math.inf, -math.inf]


ODD = [
    *((1, 0.0, 1.0), (2, 1.0, 1.0), (2, 1.0, 2.0), (3, math.inf, 1.0), (4, math.nan, 1.0), (4, 1.0, 2.0)),
    *((5, None, 1.0), (6, math.inf, 1.0), (6, -math.inf, 1.0), (7, 1.0, 3.0), (7, 2.0, 3.0), (7, None, 9.0)),
    *((8, 1.0, 1.0), (8, 2.0, 2.5), (8, 4.0, 1.0), (9, math.inf, 1.0), (9, 2.0, 1.0), (9, 5.0, 3.0)),
    *((10, 1.0, None), (10, 3.0, 2.0), (10, 5.0, 1.0), (11, -0.0, 0.0)),
]


def calls(*, ours: bool = True) -> str:
    """Every function, each under its own name; CORR only where Spark can answer it."""
    pairs = [f"{name}(y, x) AS {name}" for name in TWO if ours or name != "corr"]
    return ", ".join([*(f"{name}(x) AS {name}" for name in ONE), *pairs])


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("wide", [False, True])
def test_odd_values_few_rows_and_nulls_are_answered_as_by_spark(spark, wide: bool):
    view(spark, ODD, "k int, x double, y double")
    # CORR of values that are all the same fails in Spark. Where y is always the same, it takes r2 to be 1 for any x.
    theirs = spark.sql(f"SELECT k, {calls(ours=False)} FROM t GROUP BY k ORDER BY k").collect()
    for row, other in zip(
        answer(spark, f"SELECT k, {calls()} FROM t GROUP BY k ORDER BY k", wide=wide), theirs, strict=True
    ):
        for name in other.asDict():
            if name != "regr_r2" or row.k not in (3, 6):
                assert same(row[name], other[name]), (name, row.k, row[name], other[name])


def test_corr_of_values_that_are_all_the_same_is_null(spark):
    view(spark, [(1.0, 2.0), (1.0, 3.0)], "x double, y double")
    assert answer(spark, "SELECT corr(x, y) AS v FROM t")[0].v is None


def test_over_nothing(spark):
    view(spark, [], "k int, x double")
    assert answer(spark, "SELECT SUM(x) AS s, AVG(x) AS a, STDDEV(x) AS d FROM t")[0][:] == (None, None, None)
    assert answer(spark, "SELECT k, SUM(x) AS s FROM t GROUP BY k") == []


def test_both_forms_and_every_cut_give_the_same_bits(spark):
    seed = 5
    rng = random.Random(seed)
    rows = [(n % 3, rng.gauss(1e6, 1.0), rng.uniform(-1, 1) * 10 ** rng.randint(-6, 6)) for n in range(60)]
    sql = f"SELECT k, {calls()} FROM t GROUP BY k ORDER BY k"
    view(spark, rows, "k int, x double, y double")
    theirs = spark.sql(sql).collect()
    first = answer(spark, sql, wide=False)
    for row, other in zip(first, theirs, strict=True):
        assert all(map(same, row, other)), (row, other)
    for wide in (False, True):
        rng.shuffle(rows)
        spark.createDataFrame(rows, "k int, x double, y double").repartition(3).createOrReplaceTempView("t")
        for row, other in zip(answer(spark, sql, wide=wide), first, strict=True):
            assert [bits(value) for value in row] == [bits(value) for value in other], (seed, wide)


def test_a_large_mean_does_not_hide_a_small_variance(spark):
    values = [1e9 + n * 1e-3 for n in range(200)]
    view(spark, [(value, -2 * value) for value in values], "x double, y double")
    row = answer(spark, "SELECT var_pop(x) AS v, stddev_samp(x) AS d, corr(x, y) AS c, regr_slope(y, x) AS s FROM t")[0]
    fractions = [Fraction(value) for value in values]
    assert row.v == float(statistics.pvariance(fractions))
    assert row.d == math.sqrt(float(statistics.variance(fractions)))
    assert (row.c, row.s) == (-1.0, -2.0)


# Of 0.1, 0.2 and 0.2. The first two are 0.30000000000000004 as doubles, which is what is between them rounded once.
SHAPES = {
    "SELECT SUM(DISTINCT x) AS v FROM t": exact([0.1, 0.2]),
    "SELECT AVG(DISTINCT x) AS v FROM t": float((Fraction(0.1) + Fraction(0.2)) / 2),
    "SELECT SUM(x) FILTER (WHERE k = 1) AS v FROM t": exact([0.1, 0.2]),
    "SELECT SUM(ALL x) + 1 AS v FROM t": exact([0.1, 0.2, 0.2]) + 1,
    "SELECT v FROM (SELECT SUM(x) AS v FROM t) q": exact([0.1, 0.2, 0.2]),
    "WITH s AS (SELECT k, SUM(x) AS v FROM t GROUP BY k) SELECT SUM(v) AS v FROM s": exact([exact([0.1, 0.2]), 0.2]),
    "SELECT SUM(x) AS v FROM t GROUP BY k HAVING SUM(x) > 0.25 ORDER BY SUM(x) DESC": exact([0.1, 0.2]),
    "SELECT (SELECT SUM(x) FROM t u WHERE u.k = t.k) AS v FROM t WHERE k = 2": 0.2,
    "SELECT SUM(SUM(x)) OVER () AS v FROM t GROUP BY k": exact([exact([0.1, 0.2]), 0.2]),
    "SELECT SUM(x) OVER (PARTITION BY k ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS v FROM t"
    " WHERE k = 1 ORDER BY v DESC": exact([0.1, 0.2]),
    "SELECT AVG(x) OVER w AS v FROM t WINDOW w AS (PARTITION BY k) ORDER BY v DESC": 0.2,
    "SELECT k, AVG(i) AS v FROM t WHERE k = 1 GROUP BY k": 9007199254740992.0,
    "SELECT SUM(f) AS v FROM t": 0.0,
    "SELECT MAX(v) AS v FROM (SELECT SUM(x) FROM t UNION ALL SELECT AVG(x) FROM t) AS q(v)": exact([0.1, 0.2, 0.2]),
    "SELECT v FROM (SELECT k, x FROM t) PIVOT (SUM(x) FOR k IN (1 AS v, 2 AS w))": exact([0.1, 0.2]),
    "FROM t |> AGGREGATE SUM(x) AS v": exact([0.1, 0.2, 0.2]),
    "SELECT SUM(CASE WHEN x > ANY (SELECT x FROM t) THEN x END) AS v FROM t": 0.4,
    "SELECT STDDEV(i) FILTER (WHERE k = 2 OR i IS NULL) OVER (PARTITION BY k) IS NULL AS v FROM t WHERE k = 2": 1.0,
}


@pytest.mark.parametrize("sql", SHAPES)
def test_wherever_the_call_stands(spark, sql: str):
    rows = [(1, 0.1, 2**53, 0.1), (1, 0.2, 2**53 + 2, 0.1), (2, 0.2, 1, -0.2)]
    view(spark, rows, "k int, x double, i bigint, f float")
    assert bits(float(answer(spark, sql)[0].v)) == bits(SHAPES[sql])


STATEMENTS = """
CREATE TABLE readings AS SELECT * FROM file://d/*.csv WITH ('number.format' = 'double');
CREATE TABLE totals AS
SELECT k, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a, STDDEV(y) AS d, CORR(x, y) AS c, SUM(DISTINCT x) AS u,
  (SELECT VAR_POP(y) FROM readings) AS v
FROM readings GROUP BY k HAVING SUM(x) IS NOT NULL;
"""


def table_bits(play: Play, name: str) -> list[tuple[Any, ...]]:
    rows = play.table(name).to_pylist()
    return sorted(tuple(bits(v) if isinstance(v, float) else v for v in row.values()) for row in rows)


def test_however_the_rows_were_cut_into_files_and_loads(play: Play):
    """Some numbers are beyond the near form. The sums are those of exact arithmetic."""
    seed = 300
    rng = random.Random(seed)
    rows = [(rng.randint(1, 3), rng.gauss(0, 1) * 10 ** rng.randint(-seed, seed), rng.gauss(5, 2)) for _ in range(90)]
    lines = [f"{k},{x!r},{y!r}\n" for k, x, y in rows]
    found = []
    for cut in range(2):
        one = Play(play.folder / f"cut{cut}", play.engine)
        one.write("t.sql", STATEMENTS)
        rng.shuffle(lines)
        ends = sorted(rng.sample(range(1, 90), cut))
        for number, (start, end) in enumerate(zip([0, *ends], [*ends, 90], strict=True)):
            one.write(f"d/{rng.choice('abc')}{number}.csv", "k,x,y\n" + "".join(lines[start:end]))
            one.loaded()
        found.append(table_bits(one, "totals"))
        for row in one.table("totals").to_pylist():
            values = [x for k, x, _ in rows if k == row["k"]]
            assert row["s"] == exact(values) and row["n"] == len(values), seed
            assert row["a"] == float(sum(map(Fraction, values)) / len(values)), seed
    assert found[0] == found[1], seed


def test_no_row_is_passed_over_for_how_a_file_sums_itself_up(play: Play):
    """Spark asks a Parquet file's footer and dictionary, which know neither that -0.0 is 0.0 nor that NaN is the
    greatest number: what it finds would depend on which rows happened to share a file."""
    pq.write_table(pa.table({"x": [1.0, float("nan")]}), play.folder / "a.parquet")
    pq.write_table(pa.table({"x": [-0.0] * 1000}), play.folder / "b.parquet")
    play.write(
        "t.sql",
        "CREATE TABLE numbers AS SELECT x FROM file://*.parquet;\n"
        "CREATE TABLE far AS SELECT x FROM file://*.parquet WHERE x > 5;\n"
        "CREATE TABLE zeros AS SELECT x FROM numbers WHERE x = 0;\n"
        "CREATE TABLE counted AS SELECT COUNT(*) FILTER (WHERE x = 0) AS zeros FROM numbers WHERE x > 5 OR x = 0;",
    )
    play.loaded()
    assert sum(play.rows("far").values()) == 1
    assert sum(play.rows("zeros").values()) == 1000
    assert play.rows("counted") == {(1000,): 1}


@pytest.mark.parametrize("way", ["few rows", "by places", "by a MERGE"])
def test_a_key_that_changes_the_sign_of_its_zero(play: Play, monkeypatch: pytest.MonkeyPatch, way: str):
    """-0.0 and 0.0 are one key; the row that came last tells which of them is shown."""
    if way == "by places":
        play.small = 0
    if way == "by a MERGE":
        monkeypatch.setattr(Table, "takes_few_rows", lambda _: False)
    play.write(
        "t.sql", "CREATE TABLE t AS SELECT x PRIMARY KEY, v FROM file://t.csv WITH ('number.format' = 'double');"
    )
    play.write("t.csv", "x,v\n-0.0,1\n1.5,2\n")
    play.loaded()
    play.append("t.csv", "0.0,3\n")
    assert play.loaded()["t"].method == "merge"
    found = {(struct.pack("<d", row["x"]), row["v"]) for row in play.table("t").to_pylist()}
    assert found == {(struct.pack("<d", 0.0), 3), (struct.pack("<d", 1.5), 2)}
