"""What is told while a load lasts: what is known, and nothing that is not."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.harness import Play
from velo_dagster.cli_output import progress as shown
from velo_dagster.engine.load import Loader
from velo_dagster.engine.progress import Progress
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.sources import meter
from velo_dagster.sources.contract import ID
from velo_dagster.sources.files_read import Reading
from velo_dagster.sources.files_spark import ID_TYPE, _rows_of  # pyright: ignore[reportPrivateUsage]
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sources.registry import open_source
from velo_dagster.store.table import Warehouse


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rows_rate_and_time_left(play: Play):
    play.write("t.sql", "CREATE TABLE a AS SELECT id FROM file://a.csv;")
    play.write("a.csv", "id\n1\n")
    (planned,) = play.project().table("a").inputs
    source = open_source(planned, play.folder, {})
    clock = Clock()
    progress = Progress(clock=clock)
    progress.begins("a")
    assert progress.line() == "a: loading, 0 s so far."
    with progress.reads(source, 4_000):
        clock.now += 10
        assert progress.line() == f"a: reading {source.label} (4,000 bytes), 10 s so far."
        assert source.meter is not None
        meter.note(source.meter, 0, 1, 4_000)
        assert progress.line() == f"a: reading {source.label}, 1 row so far, 0 rows/s, 10 s so far."
        meter.note(source.meter, 0, 10, 4_000)
        assert progress.line() == f"a: reading {source.label}, 10 rows so far, 1 row/s, 10 s so far."
        meter.note(source.meter, 0, 30, 600)
        meter.note(source.meter, 1, 20, 400)
        # The second task is run again: what it noted before counts no more.
        meter.note(source.meter, 1, 10, 400)
        told = f"a: reading {source.label}, 40 rows so far, 4 rows/s, 25 % of 4,000 bytes, about 30 s left to read"
        assert progress.line() == f"{told}, 10 s so far."
    assert source.meter is None
    assert progress.line() == "a: loading, 10 s so far."


def test_a_folder_that_tasks_do_not_share_fails_nothing(tmp_path: Path):
    meter.note(str(tmp_path / "elsewhere"), 0, 1, 1)
    assert meter.noted(tmp_path) == (0, 0)


def test_tasks_note_how_far_they_are(play: Play, tmp_path: Path):
    """Both files of a group count, by their bytes, and rows are those that were handed on."""
    play.write("t.sql", "CREATE TABLE a AS SELECT id FROM file://a*.csv;")
    text = "id\n" + "".join(f"{number}\n" for number in range(500))
    play.write("a1.csv", text)
    play.write("a2.csv", text)
    (planned,) = play.project().table("a").inputs
    source = open_source(planned, play.folder, {})
    scan = source.scan(None, source.end(None))
    schema = source.schema(scan, ())
    reading: Reading = source.content.reading(schema)  # pyright: ignore[reportAttributeAccessIssue]
    folder = tmp_path / "meter"
    folder.mkdir()
    metered = Reading(**{**reading.__dict__, "meter": str(folder)})
    target = pa.schema([("id", pa.int64()), (ID, to_arrow(ID_TYPE))])
    rows = sum(batch.num_rows for batch in _rows_of(3, metered, list(scan.parts), target))
    assert meter.noted(folder) == (rows, scan.bytes) == (1000, 2 * len(text))


def test_a_load_is_told_from_its_own_reading(play: Play):
    play.write("t.sql", "CREATE TABLE a AS SELECT id FROM file://a.csv;")
    play.write("a.csv", "id\n1\n")
    project = play.project()
    loader = Loader(project, Warehouse(str(play.folder / "warehouse")), play.engine)
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen.add(loader.progress.line().partition(",")[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    loader.load(project.table("a"), LoadOptions())
    done.set()
    watcher.join()
    assert any(line.startswith("a: reading ") for line in seen), seen


def test_in_a_pipe_a_line_tells_how_the_load_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("velo_dagster.cli_output.PLAIN_SECONDS", 0.01)
    stands = Progress()
    stands.begins("a")
    told = threading.Event()
    monkeypatch.setattr(stands, "line", lambda: told.set() or "a: 1 of 2 tables ready (users), waiting for limits")
    with shown(["a"], stands):
        assert told.wait(30)
    assert "a: 1 of 2 tables ready (users), waiting for limits\n" in capsys.readouterr().err


def test_what_a_load_waits_for_is_told_while_it_lasts():
    """The lines of a run's log in Dagster."""
    stands = Progress(clock=lambda: 7.0)
    stands.begins("checked")
    stands.stands("2 of 3 tables ready (users, limits), waiting for market", datetime(2025, 1, 1, 10, tzinfo=UTC))
    lines: list[str] = []
    told = threading.Event()
    with stands.told(0.01, lambda line: (lines.append(line), told.set())):
        assert told.wait(30)
    expected = "checked: 2 of 3 tables ready (users, limits), waiting for market since 10:00:00 UTC, 0 s so far."
    assert set(lines) == {expected}
