"""Bad moments, through the real command: a file goes while it is read, the disk is full.

A user must learn what happened and where, find the table as it was, and go on once the cause is gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Play

DRIVER = """
import os, sys
doomed = sys.argv[1]
from velo_dagster import cli
from velo_dagster.engine import source_load

def reached(point):
    if point == "after-end" and os.path.exists(doomed):
        os.unlink(doomed)

source_load.crash_point = reached
sys.argv = ["velo-dagster", *sys.argv[2:]]
cli.main()
"""
"""The command, in which a file is removed right after a load has looked how far it goes."""


def test_file_that_goes_while_it_is_read(play: Play):
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://data.csv;")
    play.write("data.csv", "id,v\n1,1\n")
    play.loaded()
    play.append("data.csv", "2,2\n")
    arguments = [str(play.folder / "data.csv"), "load", ".", "--warehouse", "warehouse"]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], cwd=play.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "data.csv" in done.stderr and "Traceback" not in done.stderr
    assert play.table("t").to_pylist() == [{"id": 1, "v": 1}]
    play.write("data.csv", "id,v\n1,1\n2,2\n")
    play.loaded()
    assert play.rows("t") == play.reloaded().rows("t")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "warehouse"
    disk.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command here to make a small disk with")
    if done.returncode:
        pytest.skip(f"making a small disk is not permitted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def used(disk: Path) -> int:
    status = os.statvfs(disk)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


@pytest.mark.parametrize("key", ["", "PRIMARY KEY"], ids=["plain", "keyed"])
def test_full_disk(play: Play, small_disk: Path, key: str):
    """The space comes back, the table is as it was, and the next load goes on."""
    play.write("t.sql", f"CREATE TABLE t AS SELECT id {key}, v FROM file://data/*.csv;")
    play.write("data/1.csv", "id,v\n1,x\n")
    play.loaded()
    before, filled = play.rows("t"), used(small_disk)
    big = "".join(f"{number},{os.urandom(200).hex()}\n" for number in range(2, 60_000))
    much = play.write("data/2.csv", f"id,v\n{big}")
    done = play.command("load", ".", "--warehouse", "warehouse")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "  1. Make room on the disk" in done.stderr, done.stderr
    assert play.rows("t") == before
    assert used(small_disk) - filled < 2**20
    much.unlink()
    play.write("data/3.csv", "id,v\n2,y\n")
    play.loaded()
    assert sorted(play.table("t").column("id").to_pylist()) == [1, 2]
