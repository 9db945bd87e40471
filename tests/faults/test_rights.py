"""Folders and files that the user may not read, by a process that really has no right to.

If one of these fails, somebody reads a traceback, an empty table, or "does not exist" about a file that he can see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.harness import Play

# Root reads what it likes because of its capabilities, not of its name: without them it has an owner's rights only.
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UNPRIVILEGED, sys.executable, "-m", "velo_dagster.cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "a.csv").write_text("id\n1\n")
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("written", ["locked/*.csv", "locked/", "locked/a.csv", "**/a.csv"])
def test_a_folder_without_rights_is_told(written: str, locked: Path, tmp_path: Path):
    """A missing right may not pass for a missing file: the one is waited for, the other has to be given."""
    (tmp_path / "t.sql").write_text(f"CREATE TABLE t AS\nSELECT id FROM file://{written} WITH ('format' = 'csv');\n")
    done = command(tmp_path, "load", ".")
    assert done.returncode == 1, done
    assert f"t.sql:2:16: error E303 No right to read '{locked}" in done.stderr
    assert "Traceback" not in done.stderr and "Starting Spark" not in done.stderr
    assert done.stdout.startswith("t: failed")
    status = command(tmp_path, "status", ".")
    assert status.returncode == 1 and "Traceback" not in status.stderr


def test_a_file_without_rights_is_told(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n")
    file.chmod(0)
    (tmp_path / "t.sql").write_text("CREATE TABLE t AS SELECT id FROM file://a.csv;\n")
    done = command(tmp_path, "load", ".")
    assert done.returncode == 1, done
    assert f"t.sql:1:34: error E303 No right to read '{file}'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_table_keeps_its_rows_when_rights_are_taken_away(play: Play):
    """`file.deleted` = remove takes the rows of files that are gone; a file that is hidden is not gone."""
    play.write("t.sql", "CREATE TABLE t AS SELECT id FROM file://data/*.csv WITH ('file.deleted' = 'remove');")
    play.write("data/a.csv", "id\n1\n2\n")
    play.loaded()
    (play.folder / "data").chmod(0)
    try:
        done = command(play.folder, "load", ".", "--warehouse", play.warehouse)
    finally:
        (play.folder / "data").chmod(0o700)
    assert done.returncode == 1 and "error E303 No right to read" in done.stderr, done
    assert play.rows("t") == Counter({(Decimal(1),): 1, (Decimal(2),): 1})
    assert command(play.folder, "load", ".", "--warehouse", play.warehouse).stdout.startswith("t: unchanged")


def test_a_warehouse_without_rights_is_told(tmp_path: Path):
    (tmp_path / "t.sql").write_text("CREATE TABLE t AS SELECT id FROM file://a.csv;\n")
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "closed").mkdir(mode=0o500)
    done = command(tmp_path, "load", ".", "--warehouse", "closed/warehouse")
    assert done.returncode == 1 and "\nerror T505 The warehouse " in done.stderr, done
    assert "Traceback" not in done.stderr and "Starting Spark" not in done.stderr
