"""Groups that new rows are added to, through loads: the answer is that of all rows, and other changes are seen, too.

What a user loses if this fails: sums that drift away from the rows they are of.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.harness import Interpreting, Play
from tests.kills import killed_at
from velo_dagster.engine.session import EmbeddedEngine

HEAD = "id,k,n,d,f,day\n"
FIRST = ["1,a,1,1.25,0.1,2025-01-01", "2,a,2,2.50,0.2,2025-01-02", "3,b,,,,2025-01-03", "4,,7,0.01,1e300,2025-01-04"]
MORE = [
    ["5,a,3,0.05,0.3,2024-12-31", "6,b,,,,2025-01-01", "7,c,1,9.99,-0.5,2025-01-01"],
    ["8,b,4,0.10,inf,2025-02-01", "9,,-7,-0.01,-1e300,2025-01-04", "10,c,9223372036854775806,1.00,0.5,2025-01-01"],
]
ADDED = {
    "counts": "SELECT k, COUNT(*) AS n, COUNT(n) AS m, SUM(n) AS s, MIN(day) AS a, MAX(day) AS b FROM r GROUP BY k",
    "decimals": "SELECT k, SUM(d) AS s, AVG(d) AS a, MIN(d) AS low, MAX(d) AS high FROM r GROUP BY k",
    "means": "SELECT AVG(n) AS a, SUM(n) / (COUNT(n) + 1) AS q FROM r GROUP BY upper(k), k",
    "mixed": "SELECT k || '!' AS e, SUM(d) + length(k) AS s, SUM(n) FILTER (WHERE n > 1) AS f FROM r GROUP BY k",
    "days": "SELECT window_start, COUNT(*) AS n FROM r WINDOW TUMBLING(CAST(day AS TIMESTAMP), 1d)",
    "names": "SELECT u.name, SUM(r.n) AS s FROM r LEFT JOIN u ON u.k = r.k GROUP BY u.name",
}
ONE_ROW = {
    "total": "SELECT COUNT(*) AS n, COUNT(n) AS m, SUM(n % 1000) AS s, MIN(day) AS a, MAX(day) AS b, 'x' AS x FROM r",
    "total_decimals": "SELECT SUM(d) AS s, AVG(d) AS a, MIN(d) AS low, MAX(d) / 2 AS high FROM r WHERE id <> 3",
    "total_joined": "SELECT COUNT(u.name) AS n, SUM(r.d) FILTER (WHERE r.n > 1) AS s FROM r LEFT JOIN u ON u.k = r.k",
}
"""One row over all of the input."""
NOT_ADDED = {
    "floats": "SELECT k, MIN(f) AS low, SUM(f) AS s FROM r GROUP BY k",
    "kinds": "SELECT k, COUNT(DISTINCT day) AS n FROM r GROUP BY k",
    "several": "SELECT k, COUNT(*) AS n FROM r GROUP BY k HAVING COUNT(*) > 1",
    "total_floats": "SELECT COUNT(*) AS n, MIN(CAST(f AS DOUBLE)) AS low FROM r",
    "twice": "SELECT r.k, COUNT(*) AS n FROM r JOIN r s ON r.k = s.k GROUP BY r.k",
}
SOURCES = """
CREATE TABLE r AS SELECT * FROM file://r*.csv;
CREATE TABLE u AS SELECT k PRIMARY KEY, name FROM file://u.csv;
"""


@pytest.fixture
def play(tmp_path: Path, engine: EmbeddedEngine) -> Play:
    play = Play(tmp_path, Interpreting(engine), small=0)
    play.write("r-1.csv", HEAD + "\n".join(FIRST) + "\n")
    play.write("u.csv", "k,name\na,Ann\nb,Bob\n")
    return play


def test_new_rows_are_added_and_all_else_is_computed_anew(play: Play):
    made = [f"CREATE TABLE {name} AS {select};" for name, select in (ADDED | ONE_ROW | NOT_ADDED).items()]
    play.write("t.sql", "\n".join([SOURCES, *made]))
    play.loaded()
    for rows in MORE:
        play.append("r-1.csv", "\n".join(rows) + "\n")
        reports = play.loaded()
        # The second time SUM(n) of group c is no longer a BIGINT; there is none in the tables that are added to.
        assert {name: reports[name].method for name in ADDED} == dict.fromkeys(ADDED, "merge")
        assert {name: reports[name].method for name in ONE_ROW} == dict.fromkeys(ONE_ROW, "merge")
        assert {name: reports[name].method for name in NOT_ADDED} == dict.fromkeys(NOT_ADDED, "groups")
        _assert_reloads(play)
    play.write("r-1.csv", HEAD + "\n".join(FIRST[1:] + MORE[0]) + "\n")
    play.append("u.csv", "a,Eve\n")
    reports = play.loaded()
    assert "merge" not in {reports[name].method for name in (*ADDED, *ONE_ROW, *NOT_ADDED)}
    _assert_reloads(play)


def test_a_mean_that_ends_between_two_numbers_is_computed_of_all_rows(play: Play):
    play.write("t.sql", SOURCES + "CREATE TABLE m AS SELECT k, AVG(d) AS a FROM r GROUP BY k;")
    play.loaded()
    methods = []
    # AVG keeps six digits, and 0.01 / 32 is 0.0003125.
    for rows in (["31,z,1,0.01,0,2025-01-01"], [f"{n},z,1,0.00,0,2025-01-01" for n in range(32, 63)]):
        play.append("r-1.csv", "\n".join(rows) + "\n")
        methods.append(play.loaded()["m"].method)
        _assert_reloads(play, "m")
    assert methods == ["merge", "groups"]


TOTALS = (
    "CREATE TABLE t AS SELECT COUNT(*) AS n, SUM(n) AS s, AVG(d) AS a, AVG(n) AS q, MIN(k) AS l, MAX(day) AS h FROM r;"
)
NOBODY = "CREATE TABLE nobody AS SELECT COUNT(*) AS n, SUM(n) AS s FROM r WHERE k = 'nobody';"
DECLARED = """
CREATE TABLE r (id BIGINT, k STRING, n BIGINT, d DECIMAL(9,2), f DOUBLE, day DATE) AS SELECT * FROM file://r*.csv;
"""


def test_one_row_over_nothing_then_over_rows(play: Play):
    """Over nothing it is a row of zeros and NULLs, and what comes is added to that."""
    play.write("t.sql", DECLARED + TOTALS + NOBODY)
    play.write("r-1.csv", HEAD)
    play.loaded()
    assert play.rows("t") == Counter({(None, None, None, 0, None, None): 1})
    methods = []
    for rows in (["1,,,,,"], FIRST, ["11,z,,0.10,,"]):
        play.append("r-1.csv", "\n".join(rows) + "\n")
        reports = play.loaded()
        methods += [reports[name].method for name in ("t", "nobody")]
        _assert_reloads(play, "t", "nobody")
    assert methods == ["merge"] * 6
    assert reports["nobody"].rows_changed == 0, "nothing that reads it is told"
    play.write("r-1.csv", HEAD)
    play.loaded()
    assert play.rows("t") == Counter({(None, None, None, 0, None, None): 1})


def test_a_total_that_no_number_holds_fails_and_that_of_all_rows_counts(play: Play):
    play.write("t.sql", DECLARED + "CREATE TABLE t AS SELECT SUM(n) AS s FROM r;")
    play.write("r-1.csv", HEAD + f"1,a,{2**63 - 1},,,\n")
    play.loaded()
    play.append("r-1.csv", "2,a,1,,,\n")
    assert "OVERFLOW" in str(play.load()["t"].error)
    assert play.rows("t") == Counter({(2**63 - 1,): 1})
    play.append("r-1.csv", "3,a,-5,,,\n")
    assert play.loaded()["t"].method == "merge"
    assert play.rows("t") == Counter({(2**63 - 5,): 1})


@pytest.mark.parametrize("point", ["before-commit", "after-commit"])
def test_a_kill_adds_no_row_twice(play: Play, point: str):
    play.write("t.sql", DECLARED + TOTALS)
    play.loaded()
    play.append("r-1.csv", "\n".join(MORE[0]) + "\n")
    play.loaded("r")
    with killed_at(point):
        play.load("t")
    play.loaded()
    _assert_reloads(play, "t")


def _assert_reloads(play: Play, *names: str) -> None:
    fresh = play.reloaded()
    for name in names or (*ADDED, *ONE_ROW, *NOT_ADDED):
        assert play.rows(name) == fresh.rows(name), name
