"""Small tables are computed whole, and written only where that makes a difference.

What a user loses if this fails: values that change on their way through the comparison, changes that are taken for
none, or loads of everything that reads a table in which nothing changed.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.harness import Interpreting, Play
from velo_dagster.engine.refresh import whole
from velo_dagster.engine.session import EmbeddedEngine

VALUES = {
    "numbers": "length(k)::TINYINT AS a, 1.5::FLOAT AS b, CAST('NaN' AS DOUBLE) AS c, CAST('-0.0' AS DOUBLE) AS d, "
    "12345678901234567890123456789012345.678::DECIMAL(38,3) AS e",
    "moments": "timestamp_micros(300000000000000000) AS a, date_from_unix_date(5000000) AS b, "
    "TIMESTAMP_NTZ'0001-01-01 00:00:00' AS c, TIMESTAMP'1900-01-01 00:00:00.000001' AS d",
    "nested": "array(struct(k AS k, NULL::INT AS n)) AS a, struct(array(1.0d, NULL)) AS b, array() AS c",
    "bytes": "X'00ff' AS a, k = 'a' AS b, NULL::STRING AS c, 'ü\0' AS d",
    "broken_text": "CAST(X'ff' AS STRING) AS a",
    "moments_inside": "array(timestamp_micros(300000000000000000)) AS a",
}
MAPS = {"maps": "map('a', k) AS a"}
"""Spark has no order for them: they are written every time."""
NONE = "SELECT k, COUNT(*) AS n FROM r WHERE k = 'nobody' GROUP BY k"


@pytest.mark.parametrize("few", [whole.FEW, 2, 0])
def test_what_did_not_change_is_not_written(
    tmp_path: Path, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch, few: int
):
    """`few` rows are compared outside of Spark: all of them; less than there are in the end; none."""
    monkeypatch.setattr(whole, "FEW", few)
    play = Play(tmp_path, Interpreting(engine))
    selects = {name: f"SELECT k, {values} FROM r GROUP BY k" for name, values in (VALUES | MAPS).items()}
    tables = [f"CREATE TABLE {name} AS {select};" for name, select in (selects | {"none": NONE}).items()]
    sources = "CREATE TABLE r AS SELECT * FROM file://r.csv;"
    reader = "CREATE TABLE reader AS SELECT k, COUNT(*) AS n FROM numbers GROUP BY k;"
    play.write("t.sql", "\n".join([sources, *tables, reader]))
    play.write("r.csv", "k,n\na,1\n,2\n")
    play.loaded()
    play.append("r.csv", "a,2\n")
    reports = play.loaded()
    written = {name for name in selects if reports[name].reason != "nothing in it changed"}
    # Text that is no text is compared by Spark alone.
    assert written == ({"maps"} if few < 2 else {"maps", "broken_text"})
    assert reports["none"].reason == "nothing in it changed"
    assert reports["reader"].outcome.name == "UNCHANGED"
    play.append("r.csv", "b,3\n,4\n")
    reports = play.loaded()
    assert {reports[name].reason for name in selects} == {"small enough to be computed whole"}
    fresh = play.reloaded()
    for name in (*selects, "none", "reader"):
        assert play.table(name).schema == fresh.table(name).schema
        if name in ("broken_text", "moments", "moments_inside"):
            same = "SELECT * FROM delta.`{}` EXCEPT ALL SELECT * FROM delta.`{}`"
            with engine.session() as spark:
                places = [tmp_path / warehouse / name for warehouse in (play.warehouse, fresh.warehouse)]
                assert spark.sql(same.format(*places)).count() == spark.sql(same.format(*places[::-1])).count() == 0
        else:
            assert play.rows(name) == fresh.rows(name), name


def test_a_sign_of_zero_is_a_change(tmp_path: Path, engine: EmbeddedEngine):
    play = Play(tmp_path, Interpreting(engine))
    play.write(
        "t.sql",
        "CREATE TABLE t AS SELECT k, MAX_BY(z, n) AS z FROM file://r.csv GROUP BY k WITH ('number.format' = 'double');",
    )
    play.write("r.csv", "k,n,z\na,1,0.0\n")
    play.loaded()
    play.append("r.csv", "a,2,-0.0\n")
    play.loaded()
    assert [str(value) for value in play.table("t").column("z").to_pylist()] == ["-0.0"]


def test_few_rows_that_are_too_large_to_be_fetched_are_left_to_spark(play: Play):
    play.write("velo.yaml", "engine:\n  spark.driver.maxResultSize: 1m\n")
    chance = random.Random(1)
    lines = ["".join(chance.choices("abcdefghij", k=1000)) for _ in range(3000)]
    play.write("t.txt", "".join(f"{line}\n" for line in lines))
    play.write("t.sql", "CREATE TABLE t AS SELECT DISTINCT value FROM file://t.txt;")
    for count in (3000, 3001):
        done = play.command("load", ".", "--warehouse", "warehouse")
        assert done.returncode == 0, done.stdout + done.stderr
        assert sum(play.rows("t").values()) == count
        play.append("t.txt", "another\n")
