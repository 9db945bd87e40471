"""What Spark refuses is told in our words, at the user's own file, line and column: a stack mends no statement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import answered
from tests.harness import Play
from velo_dagster.engine.casts import casts_that_overflow
from velo_dagster.engine.failures import explained, where_in
from velo_dagster.engine.source_load import told_at_last
from velo_dagster.errors import Span, VeloError
from velo_dagster.sql.parse import parse_select
from velo_dagster.store.table import TidiedUp

ORDERS = "id,amount,name\n1,2.50,ann\n2,3.50,bob\n"


def failure(play: Play, sql: str) -> tuple[str, str, VeloError]:
    """Place and code of what a load of one statement says, and the error."""
    play.write("orders.csv", ORDERS)
    path = play.write("a.sql", sql)
    (report,) = play.load().values()
    error = report.error
    assert isinstance(error, VeloError)
    text = error.render()
    place = text.partition(": error ")[0].removeprefix(f"{path}:")
    assert "== SQL" not in text and "Project [" not in text and "_velo_" not in text and "JVM" not in text
    return place, text.partition(": error ")[2][:4], error


@pytest.mark.parametrize(("sql", "answer"), answered("engine/refused_by_spark.sql"))
def test_the_place_is_the_users_own(play: Play, sql: str, answer: str):
    place, code, said = answer.split(" ", 2)
    found_place, found_code, error = failure(play, sql)
    assert (found_place, found_code) == (place, code), error.render()
    assert said in error.render()


def test_a_query_by_spark_says_where(play: Play):
    play.write("orders.csv", ORDERS)
    play.write("a.sql", "CREATE TABLE orders AS SELECT * FROM file://orders.csv;")
    play.loaded()
    done = play.command("query", "SELECT id,\n  hex(amont) AS h FROM orders", "--warehouse", "warehouse")
    assert done.returncode == 1
    assert "query:2:7: error Q602 There is no column 'amont'." in done.stderr
    assert "Did you mean amount?" in done.stderr


class Context:
    def __init__(self, text: str, fragment: str) -> None:
        self.text, self.piece = text, fragment

    def contextType(self) -> Any:
        from pyspark.errors.exceptions.base import QueryContextType

        return QueryContextType.SQL

    def startIndex(self) -> int:
        return self.text.rindex(self.piece)

    def fragment(self) -> str:
        return self.piece


def spark_error(text: str, fragment: str, condition: str = "X", **parameters: str) -> Exception:
    from pyspark.errors import PySparkException

    class Refused(PySparkException):
        def getCondition(self) -> str:
            return condition

        def getMessageParameters(self) -> dict[str, str]:
            return parameters

        def getQueryContext(self) -> list[Any]:
            return [Context(text, fragment)]

    return Refused("[X] It broke. SQLSTATE: 42\n== SQL (line 1) ==\nSELECT")


@pytest.mark.parametrize(
    ("sql", "spark", "fragment", "expected"),
    [
        # The fragment's last occurrence in Spark's text is the one that failed.
        ("SELECT a FROM t", "SELECT a FROM v AS t", "a", "1:8"),
        ("SELECT `Order ID` + 1 AS x FROM t", "SELECT `Order_ID` + 1 AS x FROM v AS t", "`Order_ID` + 1", "1:8"),
        ("SELECT a FROM t\nUNION SELECT a FROM u", "SELECT a FROM v AS t\nUNION SELECT a FROM w AS u", "a", "2:14"),
        ("SELECT  A +  1 AS x, a FROM t", "SELECT  A +  1 AS x, a FROM v AS t", "A +  1", "1:9"),
        # Rewritten by us: there is no such text, so the statement's own place must do.
        ("SELECT a FROM t", "SELECT listagg(a) FROM v", "listagg(a)", None),
        # Two scopes, and no telling which of them failed.
        ("SELECT a FROM t UNION SELECT a FROM u", "SELECT a, a FROM t UNION SELECT a", "a", None),
    ],
)
def test_spark_places_are_found_in_the_users_text(sql: str, spark: str, fragment: str, expected: str | None):
    query = parse_select(sql, "a.sql")
    found = where_in(query, spark_error(spark, fragment), spark)
    assert (str(found) if found else None) == (f"a.sql:{expected}" if expected else None)


OVERFLOWED = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/w/t. SQLSTATE: 58030
\tat org.apache.spark.X
Caused by: org.apache.spark.SparkArithmeticException: [CAST_OVERFLOW] The value 300L of the type "BIGINT" cannot be \
cast to "TINYINT" due to an overflow. Use `try_cast` to tolerate overflow and return NULL instead. SQLSTATE: 22003
\tat org.apache.spark.Y"""


