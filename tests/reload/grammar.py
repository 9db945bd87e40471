"""Random statements over three small tables, from a grammar that covers what can be computed in parts.

One seed is one statement. What Spark and DuckDB mean alike is used, so that either can be asked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

TABLES: dict[str, dict[str, str]] = {
    "a": {"id": "int", "k": "int", "v": "int", "s": "text"},
    "b": {"k": "int", "w": "int", "t": "text"},
    "c": {"k": "int", "s": "text", "d": "int"},
}
WORDS = ["", "x", "y", "Zoë", "x y"]


@dataclass(frozen=True)
class Relation:
    """What stands in FROM: its text, and its columns with their types, as the query names them."""

    text: str
    columns: dict[str, str]


class Grammar:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._aliases = 0
        self._common: list[str] = []

    def statement(self) -> str:
        query, _ = self.query(2)
        return f"WITH {', '.join(self._common)} {query}" if self._common else query

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, depth: int) -> tuple[str, dict[str, str]]:
        """A query, and the columns of its result."""
        kinds = ["plain", "plain", "groups", "groups", "distinct", "windows"] + (["set"] if depth else [])
        kind = self.random.choice(kinds)
        return getattr(self, f"_{kind}")(depth)

    def _plain(self, depth: int) -> tuple[str, dict[str, str]]:
        from_ = self._from(depth)
        items = [self._value(from_.columns, type_) for type_ in self._types()]
        if self.random.random() < 0.2 and depth:
            items.append((self._scalar(from_.columns), "int"))
        return self._select("SELECT", items, from_, self._where(from_.columns, depth))

    def _distinct(self, depth: int) -> tuple[str, dict[str, str]]:
        from_ = self._from(depth)
        items = [self._value(from_.columns, type_) for type_ in self._types()]
        return self._select("SELECT DISTINCT", items, from_, self._where(from_.columns, depth))

    def _groups(self, depth: int) -> tuple[str, dict[str, str]]:
        from_ = self._from(depth)
        keys = [self._value(from_.columns, type_) for type_ in self._types(2)]
        shown = [key for key in keys if self.random.random() < 0.8]
        totals = [(self._aggregate(from_.columns), "int") for _ in range(self.random.randint(1, 3))]
        having = ""
        if self.random.random() < 0.3:
            having = f" HAVING {self._aggregate(from_.columns)} {self._compares()} {self.random.randint(0, 4)}"
        tail = f"{self._where(from_.columns, depth)} GROUP BY {', '.join(text for text, _ in keys)}{having}"
        word = "SELECT DISTINCT" if self.random.random() < 0.15 else "SELECT"
        return self._select(word, [*shown, *totals], from_, tail)

    def _windows(self, depth: int) -> tuple[str, dict[str, str]]:
        from_ = self._from(min(depth, 1))
        names = list(from_.columns)
        parts = self.random.sample(names, k=min(len(names), self.random.randint(1, 2)))
        order = ", ".join(f"{name} {self.random.choice(['ASC', 'DESC'])} NULLS FIRST" for name in names)
        numbers = [name for name, type_ in from_.columns.items() if type_ == "int"] or ["1"]
        calls = ["ROW_NUMBER()", "RANK()", f"SUM({self.random.choice(numbers)})", f"LAG({self.random.choice(numbers)})"]
        over = f"OVER (PARTITION BY {', '.join(parts)} ORDER BY {order})"
        items = [self._value(from_.columns, type_) for type_ in self._types(2)]
        items.append((f"{self.random.choice(calls)} {over}", "int"))
        word = "SELECT DISTINCT" if self.random.random() < 0.15 else "SELECT"
        return self._select(word, items, from_, self._where(from_.columns, depth))

    def _set(self, depth: int) -> tuple[str, dict[str, str]]:
        types = self._types()
        word = self.random.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "UNION ALL"])
        sides = []
        for _ in range(2):
            from_ = self._from(depth - 1)
            items = [self._value(from_.columns, type_) for type_ in types]
            sides.append(self._select("SELECT", items, from_, self._where(from_.columns, depth - 1)))
        return f"{sides[0][0]} {word} {sides[1][0]}", sides[0][1]

    def _select(
        self, word: str, items: Sequence[tuple[str, str]], from_: Relation, tail: str
    ) -> tuple[str, dict[str, str]]:
        columns = {f"c{number}": type_ for number, (_, type_) in enumerate(items)}
        listed = ", ".join(f"{text} AS {name}" for name, (text, _) in zip(columns, items, strict=True))
        return f"{word} {listed} FROM {from_.text}{tail}", columns

    # -- relations --------------------------------------------------------------------------------------------------

    def _relation(self, depth: int) -> Relation:
        alias = self._alias()
        if depth and self.random.random() < 0.35:
            query, columns = self.query(depth - 1)
            if self.random.random() < 0.3:
                name = self._alias("q")
                self._common.append(f"{name} AS ({query})")
                return self._named(name, alias, columns)
            return self._named(f"({query})", alias, columns)
        name = self.random.choice(list(TABLES))
        return self._named(name, alias, TABLES[name])

    @staticmethod
    def _named(text: str, alias: str, columns: dict[str, str]) -> Relation:
        return Relation(f"{text} AS {alias}", {f"{alias}.{name}": type_ for name, type_ in columns.items()})

    def _from(self, depth: int) -> Relation:
        left = self._relation(depth)
        for _ in range(self.random.choice([0, 0, 1, 1, 2]) if depth else 0):
            left = self._joined(left, self._relation(depth - 1))
        return left

    def _joined(self, left: Relation, right: Relation) -> Relation:
        word = self.random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        type_ = self.random.choice(["int", "int", "text"])
        sides = [[name for name, one in side.columns.items() if one == type_] for side in (left, right)]
        if not all(sides):
            return Relation(f"{left.text} CROSS JOIN {right.text}", left.columns | right.columns)
        on = f"{self.random.choice(sides[0])} = {self.random.choice(sides[1])}"
        if self.random.random() < 0.15 and word == "JOIN":
            on += f" AND {self._asked(left.columns | right.columns)}"
        if self.random.random() < 0.2 and word != "FULL JOIN":
            on += f" AND {self._test(left.columns | right.columns)}"
        only_left = word in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
        columns = left.columns if only_left else left.columns | right.columns
        return Relation(f"{left.text} {word} {right.text} ON {on}", columns)

    def _alias(self, prefix: str = "r") -> str:
        self._aliases += 1
        return f"{prefix}{self._aliases}"

    # -- expressions ------------------------------------------------------------------------------------------------

    def _types(self, most: int = 3) -> list[str]:
        return [self.random.choice(["int", "int", "text"]) for _ in range(self.random.randint(1, most))]

    def _value(self, columns: dict[str, str], type_: str) -> tuple[str, str]:
        names = [name for name, one in columns.items() if one == type_]
        if not names:
            return ("1" if type_ == "int" else "'c'"), type_
        name = self.random.choice(names)
        forms = (
            [name, name, name, f"{name} + 1", f"coalesce({name}, 0)", f"CASE WHEN {name} > 1 THEN 1 ELSE {name} END"]
            if type_ == "int"
            else [name, name, name, f"upper({name})", f"concat({name}, '!')"]
        )
        return self.random.choice(forms), type_

    def _aggregate(self, columns: dict[str, str]) -> str:
        number, _ = self._value(columns, "int")
        text, _ = self._value(columns, "text")
        return self.random.choice(
            [
                "COUNT(*)",
                f"COUNT({text})",
                f"COUNT(DISTINCT {number})",
                f"SUM({number})",
                f"MIN({number})",
                f"MAX({number})",
                f"SUM({number}) FILTER (WHERE {self._test(columns)})",
                f"COUNT(*) + MAX({number})",
            ]
        )

    def _compares(self) -> str:
        return self.random.choice(["=", "<>", "<", ">", "<=", ">="])

    def _test(self, columns: dict[str, str]) -> str:
        """A predicate of one row."""
        number, _ = self._value(columns, "int")
        text, _ = self._value(columns, "text")
        return self.random.choice(
            [
                f"{number} {self._compares()} {self.random.randint(0, 4)}",
                f"{text} = '{self.random.choice(WORDS)}'",
                f"{number} IS NULL",
                f"{text} IS NOT NULL",
                f"NOT ({number} = 2)",
                f"{number} IN (1, 3)",
            ]
        )

    def _where(self, columns: dict[str, str], depth: int) -> str:
        tests = [self._test(columns) for _ in range(self.random.choice([0, 0, 1, 2]))]
        if depth and self.random.random() < 0.4:
            tests.append(self._asked(columns))
        if not tests:
            return ""
        word = self.random.choice([" AND ", " AND ", " OR "])
        return " WHERE " + word.join(f"({test})" for test in tests)

    def _asked(self, columns: dict[str, str]) -> str:
        """A predicate that asks a subquery."""
        inner = self._relation(0)
        test = f" WHERE {self._test(inner.columns)}" if self.random.random() < 0.4 else ""
        mine, _ = self._value(columns, "int")
        theirs, _ = self._value(inner.columns, "int")
        kind = self.random.choice(["EXISTS", "NOT EXISTS", "IN", "NOT IN", "scalar", "correlated"])
        if kind in ("EXISTS", "NOT EXISTS"):
            return f"{kind} (SELECT 1 FROM {inner.text}{test or ' WHERE true'} AND {theirs} = {mine})"
        if kind in ("IN", "NOT IN"):
            return f"{mine} {kind} (SELECT {theirs} FROM {inner.text}{test})"
        if kind == "scalar":
            return f"{mine} {self._compares()} (SELECT MAX({theirs}) FROM {inner.text}{test})"
        return f"{mine} {self._compares()} {self._scalar(columns)}"

    def _scalar(self, columns: dict[str, str]) -> str:
        inner = self._relation(0)
        names = [name for name, type_ in columns.items() if type_ == "int"] or ["1"]
        theirs = [name for name, type_ in inner.columns.items() if type_ == "int"]
        total = self.random.choice(
            ["COUNT(*)", f"SUM({self.random.choice(theirs)})", f"MIN({self.random.choice(theirs)})"]
        )
        return f"(SELECT {total} FROM {inner.text} WHERE {self.random.choice(theirs)} = {self.random.choice(names)})"


def random_rows(source: random.Random, table: str, most: int) -> list[tuple]:
    """Rows with NULLs and duplicates, from few values, so that they meet."""
    values = {"int": [None, 0, 1, 2, 3, 4], "text": [None, *WORDS]}
    types = TABLES[table].values()
    return [tuple(source.choice(values[type_]) for type_ in types) for _ in range(source.randint(0, most))]
