"""What others do at the worst moment: load the same table, replace a file that is being read.

If one of these fails, a user who asked for a full refresh does not get it, or reads rows that no file ever held.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness import Play
from tests.kills import Killed
from velo_dagster.engine import load, source_load, source_write
from velo_dagster.engine.report import Outcome
from velo_dagster.sources.errors import SourceChanged
from velo_dagster.store.table import Overtaken, Warehouse

Meanwhile = Callable[..., None]
PLAIN = "CREATE TABLE t AS SELECT * FROM file://data/*.csv;"
KEYED = "CREATE TABLE t AS SELECT id PRIMARY KEY, v FROM file://data/*.csv;"
LONG_AGO = (1_600_000_000, 1_600_000_000)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Do something when a load gets to a point: once, or every time but for what that itself sets off."""

    def arrange(point: str, action: Callable[[], object], *, every_time: bool = False) -> None:
        idle = True

        def reached(name: str) -> None:
            nonlocal idle
            if name == point and idle:
                idle = False
                action()
                idle = every_time
            before(name)

        before = source_load.crash_point
        for module in (load, source_load, source_write):
            monkeypatch.setattr(module, "crash_point", reached)

    return arrange


def loaded(play: Play, statement: str) -> None:
    play.write("t.sql", statement)
    os.utime(play.write("data/1.csv", "id,v\n1,1\n2,2\n"), LONG_AGO)
    play.loaded()


def changed_unseen(play: Play) -> None:
    """Other rows in a file of the same size and time: only a full refresh, or file.verify = full, finds them."""
    os.utime(play.write("data/1.csv", "id,v\n1,7\n2,8\n"), LONG_AGO)


@pytest.mark.parametrize("statement", [PLAIN, KEYED], ids=["plain", "keyed"])
def test_full_refresh_is_made_though_another_run_was_first(play: Play, meanwhile: Meanwhile, statement: str):
    loaded(play, statement)
    changed_unseen(play)

    def another_run() -> None:
        play.write("data/2.csv", "id,v\n3,3\n")
        play.loaded()

    meanwhile("before-commit", another_run)
    report = play.loaded(full_refresh=True)["t"]
    assert report.reason == "full refresh"
    assert any("Starting the full refresh again." in note for note in report.notes), report.notes
    assert play.rows("t") == play.reloaded().rows("t")


def test_full_refresh_that_never_gets_its_turn_says_so(
    play: Play, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
):
    loaded(play, PLAIN)
    monkeypatch.setattr(source_load, "ATTEMPTS", 2)

    def another_run() -> None:
        play.append("data/2.csv", "id,v\n3,3\n" if not (play.folder / "data/2.csv").exists() else "4,4\n")
        play.loaded()

    meanwhile("before-commit", another_run, every_time=True)
    report = play.load(full_refresh=True)["t"]
    assert report.outcome is Outcome.BLOCKED and isinstance(report.error, Overtaken)
    assert "when no other run loads this table" in str(report.error)


@pytest.mark.parametrize("statement", [PLAIN, KEYED], ids=["plain", "keyed"])
def test_first_load_does_not_undo_that_of_another_run(play: Play, meanwhile: Meanwhile, statement: str):
    """The other run delivered a file that has gone since: its rows are meant to stay."""
    play.write("t.sql", statement)
    play.write("data/1.csv", "id,v\n1,1\n")

    def another_run() -> None:
        brief = play.write("data/2.csv", "id,v\n2,2\n")
        play.loaded()
        brief.unlink()

    meanwhile("after-end", another_run)
    play.loaded()
    assert sorted(play.table("t").column("id").to_pylist()) == [1, 2]


def parquet(play: Play, values: list[int]) -> Path:
    path = play.folder / "data/a.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": list(range(len(values))), "v": values}), path)
    return path


@pytest.mark.parametrize(("statement", "point"), [(PLAIN, "commit"), (KEYED, "landing-commit")], ids=["plain", "keyed"])
@pytest.mark.parametrize("killed", [False, True], ids=["runs-on", "killed"])
def test_parquet_rewritten_while_it_is_read(play: Play, meanwhile: Meanwhile, statement: str, point: str, killed: bool):
    """Spark reads the new rows under the old position, and commits them; the next look at the file puts that right."""
    play.write("t.sql", statement.replace("csv", "parquet"))
    os.utime(parquet(play, [1, 2, 3]), LONG_AGO)
    meanwhile(f"before-{point}", lambda: parquet(play, [4, 5, 6, 7]))
    if killed:

        def kill() -> None:
            raise Killed

        meanwhile(f"after-{point}", kill)
        with pytest.raises(Killed):
            play.load()
        name = "t" if point == "commit" else "t__landing_0"
        assert Warehouse(str(play.folder / "warehouse")).table(name).last_load() == 1
    play.loaded()
    assert sorted(play.table("t").column("v").to_pylist()) == [4, 5, 6, 7]
    assert play.rows("t") == play.reloaded().rows("t")


@pytest.mark.parametrize(("statement", "point"), [(PLAIN, "commit"), (KEYED, "landing-commit")], ids=["plain", "keyed"])
def test_parquet_rewritten_each_time_it_is_read(
    play: Play, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch, statement: str, point: str
):
    """The error tells the truth about the table: only behind a landing it is as it was."""
    play.write("t.sql", statement.replace("csv", "parquet"))
    os.utime(parquet(play, [1, 2, 3]), LONG_AGO)
    play.loaded()
    parquet(play, [1, 2, 3, 4])
    monkeypatch.setattr(source_load, "ATTEMPTS", 2)
    length = iter(range(5, 9))
    meanwhile(f"before-{point}", lambda: parquet(play, [7] * next(length)), every_time=True)
    error = play.load()["t"].error
    assert isinstance(error, SourceChanged)
    held = sorted(play.table("t").column("v").to_pylist())
    if statement == KEYED:
        assert held == [1, 2, 3] and "the table is as it was" in str(error)
    else:
        assert held == [7] * 6 and "the table may hold rows of the file as it became" in str(error)
    monkeypatch.undo()
    play.loaded()
    assert play.rows("t") == play.reloaded().rows("t")
