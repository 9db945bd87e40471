"""A column that a file has itself stands before the system column of its name, in increments as in one full load."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness import Play
from velo_dagster.errors import VeloError


def check(play: Play, *tables: str) -> None:
    fresh = play.reloaded()
    for name in tables:
        assert play.rows(name) == fresh.rows(name), name
        assert play.table(name).column_names == fresh.table(name).column_names, name


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", "_file,_LINE,v\nx,7,1\n"), ("a.jsonl", '{"_file": "x", "_LINE": 7, "v": 1}\n')]
)
def test_a_file_has_its_own_columns_of_these_names(play: Play, name: str, text: str):
    play.write(
        "t.sql",
        f"""
        CREATE TABLE star AS SELECT * FROM file://{name};
        CREATE TABLE named AS SELECT v, _line, upper(_file) AS f FROM file://{name};
        CREATE TABLE both_ways AS SELECT *, _line + 1 AS next FROM file://{name};
        CREATE TABLE keyed AS SELECT *, _line + 1 AS next FROM file://{name} WITH ('primary.key' = 'v');
        CREATE TABLE grouped AS SELECT _file, max(_line) AS m FROM file://{name} GROUP BY _file;
        CREATE TABLE sorted AS SELECT *, row_number() OVER (ORDER BY _line) AS n FROM file://{name};
        CREATE TABLE behind AS SELECT *, upper(_file) AS f FROM star;
        """,
    )
    play.write(name, text)
    play.loaded()
    assert play.table("star").to_pylist() == [{"_file": "x", "_LINE": 7, "v": 1}]
    assert play.table("named").to_pylist() == [{"v": 1, "_line": 7, "f": "X"}]
    assert play.table("both_ways").to_pylist() == [{"_file": "x", "_LINE": 7, "v": 1, "next": 8}]
    assert play.table("keyed").to_pylist() == [{"_file": "x", "_LINE": 7, "v": 1, "next": 8}]
    assert play.table("grouped").to_pylist() == [{"_file": "x", "m": 7}]
    assert play.table("sorted").to_pylist() == [{"_file": "x", "_LINE": 7, "v": 1, "n": 1}]
    assert play.table("behind").to_pylist() == [{"_file": "x", "_LINE": 7, "v": 1, "f": "X"}]


def test_a_parquet_file_has_its_own_columns_of_these_names(play: Play):
    play.write("t.sql", "CREATE TABLE t AS SELECT *, _line + 1 AS next FROM file://a.parquet;")
    pq.write_table(pa.table({"_file": ["x"], "_line": [7]}), play.folder / "a.parquet")
    play.loaded()
    assert play.table("t").to_pylist() == [{"_file": "x", "_line": 7, "next": 8}]


def test_a_column_that_comes_later_stands_before_the_system_column_in_all_rows(play: Play):
    tables = ("direct", "grouped", "places")
    play.write(
        "t.sql",
        """
        CREATE TABLE direct AS SELECT *, concat(_line, '') AS at FROM file://data/*.csv;
        CREATE TABLE grouped AS SELECT v, max(_line) AS m FROM file://data/*.csv GROUP BY v;
        CREATE TABLE places AS SELECT v, _file FROM file://data/*.csv;
        """,
    )
    play.write("data/a.csv", "v\n1\n")
    play.loaded()
    assert play.rows("grouped") == Counter({(2, 1): 1})
    play.write("data/b.csv", "v,_line\n5,70\n")
    reports = play.loaded()
    assert "the source has a column _line of its own now" in reports["direct"].reason
    assert "_line" not in reports["places"].reason
    assert play.table("direct").sort_by("v").to_pylist() == [
        {"v": 1, "_line": None, "at": None},
        {"v": 5, "_line": 70, "at": "70"},
    ]
    assert play.rows("grouped") == Counter({(None, 1): 1, (70, 5): 1})
    check(play, *tables)
    play.write("data/c.csv", "v,_line\n6,80\n")
    play.loaded()
    check(play, *tables)


def test_each_file_of_a_join_has_such_a_column_or_not(play: Play):
    play.write(
        "t.sql", "CREATE TABLE t AS SELECT *, b._line AS there FROM file://a.csv a JOIN file://b.csv b ON a.v = b.w;"
    )
    play.write("a.csv", "v,_line\n1,70\n")
    play.write("b.csv", "w\n1\n")
    play.loaded()
    assert play.table("t").to_pylist() == [{"v": 1, "_line": 70, "w": 1, "there": 2}]


def test_names_of_system_columns_that_files_do_not_have_are_free(play: Play):
    play.write(
        "t.sql",
        """
        CREATE TABLE named AS SELECT v, _offset FROM file://a.csv;
        CREATE TABLE alias AS SELECT q._key FROM (SELECT v AS _key FROM file://a.csv) q;
        CREATE TABLE shown AS SELECT *, q._line AS n FROM (SELECT v AS _line, * FROM file://a.csv) q;
        CREATE TABLE grouped AS SELECT v % 2 AS _line, count(*) AS n FROM file://a.csv GROUP BY _line;
        """,
    )
    play.write("a.csv", "v,_offset\n1,8\n3,9\n")
    play.loaded()
    assert play.rows("named") == Counter({(8, 1): 1, (9, 3): 1})
    assert play.rows("alias") == Counter({(1,): 1, (3,): 1})
    assert play.table("shown").sort_by("v").to_pylist()[0] == {"_line": 1, "v": 1, "_offset": 8, "n": 1}
    assert play.table("grouped").to_pylist() == [{"_line": 1, "n": 2}]


def test_a_name_that_nothing_has_is_an_unknown_column(play: Play):
    play.write("t.sql", "CREATE TABLE t AS SELECT v, _offset FROM file://a.csv;")
    play.write("a.csv", "v\n1\n")
    report = play.load()["t"]
    assert isinstance(report.error, VeloError)
    assert report.error.render().endswith("error E114 There is no column '_offset'.\n  1. There are v.")
