"""A SELECT that Spark accepts reaches Spark with its meaning unchanged.

If this fails, a user's query is refused for no reason or, worse, answers another question.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from velo_dagster.engine.nested import nested
from velo_dagster.sql.parse import _pieces, parse_select
from velo_dagster.sql.problems import StatementError
from velo_dagster.sql.spark import spark_select

FOLDER = Path(__file__).parent.parent / "fixtures" / "spark_sql"
TABLES = {
    "t": """
        SELECT * FROM VALUES
        (1, 1, 10L, 1.5D, 12.50BD, 'abc', date'2024-01-05', timestamp'2024-01-05 10:00:00', true, array(1, 2, 3),
         map('k', 1), named_struct('x', 1, 'y', 'q'), named_struct('inner', named_struct('z', 1))),
        (2, 2, 20L, 2.5D, 7.25BD, 'bcd', date'2024-02-05', timestamp'2024-02-05 10:30:00', false, array(2, 4),
         map('l', 2), named_struct('x', 2, 'y', 'r'), named_struct('inner', named_struct('z', 2))),
        (3, CAST(NULL AS INT), 30L, NULL, NULL, NULL, NULL, timestamp'2024-01-05 10:02:00', NULL, NULL, NULL, NULL,
         NULL)
        AS x(id, a, b, d, dec, s, dt, ts, flag, arr, m, st, nested)""",
    "u": "SELECT * FROM VALUES (1, 5, 'x'), (2, 6, 'y'), (4, NULL, 'z') AS x(id, k, name)",
    "w": "SELECT * FROM VALUES (1, 5, 'x'), (3, 7, 'y') AS x(id, k, name)",
    "orders": """
        SELECT * FROM VALUES (1, 7, '1-URGENT', 120.5BD, date'1995-01-10'), (2, 8, '2-HIGH', 80.25BD, date'1993-08-01')
        AS x(o_orderkey, o_custkey, o_orderpriority, o_totalprice, o_orderdate)""",
    "lineitem": """
        SELECT * FROM VALUES
        (1, 7, 3, 10.0BD, 100.00BD, 0.06BD, 0.02BD, 'A', 'F', date'1995-04-01', date'1995-03-01', date'1995-04-05', ''),
        (2, 8, 3, 20.0BD, 50.00BD, 0.05BD, 0.01BD, 'N', 'O', date'1994-05-01', date'1994-06-01', date'1994-05-05', 'no')
        AS x(l_orderkey, l_suppkey, l_partkey, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag,
             l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_comment)""",
}


def corpus() -> list[str]:
    return [piece.text for file in sorted(FOLDER.glob("*.sql")) for piece in _pieces(file.read_text())]


@pytest.fixture
def tables(spark):
    """Every table under its own name, for the text as written, and as a view of another name, for the rendered text."""
    for name, query in TABLES.items():
        spark.sql(query).createOrReplaceTempView(name)
        spark.sql(query).createOrReplaceTempView(f"view_of_{name}")
    yield spark
    for name in TABLES:
        spark.catalog.dropTempView(name)
        spark.catalog.dropTempView(f"view_of_{name}")


def rendered(spark, sql: str) -> str:
    """The text that a load gives to Spark, which knows the types of its inputs' columns."""
    query = parse_select(sql)
    views = {ref.name: f"view_of_{ref.name.lower()}" for ref in query.inputs}
    return spark_select(query, views, nested=nested(spark, {name: spark.table(view) for name, view in views.items()}))


def test_the_corpus_is_large():
    assert len(corpus()) > 300


def test_every_query_keeps_its_meaning(tables):
    wrong = []
    for sql in corpus():
        expected = tables.sql(sql)
        try:
            found = tables.sql(rendered(tables, sql))
        except (PySparkException, StatementError) as error:
            wrong.append(f"{sql}\n   {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if found.schema != expected.schema or not _same(found, expected):
            wrong.append(f"{sql}\n   became {rendered(tables, sql)}")
    assert not wrong, "\n".join(wrong)


def _same(found, expected) -> bool:
    """Equal plans, else equal rows: Spark numbers some generated columns differently in equal plans."""
    plans = [frame._jdf.queryExecution().optimizedPlan().canonicalized().toString() for frame in (found, expected)]
    return plans[0] == plans[1] or found.collect() == expected.collect()
