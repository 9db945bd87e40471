"""Whatever happens to files between loads, applying scans step by step gives the rows of one scan from nothing.

If this fails, a user's table has rows that no file has, or lacks rows that one has. Files live in memory here and are
read by a line format of a dozen lines, so that many histories can be tried; the real formats are tried elsewhere.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velo_dagster.sources.files_end import QUIET_NS, Opened, Rules, advance, same_content
from velo_dagster.sources.files_listing import Stat
from velo_dagster.sources.files_position import Entry, Files, Range, between

SECOND = 10**9
Rows = dict[tuple[str, int], bytes]


@dataclass(frozen=True)
class Tail:
    complete: int
    record_end: int | None


class Lines:
    """Records end with a newline; one that begins with `{` and does not end with `}` is not whole."""

    def __init__(self, appendable: bool) -> None:
        self.appendable = appendable

    def shown_names(self, open_: Any, stop: int | None) -> tuple[str, ...]:
        return ("line",)

    def body(self, open_: Any, size: int) -> int:
        return 0

    def records(self, open_: Any, start: int, stop: int | None) -> list[tuple[int, bytes]]:
        data = open_().read()
        data = data[start : len(data) if stop is None else stop]
        found, at = [], start
        for line in data.splitlines(keepends=True):
            found.append((at, line.rstrip(b"\n")))
            at += len(line)
        return found

    def tail(self, open_: Any, start: int, size: int) -> Tail:
        data = open_().read()[start:size]
        complete = data.rfind(b"\n") + 1
        rest = data[complete:]
        whole = bool(rest) and (not rest.startswith(b"{") or rest.endswith(b"}"))
        return Tail(start + complete, size if whole else None)

    def limit(self, open_: Any, start: int, stop: int | None, records: int) -> tuple[int, int]:
        found = self.records(open_, start, stop)
        end = len(open_().read()) if stop is None else stop
        return (found[records][0], records) if len(found) > records else (end, len(found))


@dataclass
class World:
    """A folder in memory, and its clock."""

    now: int = 1_000_000 * SECOND
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def write(self, name: str, data: bytes, touch: bool = True) -> None:
        old = self.files.get(name)
        self.files[name] = (data, self.now if touch or old is None else old[1])

    def listed(self) -> dict[str, Stat]:
        return {name: Stat(len(data), mtime) for name, (data, mtime) in self.files.items()}

    def opened(self, name: str) -> Opened:
        if name not in self.files:
            raise FileNotFoundError(name)
        format_: Any = Lines(appendable=not name.endswith("z"))
        return Opened(partial(io.BytesIO, self.files[name][0]), format_, "lines")

    def end(self, since: Files, rules: Rules, max_records: int | None) -> Files:
        found, _ = advance(since, self.listed(), self.opened, rules, now_ns=self.now, max_records=max_records)
        return Files.parse(found.to_json())

    def read(self, item: Range) -> Rows:
        file = self.opened(item.file)
        records = file.format.records(file.open_, item.start, item.stop)  # type: ignore[attr-defined]
        return {(item.file, at): line for at, line in records}

    def apply(self, rows: Rows, since: Files, until: Files) -> Rows:
        what = between(since, until)
        kept = {
            (name, at): line
            for (name, at), line in rows.items()
            if name not in what.removed_files and not any(name == n and at >= from_ for n, from_ in what.removed_tails)
        }
        for item in what.ranges:
            added = self.read(item)
            assert not added.keys() & kept.keys(), "a row was delivered twice"
            kept |= added
        return kept


LINE = st.sampled_from([b"a", b"b", b"{x}", b"{x", b""])
TEXTS = st.lists(LINE, min_size=1, max_size=3).map(b"\n".join)
NAMES = st.sampled_from(["f", "f", "f", "g", "hz"])
ACTIONS = st.one_of(
    st.tuples(st.just("append"), NAMES, TEXTS),
    st.tuples(st.just("append"), NAMES, st.sampled_from([b"\n", b"a", b"}"])),
    st.tuples(st.just("rewrite"), NAMES, TEXTS),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 4)),
    st.tuples(st.sampled_from(["delete", "touch", "edit"]), NAMES, st.none()),
)
BOUNDS = st.sampled_from([None, None, None, 1, 2])
WAITS = st.sampled_from([0, 0, 5, 120])
STEPS = st.tuples(st.lists(ACTIONS, min_size=1, max_size=2), WAITS, BOUNDS)


def act(world: World, action: tuple[str, str, Any]) -> None:
    what, name, argument = action
    data = world.files.get(name, (b"", 0))[0]
    if what == "append":
        world.write(name, data + argument)
    elif what == "rewrite":
        world.write(name, argument)
    elif what == "truncate":
        world.write(name, data[:argument])
    elif what in ("touch", "edit") and name in world.files:
        world.write(name, data.translate(bytes.maketrans(b"ab", b"ba")) if what == "edit" else data)
    elif what == "delete":
        world.files.pop(name, None)


HISTORIES = given(
    steps=st.lists(STEPS, min_size=1, max_size=6),
    full=st.booleans(),
    keep=st.booleans(),
    cap=st.sampled_from([None, None, 2]),
)


@settings(max_examples=500, deadline=None)
@HISTORIES
def test_steps_equal_one_scan_from_nothing(steps: list[Any], full: bool, keep: bool, cap: int | None) -> None:
    play(steps, Rules(keep_gone=keep, verify_full=full, file_records=cap))


@pytest.mark.fuzz
@settings(max_examples=20_000, deadline=None)
@HISTORIES
def test_steps_equal_one_scan_from_nothing_at_length(steps: list[Any], full: bool, keep: bool, cap: int | None) -> None:
    play(steps, Rules(keep_gone=keep, verify_full=full, file_records=cap))


def play(steps: list[Any], rules: Rules) -> None:
    """Live through a history, loading after every step, and compare."""
    world = World()
    positions, delivered = [Files()], [Rows()]
    for actions, wait, bound in steps:
        for action in actions:
            act(world, action)
        world.now += wait * SECOND
        position = world.end(positions[-1], rules, bound)
        rows = world.apply(delivered[-1], positions[-1], position)
        assert bound is None or len(rows) - len(delivered[-1]) <= bound
        positions.append(position)
        delivered.append(rows)
        check_one_scan(world, positions, delivered)
    world.now += 2 * QUIET_NS
    last = world.end(positions[-1], rules, None)
    rows = world.apply(delivered[-1], positions[-1], last)
    check_complete(world, rows, last, rules.file_records)
    assert world.apply(rows, last, world.end(last, rules, None)) == rows


def check_one_scan(world: World, positions: list[Files], delivered: list[Rows]) -> None:
    """From nothing, and from every earlier position at once, the same rows come as step by step."""
    until, rows = positions[-1], delivered[-1]
    readable = {name for name, entry in until.entries.items() if is_as_recorded(world, name, entry)}
    for since, before in zip(positions, delivered, strict=True):
        jumped = world.apply(of(before, readable), only(since, readable), only(until, readable))
        assert jumped == of(rows, readable)


def only(position: Files, names: set[str]) -> Files:
    return Files(position.serial, {name: entry for name, entry in position.entries.items() if name in names})


def of(rows: Rows, names: set[str]) -> Rows:
    return {key: line for key, line in rows.items() if key[0] in names}


def is_as_recorded(world: World, name: str, entry: Entry) -> bool:
    """Gone files, and those that a bounded load has put off, can't be read again as they were delivered."""
    stat = world.listed().get(name)
    recorded = Stat(entry.size, entry.mtime_ns)
    return stat == recorded and same_content(entry, recorded, world.opened(name).open_)


def check_complete(world: World, rows: Rows, position: Files, cap: int | None) -> None:
    for name in world.files:
        file = world.opened(name)
        records = file.format.records(file.open_, 0, None)  # type: ignore[attr-defined]
        size = len(file.open_().read())
        tail = file.format.tail(file.open_, 0, size)
        if file.format.appendable and tail.complete < size and tail.record_end is None:
            records.pop()
        expected = records if cap is None else records[:cap]
        assert [(at, line) for (n, at), line in sorted(rows.items()) if n == name] == expected
    gone = {name for name, _ in rows} - world.files.keys()
    assert all(position.entries[name].gone for name in gone)
