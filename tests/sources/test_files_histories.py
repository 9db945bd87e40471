"""Whatever happens to files between loads, applying scans step by step gives the rows of one scan from nothing.

If this fails, a user's table has rows that no file has, or lacks rows that one has. Files live in memory here and are read
by a line format of a dozen lines, so that many histories can be tried; the real formats are tried elsewhere.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from velo_dagster.sources.files_end import QUIET_NS, Opened, Rules, advance
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


LINE = st.sampled_from([b"a", b"bb", b"{x}", b"{x", b"ccc", b""])
TEXTS = st.lists(LINE, max_size=4).map(b"\n".join)
NAMES = st.sampled_from(["f", "g", "hz"])
ACTIONS = st.one_of(
    st.tuples(st.just("append"), NAMES, TEXTS),
    st.tuples(st.just("end line"), NAMES, st.just(b"\n")),
    st.tuples(st.just("rewrite"), NAMES, TEXTS),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 6)),
    st.tuples(st.just("delete"), NAMES, st.none()),
    st.tuples(st.just("touch"), NAMES, st.none()),
    st.tuples(st.just("wait"), NAMES, st.sampled_from([0, 1, 5, 120])),
    st.tuples(st.just("load"), NAMES, st.sampled_from([None, None, 1, 2, 5])),
)


def act(world: World, action: tuple[str, str, Any]) -> None:
    what, name, argument = action
    data = world.files.get(name, (b"", 0))[0]
    if what in ("append", "end line"):
        world.write(name, data + argument)
    elif what == "rewrite":
        world.write(name, argument)
    elif what == "truncate":
        world.write(name, data[:argument])
    elif what == "touch" and name in world.files:
        world.write(name, data)
    elif what == "delete":
        world.files.pop(name, None)
    elif what == "wait":
        world.now += argument * SECOND


@settings(max_examples=400, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=14), full=st.booleans(), keep=st.booleans(), cap=st.sampled_from([None, None, 2]))
def test_steps_equal_one_scan_from_nothing(
    actions: list[tuple[str, str, Any]], full: bool, keep: bool, cap: int | None
) -> None:
    world, rules = World(), Rules(keep_gone=keep, verify_full=full, file_records=cap)
    positions, rows = [Files()], Rows()
    for action in [*actions, ("load", "", None)]:
        act(world, action)
        if action[0] != "load":
            continue
        position = world.end(positions[-1], rules, action[2])
        before = len(rows)
        rows = world.apply(rows, positions[-1], position)
        if action[2] is not None:
            assert len(rows) - before <= action[2]
        positions.append(position)
        check_one_scan(world, rows, positions)
    world.now += 2 * QUIET_NS
    last = world.end(positions[-1], rules, None)
    rows = world.apply(rows, positions[-1], last)
    check_complete(world, rows, last, cap)
    assert world.apply(rows, last, world.end(last, rules, None)) == rows


def check_one_scan(world: World, rows: Rows, positions: list[Files]) -> None:
    """From nothing, and from any earlier position by way of nothing else, the same rows come."""
    until = positions[-1]
    readable = {name for name, entry in until.entries.items() if is_as_recorded(world, name, entry)}
    bulk = {name: entry for name, entry in until.entries.items() if name in readable}
    fresh = world.apply({}, Files(), Files(until.serial, bulk))
    assert fresh == {key: line for key, line in rows.items() if key[0] in readable}


def is_as_recorded(world: World, name: str, entry: Entry) -> bool:
    """Gone files, and those that a bounded load has put off, can't be read again as they were delivered."""
    stat = world.listed().get(name)
    return stat == Stat(entry.size, entry.mtime_ns)


def check_complete(world: World, rows: Rows, position: Files, cap: int | None) -> None:
    for name in world.files:
        file = world.opened(name)
        records = file.format.records(file.open_, 0, None)  # type: ignore[attr-defined]
        data = file.open_().read()
        if file.format.appendable and not data.endswith(b"\n") and records and Lines(True).tail(file.open_, 0, len(data)).record_end is None:
            records.pop()
        expected = records if cap is None else records[:cap]
        assert [(at, line) for (n, at), line in sorted(rows.items()) if n == name] == expected
    gone = {name for name, _ in rows} - world.files.keys()
    assert all(position.entries[name].gone for name in gone)
