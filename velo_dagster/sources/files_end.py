"""Where files end now, given how far they were read: the one place that decides what happened to each file.

A file is unchanged (same size and time of change), has grown (the bytes read before are still there, more follow), is
the same with a new time of change, has another name, or is another file under the same name. Where the hashes did not
see every byte, a file that changed without growing counts as another: reading it again costs time, trusting it could
cost rows.

A last record without a line end: if it is not whole it waits. If it is whole it is taken when the file is new to the
table (many files simply end without a newline); in a file that was seen growing it waits for its newline, or until the
file has been quiet for a minute, because the writer may be in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from velo_dagster.sources.contract import UNFINISHED
from velo_dagster.sources.files_hash import END_BYTES, Seen, covers, look
from velo_dagster.sources.files_listing import Stat
from velo_dagster.sources.files_messages import named
from velo_dagster.sources.files_position import Entry, Files

if TYPE_CHECKING:
    from velo_dagster.sources.formats.base import FileFormat

QUIET_NS = 60 * 10**9
# Some file systems keep times of change in steps of up to two seconds.
FRESH_NS = 2 * 10**9


@dataclass(frozen=True)
class Rules:
    """What the properties say about reading on. `file_records` bounds each file, `verify_full` hashes all bytes."""

    keep_gone: bool = True
    verify_full: bool = False
    file_records: int | None = None


@dataclass(frozen=True)
class Opened:
    """A file's bytes and its format, whose short name is `kind`."""

    open_: Callable[[], BinaryIO]
    format: FileFormat
    kind: str


def advance(
    since: Files,
    listed: Mapping[str, Stat],
    opened: Callable[[str], Opened],
    rules: Rules,
    *,
    now_ns: int,
    max_records: int | None = None,
) -> tuple[Files, list[str]]:
    """The position that all listed files reach now, and notes on what waits."""
    walk = _Advance(since, opened, rules, now_ns, max_records)
    entries: dict[str, Entry] = {}
    moved = _renamed(since, listed, opened)
    walk.notes += [f"{name}: renamed to {other}" for name, other in sorted(moved.items())]
    for name in sorted(since.entries.keys() | listed.keys()):
        if name in moved:
            continue
        entry = walk.file(name, since.entries.get(name), listed.get(name))
        if entry is not None:
            entries[name] = entry
    serial = max((entry.started for entry in entries.values()), default=since.serial)
    return Files(max(serial, since.serial), entries), walk.notes


def _renamed(since: Files, listed: Mapping[str, Stat], opened: Callable[[str], Opened]) -> dict[str, str]:
    """Files that vanished, by the new names that they have: kept, their rows would be there twice.

    A new file with the same content is another one, unless it has the same time of change, which renaming leaves alone.
    """
    new = {stat: name for name, stat in listed.items() if name not in since.entries}
    found: dict[str, str] = {}
    for name, entry in since.entries.items():
        other = new.get(Stat(entry.size, entry.mtime_ns)) if name not in listed and entry.read else None
        if other is not None and same_content(entry, listed[other], opened(other).open_):
            found[name] = other
    return found


def in_memory(file: Opened, size: int) -> Opened:
    """The same file; a small one is opened only once, whatever is asked of it."""
    if size > 2 * END_BYTES:
        return file
    with file.open_() as opened:
        return replace(file, open_=partial(BytesIO, opened.read(size)))


def same_content(entry: Entry, stat: Stat, open_: Callable[[], BinaryIO]) -> bool:
    """Whether everything that was read of the file is still there, as far as the hashes see."""
    if stat.size < entry.hashed or (entry.whole and stat.size != entry.size):
        return False
    touched = stat != Stat(entry.size, entry.mtime_ns)
    if touched and stat.size <= entry.size and not covers(entry.hashed, entry.full):
        return False
    seen = look(open_, entry.hashed, full=entry.full is not None)
    return seen == Seen(entry.head, entry.tail, entry.full)


