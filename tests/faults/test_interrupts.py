"""Ctrl-C and SIGTERM: the user is told how things stand, and no JVM stays behind to commit after he has gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import Play

DEADLINE = 180.0
STATEMENTS = """
CREATE TABLE a AS SELECT id FROM file://a.csv;
CREATE TABLE b AS SELECT id FROM file://b.csv WITH ('file.wait.timeout' = '10m');
"""


def until(look: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait for a state, not for a time."""
    end = time.monotonic() + DEADLINE
    while not look():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come so far"
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and _parent(path) == pid and b"java" in _command(path)
    ]


def _parent(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def _command(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes().partition(b"\0")[0]
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_an_interrupt_while_spark_starts_leaves_no_jvm_behind(play: Play):
    """It would hold the output open, so that whoever reads the command through a pipe waits for ever."""
    play.write("a.csv", "id\n1\n")
    play.write("a.sql", "CREATE TABLE a AS SELECT id FROM file://a.csv;")
    log = play.folder / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "velo_dagster.cli", "load", "."], cwd=play.folder, stderr=errors, text=True
        )
        until(lambda: children(process.pid), process)
        jvms = children(process.pid)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 130, log.read_text()
    assert not any(Path(f"/proc/{pid}").exists() for pid in jvms), "Spark outlived the command"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_load_says_how_things_stand_and_ends_spark(play: Play, sent: signal.Signals, code: int):
    play.write("a.csv", "id\n1\n")
    play.write("a.sql", STATEMENTS)
    log = play.folder / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "velo_dagster.cli", "load", "."],
            cwd=play.folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        until(lambda: "b: loading (2 of 2)" in log.read_text(), process)
        jvms = children(process.pid)
        os.kill(process.pid, sent)
        out, _ = process.communicate(timeout=DEADLINE)
    told = log.read_text().splitlines()
    assert (process.returncode, len(jvms)) == (code, 1), told
    assert not any(Path(f"/proc/{pid}").exists() for pid in jvms), "Spark outlived the command"
    assert out.startswith("a: bulk by append, 1 row read")
    assert told[0] == "warehouse: .velo/warehouse"
    assert "Starting Spark ..." in told
    assert told[-1] == "Interrupted while 'b' was loaded: it has no load yet. Run the same command to go on."
