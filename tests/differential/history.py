"""The history that every statement is taken through: files as they might change in a user's folder, step by step.

Rows are made from a fixed seed. Each step changes the files and says what happened; the same steps are written as CSV
and as JSON lines.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]

# DuckDB's types. `events.value` gets more digits in a late step, so DuckDB has room for all of them from the start.
INPUTS: dict[str, dict[str, str]] = {
    "orders": {
        "order_id": "BIGINT",
        "user_id": "BIGINT",
        "sku": "VARCHAR",
        "status": "VARCHAR",
        "amount": "DECIMAL(18,2)",
        "qty": "BIGINT",
        "ordered": "DATE",
        "note": "VARCHAR",
    },
    "users": {
        "user_id": "BIGINT",
        "name": "VARCHAR",
        "tier": "VARCHAR",
        "region": "VARCHAR",
        "manager_id": "BIGINT",
        "joined": "DATE",
    },
    "events": {
        "event_id": "BIGINT",
        "user_id": "BIGINT",
        "kind": "VARCHAR",
        "happened": "TIMESTAMP",
        "value": "DECIMAL(18,3)",
        "ok": "BOOLEAN",
    },
    "prices": {"sku": "VARCHAR", "price": "DECIMAL(18,2)", "since": "DATE"},
    "nothing": {"id": "BIGINT", "amount": "DECIMAL(10,2)"},
}
NOTES = (
    "gift",
    "call first",
    'says "hi", twice',
    "Zürich, 2. Stock",
    "naïve – 東京",
    "50%_off",
    "  padded  ",
    "O'Neill",
)
NAMES = ("Alice", "Bob", "Chloé", "Dmitri", "Eve", "Farid", "Grace", "Hana", "Ivan", "Jun", "Kofi", "Lena")


@dataclass
class Files:
    """A project's data folder in one format."""

    folder: Path
    extension: str
    made: random.Random = field(default_factory=lambda: random.Random(20240517))
    places: dict[str, Sequence[int]] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        return self.folder / "data" / f"{name}.{self.extension}"

    def write(self, name: str, rows: Iterable[Row], order: Sequence[int] = ()) -> None:
        """A whole new file; `order` turns its columns around, for columns are bound by name."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = list(INPUTS[path.parent.name])
        self.places[name] = order or range(len(columns))
        header = ",".join(columns[place] for place in self.places[name]) + "\n" if self.extension == "csv" else ""
        path.write_text(header + self._text(name, rows))

    def append(self, name: str, rows: Iterable[Row]) -> None:
        with self.path(name).open("a") as file:
            file.write(self._text(name, rows))

    def keep(self, name: str, rows: int) -> None:
        """Cut a file after its first rows."""
        path = self.path(name)
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[: rows + (self.extension == "csv")]))

    def remove(self, name: str) -> None:
        self.path(name).unlink()

    def _text(self, name: str, rows: Iterable[Row]) -> str:
        places = self.places[name]
        if self.extension == "csv":
            out = io.StringIO()
            writer = csv.writer(out, lineterminator="\n")
            writer.writerows([_csv(row[place]) for place in places] for row in rows)
            return out.getvalue()
        columns = list(INPUTS[self.path(name).parent.name])
        named = [{columns[place]: row[place] for place in places} for row in rows]
        return "".join(_json(row, spell_nulls=number % 2 == 0) + "\n" for number, row in enumerate(named))


def _csv(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    return "" if value is None else str(value)


def _json(row: dict[str, Any], *, spell_nulls: bool) -> str:
    """JSON with decimals as they are; a NULL is spelled or left out, which mean the same."""
    parts = []
    for name, value in row.items():
        if value is None and not spell_nulls:
            continue
        text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=lambda one: one.isoformat())
        parts.append(f"{json.dumps(name)}: {text}")
    return "{" + ", ".join(parts) + "}"


def orders(files: Files, first: int, count: int, month: int = 5) -> list[Row]:
    """Orders with ids from `first` on; some NULLs, some users that do not exist."""
    pick = files.made
    return [
        (
            number,
            pick.choice([None, *range(1, 15)]),
            pick.choice(["A1", "B2", "C3", "D4", "E5"]),
            pick.choice(["open", "paid", "sent", "void", None]),
            pick.choice([None, *(Decimal(pick.randrange(-5000, 50000)) / 100 for _ in range(6))]),
            pick.choice([None, *range(1, 9)]),
            date(2024, month, 1) + timedelta(days=pick.randrange(28)),
            pick.choice([None, None, *NOTES]),
        )
        for number in range(first, first + count)
    ]


def users(files: Files, ids: Iterable[int]) -> list[Row]:
    pick = files.made
    return [
        (
            number,
            NAMES[number % len(NAMES)],
            pick.choice(["GOLD", "SILVER", "BRONZE", None]),
            pick.choice(["north", "south", "east", "west"]),
            pick.choice([None, *range(1, 6)]),
            date(2020, 1, 1) + timedelta(days=pick.randrange(1500)),
        )
        for number in ids
    ]


def events(files: Files, first: int, count: int, digits: int = 1) -> list[Row]:
    pick = files.made
    return [
        (
            number,
            pick.choice([None, *range(1, 15)]),
            pick.choice(["view", "click", "buy"]),
            datetime(2024, 5, 1) + timedelta(seconds=pick.randrange(86400 * 30)),
            Decimal(pick.randrange(-999, 9999) * 2 + 1).scaleb(-digits),
            pick.choice([True, False, None]),
        )
        for number in range(first, first + count)
    ]


def bulk(files: Files) -> None:
    """Several files, all new."""
    files.write("orders/2024-05", orders(files, 100, 50))
    files.write("users/b", users(files, range(1, 13)))
    files.write("events/m", events(files, 1, 60))
    prices = [(sku, Decimal(1000 + 37 * place) / 100, date(2024, 1, 1 + place)) for place, sku in enumerate(SKUS)]
    files.write("prices/p", prices)
    files.write("nothing/n", [])


SKUS = ("A1", "A1", "B2", "C3", "C3", "F6")


def appended(files: Files) -> None:
    """Lines at the end of files, some with ids that were there before."""
    files.append("orders/2024-05", orders(files, 145, 12))
    files.append("users/b", users(files, (3, 7, 14)))
    files.append("events/m", events(files, 61, 10))


def first_by_name(files: Files) -> None:
    """New files whose names sort before the others, with their columns in another order: their rows are older."""
    files.write("orders/2024-01", orders(files, 95, 10, month=1), order=(4, 1, 2, 7, 0, 3, 6, 5))
    files.write("users/a", users(files, (1, 2, 20)), order=(5, 4, 3, 2, 1, 0))
    files.write("events/a", events(files, 1, 5))


def last_by_name(files: Files) -> None:
    """New files whose names sort last: their rows are the newest."""
    files.write("orders/2024-09", orders(files, 140, 14, month=9))
    files.write("users/c", users(files, (2, 5, 21)))
    files.append("prices/p", [("B2", Decimal("99.99"), date(2024, 9, 1))])


def doubled(files: Files) -> None:
    """Rows that are equal in all columns, NULL keys, and rows with nothing but NULLs."""
    twice = orders(files, 160, 3)
    files.append(
        "orders/2024-05", [*twice, *twice, (None,) * 8, (None, None, "A1", "paid", Decimal("7.10"), 2, None, "x")]
    )
    files.append("users/b", [(None, "Nobody", None, None, None, None), *users(files, (4, 4))])
    files.append("events/m", [(None, None, None, None, None, None), *events(files, 71, 2), *events(files, 71, 2)])


def rewritten(files: Files) -> None:
    """Files with other rows than before."""
    files.write("orders/2024-05", orders(files, 110, 45))
    files.write("users/b", users(files, (1, 2, 3, 4, 6, 8, 9)))


def truncated(files: Files) -> None:
    """Files that lost their tail; one lost all its rows."""
    files.keep("events/m", 25)
    files.keep("orders/2024-09", 0)
    files.keep("users/c", 1)


def late(files: Files) -> None:
    """Old rows in old files, a number with more digits than ever before, and the first rows of an empty input."""
    files.append("orders/2024-01", orders(files, 90, 8, month=1))
    files.append("events/a", events(files, 200, 6, digits=3))
    files.append("nothing/n", [(1, Decimal("5.00")), (2, None), (2, Decimal("12.50"))])


def removed(files: Files) -> None:
    """Files that are gone, under file.deleted = remove."""
    files.remove("orders/2024-05")
    files.remove("users/c")


STEPS: tuple[Callable[[Files], None], ...] = (
    bulk,
    appended,
    first_by_name,
    last_by_name,
    doubled,
    rewritten,
    truncated,
    late,
    removed,
)
