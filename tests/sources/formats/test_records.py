"""Where records begin. If these fail, rows are torn apart or glued together at block borders."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sources.formats.reading import opener, rows_of
from velo_dagster.sources.formats.base import FileFormat, FormatOptions
from velo_dagster.sources.formats.csv import CsvFormat
from velo_dagster.sources.formats.json import JsonLinesFormat
from velo_dagster.sources.formats.records import CsvCutter
from velo_dagster.sources.formats.text import TextFormat

csv_bytes = st.text('a1,"\n\r ', max_size=30).map(str.encode)
quoted_field = st.text('a,"\n\r', max_size=4).map(lambda text: '"' + text.replace('"', '""') + '"')
neat_field = st.one_of(st.text("ab1", max_size=3), quoted_field)
neat_csv = st.lists(st.lists(neat_field, min_size=2, max_size=2).map(",".join), max_size=6).map(
    lambda rows: "".join(row + "\n" for row in rows).encode()
)
any_csv = st.one_of(csv_bytes, neat_csv)


def walk(data: bytes) -> tuple[list[tuple[int, int]], int]:
    """Records of CSV by one step per byte: starts and ends of those that have a line end, and where the rest begins."""
    records, start, at, state = [], 0, 0, "field start"
    while at < len(data):
        char = data[at : at + 1]
        if state == "quoted":
            if char == b'"' and data[at + 1 : at + 2] == b'"':
                at += 1
            elif char == b'"':
                state = "plain"
        elif char == b'"' and state == "field start":
            state = "quoted"
        elif char in b"\r\n":
            if char == b"\r" and at + 1 == len(data):
                return records, start
            records.append((start, at))
            at += data[at : at + 2] == b"\r\n"
            start, state = at + 1, "field start"
        else:
            state = "field start" if char == b"," else "plain"
        at += 1
    return records, start


@settings(max_examples=500)
@given(any_csv)
@example(b'"a""b",c\n"\n"\n')
@example(b'a"b\n"c\n')
@example(b'"a"b"c\n')
@example(b'""""\n,""\r\n')
def test_records_are_those_of_a_walk_through_the_bytes(data: bytes) -> None:
    cut = CsvCutter(",", '"').cut(data, final=False)
    records, rest = walk(data)
    assert list(zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)) == [r for r in records if r[1] > r[0]]
    assert cut.consumed == rest


def reader(kind: type[FileFormat], block: int, most: int = 20) -> FileFormat:
    return kind(FormatOptions(header=False, block=block, max_record=most))


def all_rows(kind: type[FileFormat], data: bytes, block: int, ranges: list[tuple[int, int | None]]) -> list[tuple]:
    format_ = reader(kind, block)
    names = ("value",) if kind is TextFormat else ("column_0", "column_1")
    schema = [(name, "STRING") for name in names]
    rows = []
    for start, stop in ranges:
        for batch in format_.batches(opener(data), start, stop, names, schema, frozenset(), "mark"):
            rows += [(row["_velo_at"], *row.values()) for row in batch.to_pylist()]
    return sorted(rows)


@settings(max_examples=300, deadline=None)
@given(any_csv, st.integers(1, 40), st.sampled_from([CsvFormat, TextFormat]))
@example(b'"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n1,2\n', 3, CsvFormat)
def test_blocks_do_not_matter(data: bytes, block: int, kind: type[FileFormat]) -> None:
    assert all_rows(kind, data, block, [(0, len(data))]) == all_rows(kind, data, 1000, [(0, len(data))])
    assert all_rows(kind, data, block, [(0, None)]) == all_rows(kind, data, 1000, [(0, len(data))])


@settings(max_examples=200, deadline=None)
@given(any_csv, st.integers(1, 12), st.sampled_from([CsvFormat, TextFormat]))
def test_parts_deliver_what_the_whole_delivers(data: bytes, target: int, kind: type[FileFormat]) -> None:
    ranges = reader(kind, 50).split(opener(data), 0, len(data), target)
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    assert all_rows(kind, data, 50, ranges) == all_rows(kind, data, 50, [(0, len(data))])


@settings(max_examples=200, deadline=None)
@given(any_csv, st.integers(0, 4), st.sampled_from([CsvFormat, TextFormat]))
@example(b'1111111111111,"""""\r"', 1, CsvFormat)
def test_a_bound_cuts_between_records(data: bytes, most: int, kind: type[FileFormat]) -> None:
    format_ = reader(kind, 7)
    whole = all_rows(kind, data, 50, [(0, len(data))])
    offset, count = format_.limit(opener(data), 0, len(data), most)
    assert count == min(most, len(whole))
    if 0 < offset < len(data):
        assert all_rows(kind, data, 50, [(0, offset), (offset, len(data))]) == whole
        assert len(all_rows(kind, data, 50, [(0, offset)])) == count


@settings(max_examples=300, deadline=None)
@given(any_csv, st.data(), st.sampled_from([CsvFormat, TextFormat, JsonLinesFormat]))
def test_a_file_read_while_it_grows_gives_the_same_rows(
    data: bytes, draw: st.DataObject, kind: type[FileFormat]
) -> None:
    """The tail of what is there so far is the start of what comes next."""
    format_ = reader(kind, 7, most=1000)
    cut = draw.draw(st.integers(0, len(data)))
    complete = format_.tail(opener(data[:cut]), 0, cut).complete
    end = format_.tail(opener(data), 0, len(data)).complete
    grown = format_.tail(opener(data), complete, len(data)).complete if complete else end
    assert complete <= end == max(grown, complete)
    if kind is not JsonLinesFormat and 0 < complete < end:
        parts = [row[1:] for row in all_rows(kind, data, 50, [(0, complete), (complete, end)])]
        assert parts == [row[1:] for row in all_rows(kind, data, 50, [(0, end)])]


@pytest.mark.parametrize(
    ("kind", "data", "complete", "record_end"),
    [
        (CsvFormat, b"1,2\n", 4, None),
        (CsvFormat, b"1,2\n3,4", 4, 7),
        (CsvFormat, b"1,2\n3", 4, None),
        (CsvFormat, b'1,2\n3,"4', 4, None),
        (CsvFormat, b'1,2\n3,"4\n', 4, None),
        (CsvFormat, b"1,2\r\n3,4\r", 5, 9),
        (CsvFormat, b"1,2\n3,\xc3", 4, None),
        (CsvFormat, b"", 0, None),
        (JsonLinesFormat, b'{"a":1}\n{"a":2}', 8, 15),
        (JsonLinesFormat, b'{"a":1}\n{"a":', 8, None),
        (JsonLinesFormat, b'{"a":1}\n{"a":"\xe2\x82', 8, None),
        (TextFormat, b"a\nb", 2, 3),
        (TextFormat, b"a\n\xe2\x82", 2, None),
        (TextFormat, b"a\nb\r", 2, 4),
    ],
)
def test_a_half_written_record_waits(
    kind: type[FileFormat], data: bytes, complete: int, record_end: int | None
) -> None:
    tail = kind(FormatOptions(header=False)).tail(opener(data), 0, len(data))
    assert (tail.complete, tail.record_end) == (complete, record_end)


def test_one_forgotten_quote_does_not_swallow_the_file() -> None:
    data = b'1,"a\n' + b"2,b\n" * 10
    rows = rows_of(reader(CsvFormat, 16), data, [("column_0", "BIGINT"), ("column_1", "STRING")])
    assert rows[0]["_velo_reason"] == "a quoted field is not closed, or the record is longer than 20 bytes"
    assert [row["column_0"] for row in rows[1:]] == [2] * 10
