"""What happens to files between loads, one short story per test. No Spark: parts are read as an executor reads them."""

from __future__ import annotations

import codecs
import errno
import gzip
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from velo_dagster.sources import files_parts
from velo_dagster.sources.contract import ERROR, ID, BadRow, Field, Position, Scan, Schema
from velo_dagster.sources.errors import (
    BadRows,
    BrokenFile,
    MissingSource,
    SchemaRefused,
    SourceChanged,
    SourceMisconfigured,
    SourceRefused,
)
from velo_dagster.sources.files import FileSource
from velo_dagster.sources.files_read import Reading
from velo_dagster.sources.formats.base import BadRecord, Misfit
from velo_dagster.sources.retry import Clock

SECOND = 10**9
LONG_AGO = 1_700_000_000


@dataclass
class Desk:
    """A folder, a clock, and a source over it. Files are written at the clock's time."""

    folder: Path
    now: float = LONG_AGO

    def write(self, name: str, data: str | bytes, mode: str = "wb") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.write(data.encode() if isinstance(data, str) else data)
        self.touch(name)

    def append(self, name: str, data: str) -> None:
        self.write(name, data, "ab")

    def touch(self, name: str) -> None:
        stamp = int(self.now * SECOND)
        os.utime(self.folder / name, ns=(stamp, stamp))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def source(self, written: str, declared: Mapping[str, str] | None = None, **properties: str) -> FileSource:
        return FileSource(
            written,
            {key.replace("__", "."): value for key, value in properties.items()},
            root=self.folder,
            declared=declared or {},
            environ={},
            clock=Clock(lambda: self.now, self.wait),
            now_ns=lambda: int(self.now * SECOND),
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def rows(source: FileSource, scan: Scan, schema: Schema | None = None) -> list[tuple]:
    """The rows of a scan as (file, at, *values), in order."""
    schema = source.schema(scan, ()) if schema is None else schema
    reading: Reading = source.content.reading(schema)
    found: list[tuple] = []
    for part in scan.parts:
        for batch in reading.open_part(part).batches():
            for row in batch.to_pylist():
                values = [row[field.name] for field in schema]
                shown = [row["_velo_reason"]] if row["_velo_reason"] else values
                found.append((part["file"], row["_velo_at"], *shown))
    return sorted(found, key=lambda row: row[:2])


def values(source: FileSource, since: Position | None, until: Position) -> list[Any]:
    """First values of the rows between two positions."""
    whole = source.schema(source.scan(None, until), ())
    return [row[2] for row in rows(source, source.scan(since, until), whole)]


class TestTheEndOfAFile:
    def test_a_static_file_without_a_final_newline_keeps_its_last_row(self, desk: Desk) -> None:
        desk.write("a.csv", "id,name\n1,x\n2,y")
        source = desk.source("a.csv")
        assert values(source, None, source.end(None)) == [1, 2]

    def test_a_half_written_line_waits_and_is_said_to(self, desk: Desk) -> None:
        desk.write("a.csv", "id,name\n1,x\n2")
        source = desk.source("a.csv")
        a = source.end(None)
        assert values(source, None, a) == [1]
        assert source.notes() == ["a.csv: 1 byte waits after byte 12 for the end of the line, or of an open quote"]
        desk.append("a.csv", ",y\n")
        b = source.end(a)
        assert values(source, a, b) == [2] and source.notes() == []

    def test_an_open_quote_waits(self, desk: Desk) -> None:
        desk.write("a.csv", 'id,name\n1,x\n2,"y\n')
        source = desk.source("a.csv")
        a = source.end(None)
        assert values(source, None, a) == [1] and source.notes()
        desk.append("a.csv", 'z"\n')
        assert values(source, a, source.end(a)) == [2]

    def test_half_a_json_line_waits(self, desk: Desk) -> None:
        desk.write("a.jsonl", '{"id": 1}\n{"id": 2')
        source = desk.source("a.jsonl")
        a = source.end(None)
        assert values(source, None, a) == [1]
        desk.append("a.jsonl", "2}\n")
        assert values(source, a, source.end(a)) == [22]

    def test_a_growing_file_waits_for_its_newline(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n")
        source = desk.source("a.csv")
        a = source.end(None)
        desk.append("a.csv", "2\n3")
        b = source.end(a)
        assert values(source, a, b) == [2] and source.notes()
        desk.append("a.csv", "3\n")
        assert values(source, b, source.end(b)) == [33]

    def test_until_it_has_been_quiet_for_a_minute(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n")
        source = desk.source("a.csv")
        a = source.end(None)
        desk.append("a.csv", "2\n3")
        b = source.end(a)
        desk.wait(59)
        assert source.scan(b, source.end(b)).empty
        desk.wait(1)
        c = source.end(b)
        assert values(source, b, c) == [3]
        desk.append("a.csv", "4\n")
        scan = source.scan(c, source.end(c))
        assert scan.removed == f"(({ID}.file = 'a.csv' AND {ID}.at >= 7))"
        assert [row[2] for row in rows(source, scan)] == [34]

    def test_a_header_alone_is_no_row_and_half_a_header_is_no_header(self, desk: Desk) -> None:
        desk.write("a.csv", "id,na")
        source = desk.source("a.csv")
        a = source.end(None)
        assert source.scan(None, a).empty and source.schema(source.scan(None, a), ()) == ()
        desk.append("a.csv", "me\n1,x\n")
        b = source.end(a)
        assert source.schema(source.scan(a, b), ()) == (Field("id", "BIGINT"), Field("name", "STRING"))

    def test_line_ends_of_all_kinds_cut_between_cr_and_lf(self, desk: Desk) -> None:
        desk.write("a.csv", "id\r\n1\r\n2\r")
        source = desk.source("a.csv")
        a = source.end(None)
        first = values(source, None, a)
        desk.append("a.csv", "\n3\r\n")
        b = source.end(a)
        scan = source.scan(a, b)
        assert first[:1] == [1] and values(source, None, b) == [1, 2, 3]
        assert (first == [1, 2]) == (scan.removed is not None or len(rows(source, scan)) == 1)


class TestChanges:
    def test_nothing_new(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n")
        source = desk.source("a.csv")
        a = source.end(None)
        desk.wait(10)
        b = source.end(a)
        assert source.scan(a, b).empty
        assert source.end(b) == b

    def test_a_touch_is_no_change(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n")
        source = desk.source("a.csv")
        a = source.end(None)
        desk.wait(100)
        desk.touch("a.csv")
        assert source.scan(a, source.end(a)).empty

    def test_a_rewrite_replaces(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n2\n")
        source = desk.source("a.csv")
        a = source.end(None)
        desk.wait(100)
        desk.write("a.csv", "id\n7\n2\n3\n")
        b = source.end(a)
        assert source.scan(a, b).removed == f"({ID}.file IN ('a.csv'))"
        assert values(source, a, b) == [7, 2, 3]

    def test_a_truncation_replaces(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n2\n")
        source = desk.source("a.csv")
        a = source.end(None)
        desk.write("a.csv", "id\n1\n")
        b = source.end(a)
        assert source.scan(a, b).removed and values(source, a, b) == [1]

    def test_a_rewrite_within_the_same_tick_of_the_clock_is_seen(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n")
        source = desk.source("a.csv")
        a = source.end(None)
        desk.write("a.csv", "id\n2\n")
        assert values(source, a, source.end(a)) == [2]

    def test_a_big_file_that_changes_without_growing_is_read_again(self, desk: Desk) -> None:
        """The ends of the file are the same: only the whole of it could tell, so it is not trusted."""
        lines = [f"{number:09}\n" for number in range(30_000)]
        desk.write("a.txt", "".join(lines))
        source = desk.source("a.txt")
        a = source.end(None)
        desk.wait(100)
        lines[15_000] = "x" * 9 + "\n"
        desk.write("a.txt", "".join(lines))
        assert source.scan(a, source.end(a)).removed

    def test_verify_full_sees_a_change_in_the_middle_of_a_grown_file(self, desk: Desk) -> None:
        lines = [f"{number:09}\n" for number in range(30_000)]
        desk.write("a.txt", "".join(lines))
        full, ends = desk.source("a.txt", file__verify="full"), desk.source("a.txt")
        a, b = full.end(None), ends.end(None)
        lines[15_000] = "x" * 9 + "\n"
        desk.write("a.txt", "".join(lines) + "more\n")
        assert full.scan(a, full.end(a)).removed
        assert not ends.scan(b, ends.end(b)).removed

    def test_a_vanished_file_is_kept_or_removed(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n")
        desk.write("b.csv", "id\n2\n")
        keep, remove = desk.source("*.csv"), desk.source("*.csv", file__deleted="remove")
        a = keep.end(None)
        (desk.folder / "a.csv").unlink()
        kept = keep.end(a)
        assert keep.scan(a, kept).empty and keep.lost(kept) == ("a.csv",)
        assert keep.notes() == ["a.csv: gone; its rows are kept (file.deleted = keep)"]
        assert remove.scan(a, remove.end(a)).removed == f"({ID}.file IN ('a.csv'))"
        desk.write("a.csv", "id\n1\n")
        assert keep.scan(kept, keep.end(kept)).empty
        desk.write("a.csv", "id\n3\n")
        assert values(keep, kept, keep.end(kept)) == [3]

    @pytest.mark.parametrize("written", ["in/a.csv", "in/*.csv", "in/"])
    def test_a_look_tells_that_nothing_is_left_of_what_was_read(self, desk: Desk, written: str) -> None:
        """A load goes on from there, so it is ready; but nobody should take it for well."""
        desk.write("in/a.csv", "id\n1\n")
        source = desk.source(written)
        position = source.end(None)
        assert not source.probe(position).gone
        (desk.folder / "in/a.csv").unlink()
        look = source.probe(position)
        assert (look.ready, look.gone, look.category) == (True, True, "missing")
        assert source.scan(position, source.end(position)).empty
        assert (source.probe().ready, source.probe().gone) == (False, False), "a first load has to wait"
        assert not desk.source("in/a.csv", file__create__empty="true").probe(position).gone, (
            "it is made when it is read"
        )
        (desk.folder / "in").rmdir()
        assert (source.probe(position).ready, source.probe(position).gone) == (False, False)

    def test_only_rows_that_should_stay_can_be_lost(self, desk: Desk) -> None:
        """A full refresh must not be refused because of rows that it would rightly replace or drop."""
        desk.write("a.csv", "id\n1\n")
        desk.write("b.csv", "id\n2\n")
        keep, remove = desk.source("*.csv"), desk.source("*.csv", file__deleted="remove")
        a = keep.end(None)
        scan = keep.scan(None, a)
        desk.write("a.csv", "id\n10\n")
        assert keep.lost(a) == ()
        with pytest.raises(SourceChanged):
            keep.verify(scan, a)
        (desk.folder / "b.csv").unlink()
        assert keep.lost(a) == ("b.csv",) and remove.lost(a) == ()

    @pytest.mark.parametrize(
        ("before", "after", "lost"),
        [
            ("d/*.csv", "{root}/d/*.csv", ("2.csv",)),
            ("d/*.csv", "file://./d/*.csv", ("2.csv",)),
            ("d/*.csv", "file:d/*.csv", ("2.csv",)),
            ("d/*.csv", "d/", ("2.csv",)),
            ("d/*.csv", "d/**/*.csv", ("2.csv",)),
            ("d/*.csv", "d/2.csv", ("2.csv",)),
            ("d/*.csv", "*/*.csv", ("d/2.csv",)),
            ("*/*.csv", "d/*.csv", ("2.csv",)),
            ("d/*.csv", "d/1*.csv", ()),
            ("d/*.csv", "d/*.jsonl", ()),
            ("d/*.csv", "e/*.csv", ()),
            ("*/*.csv", "e/*.csv", ()),
        ],
    )
    def test_files_are_the_same_however_they_are_written(
        self, desk: Desk, before: str, after: str, lost: tuple[str, ...]
    ) -> None:
        """Else rows that only the table has would go because its statement names the same folder otherwise."""
        for name in ("d/1.csv", "d/2.csv", "e/1.csv"):
            desk.write(name, "id\n1\n")
        position = desk.source(before).end(None)
        (desk.folder / "d/2.csv").unlink()
        source = desk.source(after.format(root=desk.folder))
        assert source.lost(position) == lost
        assert source.lost(position, position) == (), "whoever has it keeps it"
        assert str(desk.folder) not in str(position), "a path of one machine"

    def test_a_folder_that_went_with_its_files_is_asked_about(self, desk: Desk) -> None:
        desk.write("d/1.csv", "id\n1\n")
        position = desk.source("d/*.csv").end(None)
        (desk.folder / "d/1.csv").unlink()
        (desk.folder / "d").rmdir()
        assert desk.source("**/*.csv").lost(position) == ("…/1.csv",)

    @pytest.mark.parametrize("written", ["data/*.csv", "data/a.csv", "data/"])
    def test_a_source_that_was_emptied_is_empty_not_missing(self, desk: Desk, written: str) -> None:
        """Else every load after the last file went would fail, though the table is right."""
        desk.write("data/a.csv", "id\n1\n")
        source = desk.source(written, file__deleted="remove")
        a = source.end(None)
        (desk.folder / "data/a.csv").unlink()
        b = source.end(a)
        assert source.scan(a, b).removed and source.scan(b, source.end(b)).empty
        desk.write("data/a.csv", "id\n1\n")
        assert values(source, b, source.end(b)) == [1]

    def test_a_folder_that_is_gone_takes_no_rows_away(self, desk: Desk) -> None:
        """An unmounted disk must not look like deleted files."""
        desk.write("data/a.csv", "id\n1\n")
        source = desk.source("data/*.csv", file__deleted="remove")
        a = source.end(None)
        (desk.folder / "data").rename(desk.folder / "elsewhere")
        with pytest.raises(MissingSource):
            source.end(a)

    def test_what_is_appended_during_a_read_does_not_disturb_it(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n")
        source = desk.source("a.csv")
        a = source.end(None)
        scan = source.scan(None, a)
        desk.append("a.csv", "2\n")
        assert [row[2] for row in rows(source, scan)] == [1]
        source.verify(scan, a)

    @pytest.mark.parametrize("how", ["changed", "disappeared"])
    def test_a_file_that_changes_during_a_read_fails_it(self, desk: Desk, how: str) -> None:
        desk.write("a.csv", "id\n1\n")
        source = desk.source("a.csv")
        a = source.end(None)
        scan = source.scan(None, a)
        schema = source.schema(scan, ())
        if how == "changed":
            desk.write("a.csv", "id\n2\n")
            with pytest.raises(SourceChanged):
                rows(source, scan, schema)
        else:
            (desk.folder / "a.csv").unlink()
        with pytest.raises(SourceChanged, match=how):
            source.verify(scan, a)


class TestBounds:
    def test_max_records_of_each_file(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n2\n3\n")
        desk.write("b.csv", "id\n4")
        source = desk.source("*.csv", max_records="2")
        a = source.end(None)
        assert values(source, None, a) == [1, 2, 4]
        desk.append("a.csv", "5\n")
        desk.append("b.csv", "\n6\n7\n")
        b = source.end(a)
        assert values(source, None, b) == [1, 2, 4, 6] and source.end(b) == b

    def test_skip_lines(self, desk: Desk) -> None:
        desk.write("a.csv", "# made by hand\n# today\nid\n1\n")
        source = desk.source("a.csv", skip_lines="2")
        assert values(source, None, source.end(None)) == [1]

    @pytest.mark.parametrize("head", ["# made by [x]\n", '# "made\n', "#" * 5000 + "\n", "\ufeff# [\n"])
    @pytest.mark.parametrize("format_", [{}, {"format": "json"}])
    def test_skip_lines_before_a_json_array(self, desk: Desk, head: str, format_: dict[str, str]) -> None:
        """Whether it is an array shows behind them, and no bracket or quote in them is one of the array's."""
        desk.write("a.json", f'{head}[{{"id": 1}},\n {{"id": 2}}]\n')
        source = desk.source("a.json", None, skip_lines="1", **format_)
        assert values(source, None, source.end(None)) == [1, 2]

    def test_skip_lines_before_lines_of_json(self, desk: Desk) -> None:
        desk.write("a.json", '[\n{"id": 1}\n{"id": 2}\n')
        source = desk.source("a.json", skip_lines="1")
        assert values(source, None, source.end(None)) == [1, 2]

    def test_a_replaced_file_waits_for_its_turn_without_its_old_rows(self, desk: Desk) -> None:
        """A position that spoke of rows that are nowhere any more could never be read again."""
        desk.write("a.csv", "id\n1\n")
        desk.write("b.csv", "id\n2\n")
        source = desk.source("*.csv")
        a = source.end(None)
        desk.write("a.csv", "id\n1\n3\n")
        desk.write("b.csv", "id\n4\n")
        b = source.end(a, 1)
        assert source.scan(a, b).removed == f"({ID}.file IN ('b.csv'))" and values(source, a, b) == [3]
        assert values(source, None, b) == [1, 3] and source.lost(b) == ()
        c = source.end(b, 1)
        assert values(source, b, c) == [4] and values(source, None, c) == [1, 3, 4]

    def test_a_long_file_is_cut_into_parts(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files_parts, "LEAST_BYTES", 100_000)
        monkeypatch.setattr(files_parts, "TASKS", 8)
        desk.write("a.csv", "id,name\n" + "".join(f'{n},"line\n{n}"\n' for n in range(50_000)))
        source = desk.source("a.csv")
        scan = source.scan(None, source.end(None))
        assert len(scan.parts) > 5 and len(files_parts.grouped(scan.parts)) > 1
        assert [row[2] for row in rows(source, scan)] == list(range(50_000))

    def test_a_long_file_is_cut_into_equal_parts(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """One part more than cores can take at once, and all of them wait for the last one."""
        monkeypatch.setattr(files_parts, "LEAST_BYTES", 100_000)
        monkeypatch.setattr(files_parts, "TASKS", 8)
        desk.write("a.csv", "id,name\n" + "".join(f"{n},line {n}\n" for n in range(500_000)))
        source = desk.source("a.csv")
        sizes = [part["bytes"] for part in source.scan(None, source.end(None)).parts]
        assert len(sizes) == 8 and max(sizes) < 1.2 * min(sizes)

    def test_many_small_files_share_tasks(self) -> None:
        parts = [{"file": str(number), "bytes": 10} for number in range(50_000)]
        groups = files_parts.grouped(parts)
        assert 50 < len(groups) < 200 and [part for group in groups for part in group] == parts


class TestMessages:
    def test_a_missing_file(self, desk: Desk) -> None:
        with pytest.raises(MissingSource) as caught:
            desk.source("file://data/import.json").end(None)
        text = str(caught.value)
        assert "File 'data/import.json' does not exist" in text
        for part in ('"file.wait.timeout" = "30s"', '"watch" = "true", the default', "pattern"):
            assert part in text
        assert text.splitlines()[-1].startswith("Original error: [Errno 2]")

    @pytest.mark.parametrize("written", ["data/ordrs.csv", "file://data/Orders.csv", "data/order-*.csv"])
    def test_a_misspelled_file_is_told_the_nearest(self, desk: Desk, written: str) -> None:
        desk.write("data/orders.csv", b"id\n1\n")
        with pytest.raises(MissingSource) as caught:
            desk.source(written).end(None)
        assert caught.value.steps[0] == "Did you mean data/orders.csv?"

    def test_a_missing_file_is_told_only_what_fits(self, desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
        """A list of everything that might help hides the one thing that does."""

        def steps(written: str) -> tuple[str, ...]:
            with pytest.raises(MissingSource) as caught:
                desk.source(written).end(None)
            assert len(caught.value.steps) <= 4
            return caught.value.steps

        desk.write("data/orders.csv", b"id\n1\n")
        assert "pattern" not in "".join(steps("file://data/orders.csv.*")[2:])
        assert "~ is not expanded here" in steps("file://~/orders.csv")[0]
        for written in ("file:///data/orders.csv", "file:///data/*.json", "file:///data/"):
            assert "file:// with two slashes" in steps(written)[0]
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        (elsewhere / "a.csv").write_bytes(b"id\n1\n")
        for written in ("a.csv", "*.json", ""):
            assert "file:/// with three slashes" in steps(f"file://{elsewhere.relative_to('/')}/{written}")[0]
        assert "slashes" not in "".join([*steps("file://nothing/a.csv"), *steps("file:///nothing/**/*.csv")])

    @pytest.mark.parametrize(
        ("name", "data", "what", "step"),
        [
            (
                "a.csv.gz",
                b"id\n1\n",
                "compressed by gzip, and it is not.",
                "Take the ending for compression off its name",
            ),
            ("a.csv.zst", b"id\n1\n", "compressed by zstd, and it is not.", "Take the ending for"),
            (
                "a.csv.gz",
                gzip.compress(b"id\n1\n" * 99, mtime=0)[:-9],
                "the file is cut short.",
                "Put a whole file there",
            ),
            (
                "a.csv",
                "id\n1\n".encode("utf-16"),
                "text in UTF-16",
                'Say how it is encoded: WITH ("encoding" = "utf-16").',
            ),
            ("a.jsonl", codecs.BOM_UTF16_BE + b"\0{", "text in UTF-16", "Say how it is encoded"),
        ],
    )
    def test_bytes_that_are_not_what_the_name_says(
        self, desk: Desk, name: str, data: bytes, what: str, step: str
    ) -> None:
        desk.write(name, data)
        with pytest.raises(BrokenFile) as caught:
            desk.source(name).end(None)
        assert what in caught.value.what and caught.value.steps[0].startswith(step)

    def test_a_file_in_utf_16_is_read_once_that_is_said(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\n".encode("utf-16"))
        source = desk.source("a.csv", encoding="utf-16")
        assert values(source, None, source.end(None)) == [1]

    def test_a_folder_without_files(self, desk: Desk) -> None:
        (desk.folder / "inbox").mkdir()
        for written, what in (("inbox/", "Folder 'inbox/' holds no files."), ("in/", "Folder 'in/' does not exist.")):
            with pytest.raises(MissingSource) as caught:
                desk.source(written).end(None)
            assert caught.value.what == what

    @pytest.mark.parametrize(
        ("written", "timeout", "beginning"),
        [
            ("p.csv", "2s", "Timeout waiting for file 'p.csv' after 2s."),
            ("p-*.csv", "1s", "Timeout waiting for files matching pattern 'p-*.csv' after 1s."),
        ],
    )
    def test_after_waiting(self, desk: Desk, written: str, timeout: str, beginning: str) -> None:
        source = desk.source(written, file__wait__timeout=timeout, file__retry__interval="500ms")
        with pytest.raises(MissingSource) as caught:
            source.end(None)
        assert caught.value.what.startswith(beginning)
        assert source.metrics.timeouts == 1 and source.metrics.attempts > 1

    def test_a_file_that_turns_up_is_loaded(self, desk: Desk) -> None:
        source = desk.source("a.csv", wait__timeout="60s", retry__interval="10s", retry__strategy="fixed")
        waited: list[float] = []

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:
                desk.write("a.csv", "id\n1\n")

        source._clock = Clock(lambda: desk.now, sleep)
        assert values(source, None, source.end(None)) == [1] and waited == [10, 10]

    def test_create_empty(self, desk: Desk) -> None:
        source = desk.source("new/a.csv", file__create__empty="true", declared={"id": "BIGINT"})
        assert source.probe().ready and not (desk.folder / "new").exists()
        a = source.end(None)
        assert (desk.folder / "new/a.csv").read_bytes() == b""
        assert source.schema(source.scan(None, a), ()) == (Field("id", "BIGINT"),)
        desk.append("new/a.csv", "id\n1\n")
        assert values(source, a, source.end(a)) == [1]

    def test_different_formats(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n")
        desk.write("a.json", "{}")
        with pytest.raises(SourceMisconfigured, match=r"'a\.csv' is csv, 'a\.json' is json"):
            desk.source("a.*").end(None)

    def test_no_format(self, desk: Desk) -> None:
        desk.write("data.bin", "id\n1\n")
        with pytest.raises(SourceMisconfigured, match="does not say which format"):
            desk.source("data.bin").end(None)
        source = desk.source("data.bin", format="csv")
        assert values(source, None, source.end(None)) == [1]

    def test_no_right_to_read_is_refused_and_not_waited_for(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> Iterator[Any]:
            raise PermissionError(13, "Permission denied", str(desk.folder / "a.csv"))

        source = desk.source("*.csv", wait__timeout="60s")
        monkeypatch.setattr("velo_dagster.sources.files_listing.os.scandir", refuse)
        with pytest.raises(SourceRefused) as caught:
            source.end(None)
        assert "Waiting won't help" in str(caught.value) and source.metrics.attempts == 1
        assert source.probe().category == "auth"

    def test_a_cut_gzip_file_is_named(self, desk: Desk) -> None:
        desk.write("a.csv.gz", gzip.compress(b"id\n" + b"1\n" * 1000)[:-12])
        source = desk.source("a.csv.gz")
        with pytest.raises(BrokenFile, match=r"a\.csv\.gz"):
            scan = source.scan(None, source.end(None))
            rows(source, scan)


class TestColumns:
    def test_names_are_made_fit(self, desk: Desk) -> None:
        desk.write("a.csv", "Order ID,id,ID,order_id\n1,2,3,4\n")
        source = desk.source("a.csv")
        scan = source.scan(None, source.end(None))
        assert [field.name for field in source.schema(scan, ())] == ["Order_ID", "id", "ID_2", "order_id_2"]
        assert rows(source, scan) == [("a.csv", 24, 1, 2, 3, 4)]

    def test_hidden_names_are_refused(self, desk: Desk) -> None:
        desk.write("a.csv", "id,_velo_id\n1,2\n")
        source = desk.source("a.csv")
        with pytest.raises(SchemaRefused, match="_velo_id"):
            source.schema(source.scan(None, source.end(None)), ())

    def test_columns_bind_by_header_not_by_place(self, desk: Desk) -> None:
        desk.write("a.csv", "id,name\n1,x\n")
        desk.write("b.csv", "name,id\ny,2\n")
        source = desk.source("*.csv")
        assert rows(source, source.scan(None, source.end(None))) == [("a.csv", 8, 1, "x"), ("b.csv", 8, 2, "y")]

    def test_headers_that_differ_in_case_are_one_column(self, desk: Desk) -> None:
        """Another export spells its header in capitals: its rows belong into the same columns."""
        desk.write("000.csv", "k,v\n0,0\n")
        desk.write("001.csv", "V,K\n2025-01-01,4\n")
        for declared in ({}, {"K": "INT"}):
            source = desk.source("*.csv", declared=declared)
            scan = source.scan(None, source.end(None))
            assert [field.name for field in source.schema(scan, ())] == ["k", "v"]
            assert rows(source, scan) == [("000.csv", 4, 0, "0"), ("001.csv", 4, 4, "2025-01-01")]

    def test_json_keys_that_differ_in_case_or_signs_are_one_column(self, desk: Desk) -> None:
        desk.write("a.jsonl", '{"Order ID": 1}\n{"order_id": 2}\n{"ORDER_ID": 3, "x": null}\n')
        for evolution in ("evolve", "ignore"):
            source = desk.source("a.jsonl", schema__evolution=evolution)
            scan = source.scan(None, source.end(None))
            schema = source.schema(scan, ())
            assert schema[0] == Field("Order_ID", "BIGINT")
            assert [row[2] for row in rows(source, scan, schema)] == [1, 2, 3]

    def test_a_json_record_that_fills_a_column_twice_is_bad(self, desk: Desk) -> None:
        desk.write("a.jsonl", '{"id": 1, "ID": 2}\n{"id": 3}\n')
        source = desk.source("a.jsonl", failure_strategy="SendToDLQ")
        scan = source.scan(None, source.end(None))
        first, second = rows(source, scan)
        assert "one column" in first[2] and second[2] == 3

    def test_an_object_whose_names_no_table_can_carry_stays_json(self, desk: Desk) -> None:
        desk.write("a.jsonl", '{"a": {"b c": 1}}\n{"a": {"b": 2}}\n')
        source = desk.source("a.jsonl")
        scan = source.scan(None, source.end(None))
        assert source.schema(scan, ()) == (Field("a", "STRING"),)
        assert [row[2] for row in rows(source, scan)] == ['{"b c":1}', '{"b":2}']

    def test_evolution(self, desk: Desk) -> None:
        known = (Field("id", "BIGINT"),)
        desk.write("a.csv", "id,extra\n1,x\n")
        schemas = {}
        for evolution in ("evolve", "ignore", "strict"):
            source = desk.source("a.csv", schema__evolution=evolution)
            scan = source.scan(None, source.end(None))
            if evolution == "strict":
                with pytest.raises(SchemaRefused, match="extra"):
                    source.schema(scan, known)
                continue
            schemas[evolution] = source.schema(scan, known)
            assert [row[2] for row in rows(source, scan, schemas[evolution])] == [1]
        assert schemas == {"evolve": (*known, Field("extra", "STRING")), "ignore": known}

    def test_types_widen_and_never_narrow(self, desk: Desk) -> None:
        known = (Field("a", "BIGINT"), Field("b", "DATE"), Field("c", None), Field("d", "STRING"))
        desk.write("a.csv", "a,b,c,d\n1.5,2025-01-01T00:00:00,true,1\n")
        source = desk.source("a.csv")
        schema = source.schema(source.scan(None, source.end(None)), known)
        assert [field.type for field in schema] == ["DECIMAL(18,1)", "TIMESTAMP", "BOOLEAN", "STRING"]

    def test_a_value_that_does_not_fit_ends_the_read(self, desk: Desk) -> None:
        desk.write("a.csv", "id\n1\nx\n")
        source = desk.source("a.csv")
        with pytest.raises(Misfit):
            rows(source, source.scan(None, source.end(None)), (Field("id", "BIGINT"),))

    def test_a_value_that_does_not_fit_its_declared_type_is_a_bad_row(self, desk: Desk) -> None:
        desk.write("a.csv", "ID\n1\nx\n")
        fail = desk.source("a.csv", declared={"id": "INT"})
        scan = fail.scan(None, fail.end(None))
        schema = fail.schema(scan, ())
        assert schema == (Field("ID", "INT"),)
        with pytest.raises(BadRecord):
            rows(fail, scan, schema)
        mark = desk.source("a.csv", declared={"id": "INT"}, failure_strategy="LogAndContinue")
        good, bad = rows(mark, scan, schema)
        assert good[2] == 1 and isinstance(bad[2], str)
        assert mark.marks_bad_rows and not mark.keeps_bad_rows and ERROR


def test_a_bounded_goal_is_reached_when_its_rows_are(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.write("a.csv", "id\n1\n2\n")
    desk.write("b.csv", "id\n3\n")
    source = desk.source("*.csv")
    goal = source.end(None)
    a = source.end(None, 1)
    b = source.end(a, 1)
    desk.append("a.csv", "4\n")
    c = source.end(b, 5)
    assert [source.reached(position, goal) for position in (a, b, c, goal)] == [False, False, True, True]


@pytest.mark.parametrize("deleted", ["keep", "remove"])
@pytest.mark.parametrize("taken", [1, 2])
def test_a_vanished_file_is_no_part_of_a_goal(tmp_path: Path, deleted: str, taken: int) -> None:
    """Else the table would never become ready: the rest of that file will never come."""
    desk = Desk(tmp_path)
    desk.write("a.csv", "id\n1\n")
    desk.write("b.csv", "id\n2\n3\n")
    desk.write("c.csv", "id\n")
    source = desk.source("*.csv", file__deleted=deleted)
    goal, a = source.end(None), source.end(None, taken)
    assert not source.reached(a, goal)
    (tmp_path / "b.csv").unlink()
    assert source.reached(source.end(a, 1), goal)


@pytest.mark.parametrize("written", ["locked/*.csv", "locked/", "locked/a.csv"])
def test_a_folder_without_rights_is_refused(
    desk: Desk, written: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A user must learn that rights are missing, not read a traceback."""
    locked = str(desk.folder / "locked")

    def forbidden(call: Any) -> Any:
        def checked(path: Any, *given: Any, **named: Any) -> Any:
            if str(path).startswith(f"{locked}/"):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *given, **named)

        return checked

    desk.write("locked/a.csv", "id\n1\n")
    monkeypatch.setattr(os, "scandir", forbidden(os.scandir))
    monkeypatch.setattr(os, "stat", forbidden(os.stat))
    source = desk.source(written)
    with pytest.raises(SourceRefused, match=f"E303 No right to read '{locked}"):
        source.end(None)
    assert source.probe().category == "auth"
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["a.parquet", "a.orc", "a.avro", "a.csv.gz"])
def test_what_is_said_of_a_broken_file_ends_in_one_full_stop(desk: Desk, name: str) -> None:
    desk.write(name, "this is only text, whatever its name says\n")
    source = desk.source(name)
    with pytest.raises(BrokenFile) as caught:
        source.schema(source.scan(None, source.end(None)), ())
    assert caught.value.what.endswith(".") and not caught.value.what.endswith("..")


def test_parquet_files_with_a_colon_are_not_for_spark(desk: Desk) -> None:
    """Names made of times are common, and Spark's listing takes them for URIs."""
    name = "2025-01-01T10:00:00.parquet"
    parquet.write_table(pa.table({"ID": [1, 2]}), desk.folder / name)
    parquet.write_table(pa.table({"id": [3]}), desk.folder / "2025.parquet")
    source = desk.source("*.parquet")
    scan = source.scan(None, source.end(None))
    by_spark, by_arrow = source.content.readers(scan)
    assert [part["file"] for part in by_spark] == ["2025.parquet"] and [part["file"] for part in by_arrow] == [name]
    assert [row[2] for row in rows(source, scan)] == [1, 2, 3]


@pytest.mark.parametrize("strategy", ["RetryWithBackoff", "FailBatch"])
def test_bad_rows_are_read_again_while_there_is_time(tmp_path: Path, strategy: str):
    """A file caught half-written costs a wait, not a failed run at night; a row that stays bad is told in the end."""
    now, slept, notes = [0.0], list[float](), list[str]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    (tmp_path / "a.csv").write_text("id\n1\n")
    properties = {"failure_strategy": strategy, "wait.timeout": "10s", "retry.interval": "2s", "retry.multiplier": "2"}
    clock = Clock(lambda: now[0], sleep)
    source = FileSource(f"{tmp_path}/a.csv", properties, root=tmp_path, declared={}, clock=clock)

    def load() -> str:
        if now[0] < 6:
            raise BadRows("a.csv", [BadRow("a.csv:3", "2 fields are expected, 1 found", "7")], 1)
        return "loaded"

    if strategy == "FailBatch":
        with pytest.raises(BadRows):
            source.patiently(load, notes.append)
        assert slept == []
        return
    assert source.patiently(load, notes.append) == "loaded"
    assert slept == [2, 4]
    assert notes[0].endswith("1 row can't be read. Reading again in 2 s.")
    now[0] = -100.0
    with pytest.raises(BadRows, match=r"a\.csv:3"):
        source.patiently(load, notes.append)
    assert sum(slept[2:]) == 10


def test_to_retry_without_time_is_told(tmp_path: Path):
    source = FileSource("a.csv", {"failure_strategy": "RetryWithBackoff"}, root=tmp_path, declared={})
    assert ["wait.timeout" in warning for warning in source.warnings] == [True]
