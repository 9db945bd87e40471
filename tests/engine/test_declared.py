"""Declared types over computed values: each value is kept exactly, or the load fails and names it."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.harness import Play
from velo_dagster.engine.columns import Declared
from velo_dagster.engine.errors import DuplicateKey, InexactCast
from velo_dagster.errors import Span
from velo_dagster.sql.statements import Column
from velo_dagster.store.table import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = [
    ("DATE", "trim(v)", "2025-06-01", date(2025, 6, 1)),
    ("TIMESTAMP", "trim(v)", "2025-06-01 10:11:12.123456", datetime(2025, 6, 1, 10, 11, 12, 123456)),
    ("BOOLEAN", "trim(v)", "true", True),
    (
        "DECIMAL(38,0)",
        "concat(v, '')",
        "12345678901234567890123456789012345678",
        12345678901234567890123456789012345678,
    ),
    ("DECIMAL(38,20)", "concat(v, '')", "0.12345678901234567890", Decimal("0.12345678901234567890")),
    ("DECIMAL(38,0)", "concat(v, 'e37')", "1", 10**37),
    ("DECIMAL(38,20)", "concat(v, 'e-20')", "1", Decimal("1e-20")),
    ("INT", "concat('00', v)", "7", 7),
    ("DOUBLE", "concat(v, '')", "0.1", 0.1),
    ("STRING", "v", "7", "7"),
    ("DATE", "CAST(v AS TIMESTAMP)", "2025-06-01", date(2025, 6, 1)),
    ("INT", "CAST(v AS DOUBLE)", "7", 7),
    ("DECIMAL", "v + 0L", "9223372036854775807", 9223372036854775807),
    ("DECIMAL", "v", "9223372036854775807", 9223372036854775807),
    ("DECIMAL", "CAST(v AS TINYINT)", "-128", -128),
    ("BIGINT", "CAST(v AS DECIMAL(38,0))", "9223372036854775807", 9223372036854775807),
    ("MAP<STRING, BIGINT>", "map('a', CAST(v AS INT))", "7", [("a", 7)]),
    ("ARRAY<MAP<STRING, BIGINT>>", "array(map('a', CAST(v AS INT)), NULL)", "7", [[("a", 7)], None]),
]
REFUSED = [
    ("DATE", "trim(v)", "2025-06-01 10:00:00"),
    ("TIMESTAMP", "trim(v)", "2025-06-01 10:11:12.1234567"),
    ("DECIMAL(38,0)", "concat(v, '')", "1.5"),
    ("DECIMAL(38,18)", "concat(v, '')", "0.1234567890123456789"),
    ("INT", "concat(v, '')", "7.25"),
    ("INT", "concat(v, '')", "7.00"),
    ("BIGINT", "concat(v, 'e2')", "7"),
    ("BIGINT", "concat(v, 'e-19')", "4"),
    ("TIMESTAMP", "trim(v)", "12:34:56"),
    ("DOUBLE", "concat(v, '')", "1e400"),
    ("DECIMAL", "concat(v, '')", "12345678901234567890123"),
    ("BIGINT", "CAST(v AS DOUBLE)", "9223372036854775808"),
    ("MAP<STRING, INT>", "map('a', v)", "7.5"),
    ("ARRAY<INT>", "concat(v, '')", "7"),
    ("INT", "concat(v, '')", "3000000000"),
    ("INT", "concat(v, 'e-1')", "7"),
    ("DATE", "CAST(v AS TIMESTAMP)", "2025-06-01 10:00:00"),
    ("INT", "CAST(v AS DOUBLE)", "7.5"),
]


def declare(play: Play, type_: str, expression: str, value: str) -> None:
    play.write("t.sql", f"CREATE TABLE t (d {type_}) AS SELECT {expression} AS d FROM file://d.csv")
    play.write("d.csv", f"v\n{value}\n")


@pytest.mark.parametrize(("type_", "expression", "value", "kept"), KEPT)
def test_kept(play: Play, type_: str, expression: str, value: str, kept: object):
    declare(play, type_, expression, value)
    play.loaded()
    (held,) = play.table("t").column("d").to_pylist()
    if isinstance(held, datetime):
        held = held.replace(tzinfo=None)
    assert held == kept


@pytest.mark.parametrize(("type_", "expression", "value"), REFUSED)
def test_refused(play: Play, type_: str, expression: str, value: str):
    declare(play, type_, expression, value)
    error = play.load()["t"].error
    assert error is not None
    assert isinstance(error, InexactCast)
    assert str(error.where).endswith("t.sql:1:17")
    assert value.split()[0][:7] in str(error) or "7.5" in str(error) or "9.22" in str(error), error
    assert Warehouse(str(play.folder / "warehouse")).table("t").record() is None


TEXTS = [
    *("0", "7", "-7", "+7", "007", " 7\t", "7.", ".5", "7.00", "7.25", "1.004", "0x10", "7f", "1_000", "1,5", "-", "٣"),
    *("127", "128", "32768", "3000000000", "9223372036854775807", "9223372036854775808", "12345678901234567890123"),
    *(
        "1e3",
        "1e-19",
        "4e-19",
        "1.0000000000000000001e0",
        "1e25",
        "1e37",
        "1e38",
        "1e-20",
        "1e-21",
        "0e999",
        "1e999999999",
    ),
    *("1e39", "1e400", "3.4028235677973366e38", "0.1", "NaN", "inf", "-Infinity", "16777217", "1" * 39),
    *("true", "False", "t", "yes", "1", "2025", "2025-01", "2025-1-31", "2025-01-31", "2025-02-30", "12345-01-01"),
    *("2025-01-31T10:00", "2025-01-31 10:00:00.123456", "2025-01-31 00:00:00", "2025-01-31 00:00:00.0000001"),
    *(
        "2025-01-31 10:00:00Z",
        "2025-01-31 10:00:00+02:00",
        "2025-01-31 10:00:00 Europe/Berlin",
        "2025-01-31T10:00:00-0530",
    ),
    *("12:34:56", "T12:34", "now", "today", "epoch", "9999-12-31T23:59:59-01:00", "text"),
]
TYPES = ["TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(10,2)", "DECIMAL(38,0)", "DECIMAL(38,20)", "FLOAT", "DOUBLE"]
TYPES += ["BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY"]


@pytest.mark.parametrize("type_", TYPES)
def test_a_computed_text_is_read_as_a_column_of_a_file(play: Play, spark: SparkSession, type_: str):
    """Taken if a plain column of that type takes it, and then the same value; else refused."""
    play.write("d.csv", "n,v\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS)))
    sql = f"CREATE TABLE t (v {type_}) AS SELECT n, v FROM file://d.csv WITH ('failure_strategy' = 'LogAndContinue')"
    play.write("t.sql", sql)
    play.loaded()
    plain = {row["n"]: row["v"] for row in play.table("t").to_pylist()}
    texts = spark.createDataFrame([*enumerate(TEXTS), (-1, None)], "n INT, v STRING")
    held = Declared(texts, "v", Column("v", type_, False, Span("t.sql", 1, 1)))
    computed = texts.select("n", held.value.alias("v"), held.fits.alias("fits")).toArrow().to_pylist()
    assert {-1: repr(None)} | {n: repr(value) for n, value in plain.items()} == {
        row["n"]: repr(row["v"]) for row in computed if row["fits"]
    }


def test_a_null_is_kept(play: Play):
    play.write("t.sql", "CREATE TABLE t (d DATE, n INT) AS SELECT trim(v) AS d, concat(w, '') AS n FROM file://d.csv")
    play.write("d.csv", "k,v,w\n1,,\n2,2025-01-01,5\n")
    play.loaded()
    assert play.table("t").to_pylist() == [{"d": None, "n": None}, {"d": date(2025, 1, 1), "n": 5}]


def test_a_key_that_a_join_doubles_fails_the_load_and_names_it(play: Play):
    play.write(
        "t.sql", "CREATE TABLE t AS SELECT a.k PRIMARY KEY, b.v FROM file://a.csv a JOIN file://b.csv b ON a.k = b.k"
    )
    play.write("a.csv", "k\n1\n2\n")
    play.write("b.csv", "k,v\n1,1\n2,1\n2,2\n")
    error = play.load()["t"].error
    assert isinstance(error, DuplicateKey)
    assert "k=2 has 2 rows" in str(error)
    play.write("b.csv", "k,v\n1,1\n2,2\n")
    play.loaded()
    assert sum(play.rows("t").values()) == 2


@pytest.mark.parametrize(
    ("type_", "expression", "texts"),
    [
        ("INT", "k + 0", ["1.5", "1"]),
        ("BIGINT", "round(k, 1)", ["1.5", "1.0"]),
        ("DECIMAL(10,2)", "concat(k, ' ')", ["1.004", "01.00"]),
        ("DATE", "concat(k, ' ')", ["2025-01-31T10:00:00", "2025-01-31 "]),
        ("INT", "concat(k, '')", ["1.0", "1"]),
        ("INT", "k + 0", ["3000000000", "1"]),
    ],
)
def test_a_key_that_its_type_does_not_hold_is_refused(play: Play, type_: str, expression: str, texts: list[str]):
    """Also where another row would have come to share it, and to win."""
    play.write("t.sql", f"CREATE TABLE t (k {type_}) AS SELECT {expression} AS k PRIMARY KEY, x FROM file://a.csv")
    play.write("a.csv", "k,x\n" + "".join(f'"{text}",{n}\n' for n, text in enumerate(texts)))
    error = play.load()["t"].error
    assert isinstance(error, InexactCast) and f"Column k {type_} does not hold the value" in str(error)


def test_keys_are_compared_as_they_are_stored(play: Play):
    sql = "CREATE TABLE t (k DECIMAL, x BIGINT) AS SELECT regexp_replace(k, '[$]', '') AS k PRIMARY KEY, x FROM file://a.csv"
    play.grown(sql, {"a.csv": "k,x\n$1.0,1\n$1.00,2\n"})
    assert play.rows("t") == Counter({(1, 2): 1})
    play.append("a.csv", "$1,3\n$2,4\n")
    assert play.loaded()["t"].method == "merge"
    assert play.rows("t") == play.reloaded().rows("t") == Counter({(1, 3): 1, (2, 4): 1})


def test_a_key_that_did_not_fit_and_went_again_stops_no_load(play: Play):
    """The changes since the last good load still show it; what counts is what there is."""
    play.write(
        "t.sql",
        "CREATE TABLE a AS SELECT id PRIMARY KEY, k, x FROM file://a.csv;"
        "CREATE TABLE t (k INT) AS SELECT k + 0 AS k PRIMARY KEY, x FROM a;",
    )
    play.write("a.csv", "id,k,x\n1,1.0,1\n2,2.0,2\n")
    play.loaded()
    play.append("a.csv", "3,1.5,3\n")
    assert isinstance(play.load()["t"].error, InexactCast)
    play.append("a.csv", "3,3.0,4\n")
    report = play.loaded()["t"]
    assert report.reason == "a key that came or went does not fit its declared type"
    assert play.rows("t") == play.reloaded().rows("t") == Counter({(1, 1): 1, (2, 2): 1, (3, 4): 1})
