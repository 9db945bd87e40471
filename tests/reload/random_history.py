"""A random project and a random history of its files, from a seed.

Rows come in new files and at the end of files, among them old times, doubles and keys that were there before; rows are
changed and left out in files that are written again; files are cut, emptied and removed. Every table of files may be
one with a key, so that what reads it sees rows change and go one by one, or one without, which is then computed anew.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tests.reload.history import History, Step
from tests.reload.kinds import KINDS, MINUTES
from tests.reload.statements import INPUTS, Statement, Statements, of_files
from velo_dagster.crash import POINTS
from velo_dagster.engine.refresh.work import SMALL

LAYERS = (8, 3)
"""So many statements are tried in one history: over the tables of files, and over those."""
ROWS = 14
"""At most so many rows come at once."""
REACHED = [one for one in POINTS if not any(word in one for word in ("maintenance", "rejected", "positions"))]
"""Points that are reached in every load, of a landing or of a table."""
Row = list[str]
CHANGES = {"new": 2, "more": 4, "update": 4, "double": 1, "edit": 2, "less": 1, "cut": 1, "rewrite": 1, "gone": 1}
"""What may happen to the files of a table, and how often. `update`: rows with ids that were there before."""


def random_history(seed: int, steps: int = 4, layers: tuple[int, int] = LAYERS) -> History:
    chance = random.Random(seed)
    statements = _statements(chance, seed, *layers)
    files = _Files(chance)
    made = [Step(files.first(), bounds=_bounds(chance), killed=_killed(chance), small=_small(chance))]
    for _ in range(steps - 1):
        full = [one.name for one in statements if chance.random() < 0.3] if chance.random() < 0.25 else []
        changed = files.changed()
        made.append(Step(changed, _bounds(chance), _killed(chance), tuple(full), _small(chance)))
    return History(statements, tuple(made))


def _statements(chance: random.Random, seed: int, over_files: int, over_tables: int) -> tuple[Statement, ...]:
    # A row that is updated so that it fails the test goes from a table with a key.
    tests = ("", " WHERE k IS NULL OR k < 3")
    found = [of_files(name, keyed=chance.random() < 0.85, where=chance.choice(tests)) for name in INPUTS]
    for number in range(over_files):
        found.append(Statements(seed * 1000 + number, INPUTS).made(f"t{number}"))
    first = found[len(INPUTS) :]
    for number in range(over_tables):
        read = [one for one in chance.sample(first, k=3) if one.columns]
        tables = {one.name: dict(one.columns or {}) for one in read}
        tables |= {name: INPUTS[name] for name in chance.sample(list(INPUTS), k=1)}
        unknown = frozenset(one.name for one in found if one.left_out)
        found.append(Statements(seed * 1000 + 500 + number, tables).made(f"u{number}", unknown))
    return tuple(found)


def _bounds(chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.randint(1, 6) for _ in range(chance.randint(1, 2))) if chance.random() < 0.2 else ()


def _killed(chance: random.Random) -> tuple[str, int] | None:
    return (chance.choice(REACHED), chance.randint(1, 8)) if chance.random() < 0.3 else None


def _small(chance: random.Random) -> int:
    return SMALL if chance.random() < 0.1 else 0


class _Files:
    """The rows of every file as they are now."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._rows: dict[str, list[Row]] = {}
        rare = chance.random() < 0.15
        self._values = {name: [*kind.values, *kind.rare] if rare else list(kind.values) for name, kind in KINDS.items()}

    def first(self) -> Mapping[str, str | None]:
        for table in INPUTS:
            for number in self._chance.sample(range(2, 6), k=self._chance.randint(1, 2)):
                self._rows[f"{table}/{number}.csv"] = self._new(table)
        return {name: self._text(name) for name in self._rows}

    def changed(self) -> Mapping[str, str | None]:
        before = {name: [list(row) for row in rows] for name, rows in self._rows.items()}
        for table in self._chance.sample(list(INPUTS), k=self._chance.choice([1, 1, 2, 3])):
            for _ in range(self._chance.choice([1, 1, 2])):
                self._change(table)
        names = [*before, *(name for name in self._rows if name not in before)]
        return {
            name: self._text(name) if name in self._rows else None
            for name in names
            if before.get(name) != self._rows.get(name)
        }

    def _change(self, table: str) -> None:
        there = [name for name in self._rows if name.startswith(f"{table}/")]
        what = self._chance.choices(list(CHANGES), list(CHANGES.values()))[0]
        if what == "new" or not there:
            self._rows[f"{table}/{self._chance.randint(0, 9)}.csv"] = self._new(table)
            return
        name = self._chance.choice(there)
        rows = self._rows[name]
        if what == "more":
            rows += self._new(table)
        elif what == "update":
            ids = [row[0] for one in there for row in self._rows[one]] or ["0"]
            rows += [[self._chance.choice(ids), *row[1:]] for row in self._new(table)[:5]]
        elif what == "double":
            rows += [list(row) for row in self._chance.choices(rows, k=2)] if rows else self._new(table)
        elif what == "edit" and rows:
            row = self._chance.choice(rows)
            place = self._chance.randrange(len(row))
            row[place] = self._value(list(INPUTS[table].values())[place])
        elif what == "less" and rows:
            del rows[self._chance.randrange(len(rows))]
        elif what == "cut":
            del rows[self._chance.randint(0, len(rows)) :]
        elif what == "gone" and len(there) > 1:
            del self._rows[name]
        else:
            self._rows[name] = self._new(table)

    def _new(self, table: str) -> list[Row]:
        kinds = INPUTS[table]
        rows = [[self._value(kind) for kind in kinds.values()] for _ in range(self._chance.randint(0, ROWS))]
        for row in rows:
            # More keys than values otherwise: a table with a key should not have five rows only.
            row[0] = str(self._chance.randint(0, 20)) if self._chance.random() < 0.95 else "~"
        return rows

    def _value(self, kind: str) -> str:
        if self._chance.random() < 0.12:
            return "~"
        if kind == "time" and self._chance.random() < 0.9:
            return self._chance.choice(MINUTES)
        return self._chance.choice(self._values[kind])

    def _text(self, name: str) -> str:
        table = name.partition("/")[0]
        lines = [",".join(value if value == "~" else _quoted(value) for value in row) for row in self._rows[name]]
        return "\n".join([",".join(INPUTS[table]), *lines]) + "\n"


def _quoted(value: str) -> str:
    doubled = value.replace('"', '""')
    return f'"{doubled}"'
