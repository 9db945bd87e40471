"""Compressed files. If these fail, a damaged file loads as a shorter one."""

from __future__ import annotations

import bz2
import gzip

import pytest
import zstandard

from tests.sources.formats.reading import opener, rows_of
from velo_dagster.sources.formats import BrokenFile, FormatOptions, open_format
from velo_dagster.sources.formats.base import FormatMisconfigured

PLAIN = b"id,x\n" + b"".join(b"%d,row %d\n" % (number, number) for number in range(2000))
PACKERS = {"gzip": gzip.compress, "bz2": bz2.compress, "zstd": zstandard.ZstdCompressor(write_checksum=True).compress}
SCHEMA = [("id", "BIGINT"), ("x", "STRING")]


@pytest.mark.parametrize("compression", PACKERS)
@pytest.mark.parametrize("members", [1, 3])
def test_all_members_are_read_with_offsets_of_the_plain_text(compression, members: int) -> None:
    third = len(PLAIN) // 3
    pieces = [PLAIN] if members == 1 else [PLAIN[:third], PLAIN[third : 2 * third], PLAIN[2 * third :]]
    data = b"".join(PACKERS[compression](piece) for piece in pieces)
    format_ = open_format("csv", FormatOptions(compression=compression))
    rows = rows_of(format_, data, [*SCHEMA])
    assert rows == rows_of(open_format("csv", FormatOptions()), PLAIN, [*SCHEMA])
    assert not format_.appendable
    assert format_.tail(opener(data), 0, len(data)).complete == len(PLAIN)
    offset, count = format_.limit(opener(data), 0, None, 10)
    assert count == 10
    assert rows_of(format_, data, [*SCHEMA], start=offset) == rows[10:]


@pytest.mark.parametrize("compression", PACKERS)
@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_a_file_that_is_cut_short_is_refused(compression, keep: float) -> None:
    data = PACKERS[compression](PLAIN)
    with pytest.raises(BrokenFile, match="cut short"):
        rows_of(open_format("csv", FormatOptions(compression=compression)), data[: int(len(data) * keep)], [*SCHEMA])


@pytest.mark.parametrize("compression", PACKERS)
def test_a_damaged_file_is_refused(compression) -> None:
    data = bytearray(PACKERS[compression](PLAIN))
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    with pytest.raises(BrokenFile, match="broken"):
        rows_of(open_format("csv", FormatOptions(compression=compression)), bytes(data), [*SCHEMA])
    with pytest.raises(BrokenFile, match="and it is not"):
        rows_of(open_format("csv", FormatOptions(compression=compression)), PLAIN, [*SCHEMA])


@pytest.mark.parametrize("compression", PACKERS)
def test_garbage_behind_the_stream_is_refused(compression) -> None:
    data = PACKERS[compression](PLAIN) + b"xyz"
    with pytest.raises(BrokenFile):
        rows_of(open_format("csv", FormatOptions(compression=compression)), data, [*SCHEMA])


def test_zeros_behind_a_gzip_stream_are_padding() -> None:
    data = gzip.compress(PLAIN) + b"\0" * 512
    assert len(rows_of(open_format("csv", FormatOptions(compression="gzip")), data, [*SCHEMA])) == 2000


@pytest.mark.parametrize("compression", PACKERS)
def test_an_empty_file_has_no_rows(compression) -> None:
    format_ = open_format("csv", FormatOptions(compression=compression))
    assert rows_of(format_, b"", [*SCHEMA]) == []
    assert rows_of(format_, PACKERS[compression](b""), [*SCHEMA]) == []


def test_a_file_that_shrank_is_noticed() -> None:
    with pytest.raises(BrokenFile, match="before byte 500"):
        rows_of(open_format("csv", FormatOptions()), PLAIN[:400], [*SCHEMA], stop=500)


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"delimiter": "||"},
        {"delimiter": "\u00a7"},
        {"quote": "\n"},
        {"delimiter": '"'},
        {"encoding": "klingon"},
    ],
)
def test_an_option_that_cannot_be_used_is_refused_with_a_way_out(options: dict[str, str]) -> None:
    with pytest.raises(FormatMisconfigured, match="E320"):
        FormatOptions(**options)  # pyright: ignore[reportArgumentType]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(FormatMisconfigured, match="'xls' is not known"):
        open_format("xls", FormatOptions())
