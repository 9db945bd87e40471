"""A run that is killed loses nothing and doubles nothing, wherever it was.

Every crash point is visited by a real SIGKILL of the CLI during an increment, and most, cheaper, by an exception that
nothing catches during a bulk load. After the next load every table equals one full load.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.harness import Play, Rows
from tests.kills import killed_at
from velo_dagster.crash import POINTS

STATEMENTS = """
CREATE TABLE plain (id BIGINT, amount DECIMAL(18,2)) AS SELECT * FROM file://data/*.csv
    WITH ('failure_strategy' = 'SendToDLQ');
CREATE TABLE latest (id BIGINT, amount DECIMAL(18,2)) AS SELECT id PRIMARY KEY, amount FROM file://data/*.csv
    WITH ('failure_strategy' = 'LogAndContinue');
CREATE TABLE totals AS SELECT id, SUM(amount) AS amount FROM plain GROUP BY id;
CREATE TABLE joined AS SELECT p.id, p.amount, t.amount AS total FROM plain p JOIN totals t ON p.id = t.id;
"""
FINAL = """
CREATE TABLE hourly AS SELECT window_start, COUNT(*) AS clicks FROM file://clicks.csv WINDOW TUMBLING(at, 1h)
    EMIT FINAL WITH ('late.data.strategy' = 'reject');
"""
TIDYING = ("before-maintenance", "after-maintenance")
"""Points that are reached only now and then."""
ALWAYS = [point for point in POINTS if point not in TIDYING]
TIDY_EVERY_TIME = """
from velo_dagster.cli import main
from velo_dagster.engine import maintenance
maintenance.EVERY = 1
main(["load", ".", "--warehouse", "warehouse"])
"""
TABLES = ("plain", "latest", "totals", "joined")
FEW, MANY = 12, 350
"""Many files make positions that do not fit into a commit, and so a file of their own."""


def first_files(play: Play, files: int) -> None:
    play.write("tables.sql", STATEMENTS)
    for number in range(files):
        play.write(f"data/{number:04}.csv", f"id,amount\n{number % 50},{number}.25\n{number % 7},1.00\n")
    play.append("data/0003.csv", "three,3\n")


def more(play: Play) -> None:
    play.append("data/0001.csv", "1,100.00\n")
    play.write("data/9999.csv", "id,amount\n1,9.00\nbad,1\n,2.00\n")


def verify(play: Play) -> None:
    play.loaded()
    expected = one_full_load(play)
    for table in TABLES:
        assert play.rows(table) == expected[table], table
    shown = play.rejected("plain")
    assert shown == expected["rejected"] and shown


known: dict[str, dict[str, Rows]] = {}


def one_full_load(play: Play) -> dict[str, Rows]:
    """What the tables hold if all is loaded in one go; many tests end with the same files, so it is made only once."""
    data = b"".join(path.name.encode() + path.read_bytes() for path in sorted((play.folder / "data").iterdir()))
    digest = hashlib.sha256(data).hexdigest()
    if digest not in known:
        fresh = Play(play.folder, play.engine, "fresh")
        fresh.loaded()
        known[digest] = {table: fresh.rows(table) for table in TABLES} | {"rejected": fresh.rejected("plain")}
    return known[digest]


@pytest.mark.parametrize("point", [point for point in ALWAYS if point != "before-version"])
def test_killed_in_the_bulk_load(play: Play, point: str):
    first_files(play, MANY if point == "before-positions-file" else FEW)
    with killed_at(point):
        play.load()
    verify(play)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, engine) -> Play:
    play = Play(tmp_path_factory.mktemp("loaded"), engine)
    first_files(play, FEW)
    play.loaded()
    return play


@pytest.fixture
def copy(loaded: Play, tmp_path) -> Play:
    subprocess.run(["cp", "-a", f"{loaded.folder}/.", str(tmp_path)], check=True)
    return Play(tmp_path, loaded.engine)


@pytest.mark.parametrize("point", ["before-commit", "before-version", "after-commit"])
def test_killed_while_a_join_of_two_changed_tables_is_computed_in_parts(copy: Play, point: str):
    copy.small = 0
    # Made while small, they have no keys of parts yet.
    copy.loaded("totals", "joined", full_refresh=True)
    more(copy)
    copy.loaded("plain", "latest", "totals")
    with killed_at(point):
        copy.load("joined")
    again = copy.loaded("joined")["joined"]
    assert again.method == ("" if point == "after-commit" else "groups")
    verify(copy)


@pytest.mark.parametrize("point", TIDYING)
def test_sigkill_while_a_table_is_tidied_up(copy: Play, point: str):
    more(copy)
    environment = os.environ | {"VELO_CRASH_AT": point}
    done = subprocess.run([sys.executable, "-c", TIDY_EVERY_TIME], cwd=copy.folder, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    verify(copy)


@pytest.mark.parametrize("point", ["before-rejected-commit", "after-rejected-commit"])
def test_killed_while_late_rows_are_kept_aside(play: Play, point: str):
    play.write("t.sql", FINAL)
    play.write("clicks.csv", "at\n2025-06-01T10:00:00\n2025-06-01T12:00:00\n2025-06-01T10:30:00\n")
    with killed_at(point):
        play.load()
    play.loaded()
    play.append("clicks.csv", "2025-06-01T14:00:00\n2025-06-01T13:00:00\n")
    done = play.command("load", ".", "--warehouse", "warehouse", environment={"VELO_CRASH_AT": point})
    assert done.returncode == -signal.SIGKILL, done.stderr
    play.loaded()
    fresh = play.reloaded()
    assert play.rows("hourly") == fresh.rows("hourly") and play.rows("hourly")
    assert play.rejected("hourly") == fresh.rejected("hourly") and play.rejected("hourly").total() == 2


@pytest.mark.parametrize("point", ALWAYS)
def test_sigkill_of_the_cli_in_an_increment(copy: Play, point: str):
    if point == "before-positions-file":
        first_files(copy, MANY)
    more(copy)
    done = copy.command("load", ".", "--warehouse", "warehouse", environment={"VELO_CRASH_AT": point})
    assert done.returncode == -signal.SIGKILL, done.stderr
    verify(copy)


def test_sigkill_at_random_times(copy: Play):
    seed = int(os.environ.get("VELO_SEED", random.randrange(10**6)))
    print(f"VELO_SEED={seed}")  # noqa: T201 - shown by pytest when the test fails
    chance = random.Random(seed)
    for _ in range(int(os.environ.get("VELO_KILLS", "2"))):
        more(copy)
        command = [sys.executable, "-m", "velo_dagster.cli", "load", ".", "--warehouse", "warehouse"]
        process = subprocess.Popen(command, cwd=copy.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + chance.uniform(3, 40)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.wait()
    verify(copy)


def test_two_commands_at_once(copy: Play):
    """Both end well; what they leave is what one would have left."""
    more(copy)
    command = [sys.executable, "-m", "velo_dagster.cli", "load", ".", "--warehouse", "warehouse"]
    runs = [
        subprocess.Popen(command, cwd=copy.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run in runs:
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, out + err
    verify(copy)