@pytest.mark.parametrize(
    ("sql", "places"),
    [
        ("SELECT a,\n CAST(b + (1) AS TINYINT) AS c, CAST(a AS INT) AS tinyint FROM t", ["2:2"]),
        ("SELECT a, b::byte FROM t", ["1:14"]),
        ("SELECT a, tinyint(b) AS c FROM t", ["1:11"]),
        ("SELECT CAST(a AS TINYINT) AS x,\n cast(b AS byte) AS y FROM t", ["1:8", "2:2"]),
        ("SELECT a + b AS c, tinyint FROM t", []),
    ],
)
def test_a_cast_that_overflows_is_found(sql: str, places: list[str]):
    """Spark says the type and not the place, and buries the reason under that of the write."""
    found = casts_that_overflow(ValueError(OVERFLOWED), parse_select(sql, "a.sql"))
    assert [str(span) for span in found] == [f"a.sql:{place}" for place in places]
    made = explained(ValueError(OVERFLOWED), parse_select(sql, "a.sql"), Span("a.sql", 9, 9))
    assert str(made.where) == f"a.sql:{places[0] if len(places) == 1 else '9:9'}"
    assert made.what.startswith("[CAST_OVERFLOW] The value 300L") and "SQLSTATE" not in made.what
    listed = [f"It is one of the casts at {', '.join(f'a.sql:{place}' for place in places)}."]
    assert list(made.steps[:-1]) == (listed if len(places) > 1 else [])


MODE = 'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error, and return NULL instead.'


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("[Errno 28] No space left on device", "Make room on the disk"),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "Divide by NULLIF(x, 0), or write try_divide"),
        ("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018", "Write TRY_CAST"),
        (OVERFLOWED, "Compute in a wider type"),
        (
            f"[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] 100 cannot be represented as Decimal(4, 2). {MODE}",
            "Compute in",
        ),
        (
            f"[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] 1E38 cannot be represented as Decimal(38, 1). {MODE}",
            "38 digits",
        ),
        (f"[ARITHMETIC_OVERFLOW] Overflow in sum of decimals. Use 'try_sum'. {MODE}", "38 digits is the most there is"),
        ("java.lang.OutOfMemoryError: Java heap space", "Give Spark more memory"),
        ("[SOMETHING_ELSE] It broke.", "Mend the statement, or the data"),
    ],
)
def test_what_to_do_is_said(said: str, step: str):
    """Whoever reads at night that a load failed should not have to look up how to go on."""
    made = explained(OSError(said), parse_select("SELECT a FROM t", "a.sql"), Span("a.sql", 9, 9))
    assert made.steps[-1].startswith(step)
    assert "ansi" not in made.render(), "sessions have one mode"


def test_hidden_columns_are_never_proposed():
    query = parse_select("SELECT velo FROM t", "a.sql")
    text = "SELECT velo FROM v"
    error = spark_error(
        text,
        "velo",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        objectName="`velo`",
        proposal="`_velo_id`, `vel`, `t`.`other`",
    )
    made = explained(error, query, Span("a.sql", 1, 1), text=text)
    assert made.render().splitlines() == [
        "a.sql:1:8: error E114 There is no column 'velo'.",
        "  1. Did you mean vel?",
        "  2. There are vel, other.",
    ]


def test_the_last_try_tells_what_failed_by_itself():
    """Maintenance that happens to run beside every try must not hide why none of them could succeed."""
    own = ZeroDivisionError("1/0")
    with pytest.raises(ZeroDivisionError), told_at_last():
        raise TidiedUp("t", 2, own) from own
    conflict = RuntimeError("[DELTA_CONCURRENT_APPEND] …")
    with pytest.raises(TidiedUp), told_at_last():
        raise TidiedUp("t", 2, conflict) from conflict