class _Advance:
    """One look at all files; `budget` is how many records it may still take."""

    def __init__(
        self, since: Files, opened: Callable[[str], Opened], rules: Rules, now_ns: int, budget: int | None
    ) -> None:
        self.serial = since.serial + 1
        self.opened = opened
        self.rules = rules
        self.now_ns = now_ns
        self.budget = budget
        self.notes: list[str] = []

    def file(self, name: str, old: Entry | None, stat: Stat | None) -> Entry | None:
        """The file's entry in the new position; None where it has none."""
        if stat is not None:
            try:
                with named(name):
                    return self._present(name, old, stat)
            except FileNotFoundError:
                # It went between being listed and being opened: the same as if it had not been listed.
                pass
        return self._vanished(name, old)

    def _vanished(self, name: str, old: Entry | None) -> Entry | None:
        if old is None or not self.rules.keep_gone:
            return None
        if not old.gone:
            self.notes.append(f"{name}: gone; its rows are kept (file.deleted = keep)")
        return replace(old, gone=True)

    def _present(self, name: str, old: Entry | None, stat: Stat) -> Entry | None:
        if old is None:
            return self._from_start(name, None, stat)
        old = replace(old, gone=False)
        untouched = stat == Stat(old.size, old.mtime_ns) and not old.fresh
        done = self._capped(old) or (not old.cut and (old.whole or old.read == old.size))
        if untouched and done:
            return old
        if not untouched and not same_content(old, stat, self.opened(name).open_):
            return self._from_start(name, old, stat)
        if done and (self._capped(old) or stat.size == old.size):
            return replace(old, size=stat.size, mtime_ns=stat.mtime_ns, fresh=self._fresh(stat))
        return self._read_on(name, old, stat)

    def _from_start(self, name: str, old: Entry | None, stat: Stat) -> Entry | None:
        """A file that is new, or another one under its old name."""
        if self.budget == 0 and old is None:
            return None
        # Without room for the new rows the old ones go all the same: a position speaks of what can be read again.
        return self._extend(name, Entry(stat.size, stat.mtime_ns, 0, self.serial, "", ""), stat)

    def _read_on(self, name: str, old: Entry, stat: Stat) -> Entry | None:
        if self.budget == 0:
            return old
        grows = old.grows or stat.size > old.size
        return self._extend(name, replace(old, size=stat.size, mtime_ns=stat.mtime_ns, grows=grows), stat)

    def _extend(self, name: str, base: Entry, stat: Stat) -> Entry:
        """Take what follows `base`, as far as the bounds allow."""
        file = in_memory(self.opened(name), stat.size)
        base = replace(base, kind=file.kind, whole=not file.format.appendable, fresh=self._fresh(stat))
        entry = self._whole(base, file) if base.whole else self._lines(name, base, file)
        seen = look(file.open_, entry.hashed, full=self.rules.verify_full)
        columns = self._columns(base, entry, file)
        return replace(entry, head=seen.head, tail=seen.tail, full=seen.full, columns=columns)

    def _columns(self, base: Entry, entry: Entry, file: Opened) -> tuple[str, ...] | None:
        """What the file shows of its columns; that can change only while its first record may be its open last one."""
        if entry.read == 0:
            return None
        if base.columns is not None and base.tail_open is None:
            return base.columns
        return file.format.shown_names(file.open_, entry.stop)

    def _whole(self, base: Entry, file: Opened) -> Entry:
        entry = replace(base, read=base.size, cut=False)
        return entry if base.size == 0 else self._bounded(entry, base.read, file)

    def _lines(self, name: str, base: Entry, file: Opened) -> Entry:
        size, start = base.size, base.settled
        first = file.format.body(file.open_, size) if start == 0 else start
        if first >= size:
            return replace(base, cut=False)
        tail = file.format.tail(file.open_, first, size)
        stop, tail_open = tail.complete, None
        quiet = self.now_ns - base.mtime_ns >= QUIET_NS
        if tail.record_end is not None and (quiet or not base.grows):
            stop, tail_open = tail.record_end, tail.complete
        if stop < size:
            behind = max(stop, first)
            bytes_ = "1 byte waits" if size - behind == 1 else f"{size - behind} bytes wait"
            self.notes.append(f"{name}: {bytes_} after byte {behind} {UNFINISHED}")
        if stop <= max(first, base.read):
            return self._nothing_more(base, file, gone_bad=quiet and tail.record_end is None)
        return self._bounded(replace(base, read=stop, tail_open=tail_open, cut=False), first, file)

    def _nothing_more(self, base: Entry, file: Opened, *, gone_bad: bool) -> Entry:
        """What was delivered stays, an unterminated record too while it may still become one.

        If it is none for good, it is taken back. Then the file counts as begun anew: only so do two entries with the
        same `started` and the same `read` hold the same rows.
        """
        if base.tail_open is None or not gone_bad:
            return replace(base, cut=False)
        read = base.settled if base.settled > file.format.body(file.open_, base.size) else 0
        return replace(base, read=read, tail_open=None, started=self.serial, cut=False)

    def _bounded(self, entry: Entry, first: int, file: Opened) -> Entry:
        """Cut the entry where the load's or the file's greatest number of records is reached."""
        per_file = self.rules.file_records
        before = entry.records or 0
        bounds = [self.budget, None if per_file is None else per_file - before]
        bound = min((bound for bound in bounds if bound is not None), default=None)
        if bound is None:
            return entry
        # One record more than allowed is asked for first, to tell a file that ends here from one that is cut.
        count = file.format.limit(file.open_, first, entry.stop, bound + 1)[1]
        if count > bound:
            offset, count = file.format.limit(file.open_, first, entry.stop, bound)
            entry = replace(entry, read=offset, tail_open=None, cut=True)
        if self.budget is not None:
            self.budget -= count
        settled = count if entry.tail_open is None else count - 1
        return replace(entry, records=None if per_file is None else before + settled)

    def _capped(self, entry: Entry) -> bool:
        return self.rules.file_records is not None and (entry.records or 0) >= self.rules.file_records

    def _fresh(self, stat: Stat) -> bool:
        return self.now_ns - stat.mtime_ns < FRESH_NS
