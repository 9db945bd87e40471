"""Random statements over some small tables, from a grammar that covers what can be computed in parts.

One seed is one statement. What Spark and DuckDB mean alike is used, so that either can be asked; where that is not so,
the grammar notes why (`left_out`). Which kinds of values the tables hold decides what is asked of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.reload import kinds
from tests.reload.kinds import KINDS

Columns = dict[str, str]
Item = tuple[str, str]
"""An expression and its kind."""

TABLES: dict[str, Columns] = {
    "a": {"id": "int", "k": "int", "v": "int", "s": "text"},
    "b": {"k": "int", "w": "int", "t": "text"},
    "c": {"k": "int", "s": "text", "d": "int"},
}
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
SUMMED = ("int", "money", "huge", "float", "wild")


@dataclass(frozen=True)
class Relation:
    """What stands in FROM: its text, and its columns with their kinds, as the query names them."""

    text: str
    columns: Columns


class Grammar:
    rich = False
    """Whether what the product rewrites before any engine sees it may be used, and functions that round."""

    def __init__(self, seed: int, tables: Mapping[str, Columns] = TABLES) -> None:
        self.random = random.Random(seed)
        self.left_out: set[str] = set()
        self.tables = tables
        there = {kind for columns in tables.values() for kind in columns.values()}
        self.kinds = sorted({"int", "text", *there} - {"ratio"})
        self.summed = [kind for kind in SUMMED if kind in self.kinds]
        self._aliases = 0
        self._common: list[str] = []

    def statement(self) -> str:
        return self.with_common(self.query(2)[0])

    def with_common(self, query: str) -> str:
        return f"WITH {', '.join(self._common)} {query}" if self._common else query

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, depth: int) -> tuple[str, Columns]:
        """A query, and the columns of its result."""
        forms = ["plain", "plain", "groups", "groups", "distinct", "windows"] + (["set"] if depth else [])
        return getattr(self, f"_{self.random.choice(forms)}")(depth)

    def _plain(self, depth: int) -> tuple[str, Columns]:
        from_ = self._from(depth)
        items = [self.value(from_.columns, kind) for kind in self._kinds(from_.columns)]
        if self.random.random() < 0.2 and depth:
            items.append(self._scalar(from_.columns))
        return self.select("SELECT", items, from_, self._where(from_.columns, depth))

    def _distinct(self, depth: int) -> tuple[str, Columns]:
        from_ = self._from(depth)
        items = [self.value(from_.columns, kind) for kind in self._kinds(from_.columns)]
        return self.select("SELECT DISTINCT", items, from_, self._where(from_.columns, depth))

    def _groups(self, depth: int) -> tuple[str, Columns]:
        from_ = self._from(depth)
        keys = [self.value(from_.columns, kind) for kind in self._kinds(from_.columns, 2)]
        shown = [key for key in keys if self.random.random() < 0.8]
        totals = [self.aggregate(from_.columns) for _ in range(self.random.randint(1, 3))]
        tail = f"{self._where(from_.columns, depth)} GROUP BY {', '.join(text for text, _ in keys)}"
        tail += self.having(from_.columns, depth)
        word = "SELECT DISTINCT" if self.random.random() < 0.15 else "SELECT"
        return self.select(word, [*shown, *totals], from_, tail)

    def having(self, columns: Columns, depth: int) -> str:
        if self.random.random() >= 0.3:
            return ""
        total, kind = self.aggregate(columns)
        if kind == "ratio":
            self.left_out.add(kinds.ROUNDED)
        if depth and self.rich and kind == "int" and self.random.random() < 0.3:
            return f" HAVING {total} {self._compares()} {self._of_all()}"
        return f" HAVING {total} {self._compares()} {self.random.choice(KINDS[kind].literals)}"

    def _windows(self, depth: int) -> tuple[str, Columns]:
        from_ = self._from(min(depth, 1))
        names = [name for name, kind in from_.columns.items() if kind != "ratio"] or list(from_.columns)
        parts = self.random.sample(names, k=min(len(names), self.random.randint(1, 2)))
        order = ", ".join(f"{name} {self.random.choice(['ASC', 'DESC'])} NULLS FIRST" for name in from_.columns)
        if set(from_.columns) != set(names):
            self.left_out.add(kinds.ROUNDED)
        items = [self.value(from_.columns, kind) for kind in self._kinds(from_.columns, 2)]
        for _ in range(self.random.choice([1, 1, 2]) if self.rich else 1):
            call, kind, framed = self._row_function(from_.columns)
            frame = " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW" if framed and self.random.random() < 0.3 else ""
            items.append((f"{call} OVER (PARTITION BY {', '.join(parts)} ORDER BY {order}{frame})", kind))
        word = "SELECT DISTINCT" if self.random.random() < 0.15 else "SELECT"
        return self.select(word, items, from_, self._where(from_.columns, depth))

    def _row_function(self, columns: Columns) -> tuple[str, str, bool]:
        """A call, its kind, and whether it takes a frame."""
        name, kind = self._some(columns, self.kinds)
        number, its_kind = self._some(columns, self.summed)
        calls = [
            ("ROW_NUMBER()", "int", False),
            ("RANK()", "int", False),
            (f"LAG({name})", kind, False),
            (f"SUM({number})", its_kind, True),
        ]
        if self.rich:
            calls += [
                ("DENSE_RANK()", "int", False),
                (f"LEAD({name}, 2)", kind, False),
                (f"COUNT({name})", "int", True),
                (f"FIRST_VALUE({name})", kind, True),
                (f"MAX({name})", kind, True),
                (f"AVG({number})", "ratio", True),
            ]
        chosen = self.random.choice(calls)
        if chosen[0].startswith(("SUM", "AVG")):
            self._summed(its_kind)
        return chosen

    def _set(self, depth: int) -> tuple[str, Columns]:
        word = self.random.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "UNION ALL"])
        relations = [self._from(depth - 1) for _ in range(2)]
        wanted = self._kinds(relations[0].columns)
        sides = []
        for from_ in relations:
            items = [self.value(from_.columns, kind) for kind in wanted]
            sides.append(self.select("SELECT", items, from_, self._where(from_.columns, depth - 1)))
        return f"{sides[0][0]} {word} {sides[1][0]}", sides[0][1]

    def select(self, word: str, items: Sequence[Item], from_: Relation, tail: str) -> tuple[str, Columns]:
        columns = {f"c{number}": kind for number, (_, kind) in enumerate(items)}
        if "DISTINCT" in word and "ratio" in columns.values():
            self.left_out.add(kinds.ROUNDED)
        listed = ", ".join(f"{text} AS {name}" for name, (text, _) in zip(columns, items, strict=True))
        return f"{word} {listed} FROM {from_.text}{tail}", columns

    # -- relations --------------------------------------------------------------------------------------------------

    def _relation(self, depth: int) -> Relation:
        alias = self.alias()
        if depth and self.random.random() < 0.35:
            query, columns = self.query(depth - 1)
            if self.random.random() < 0.3:
                name = self.alias("q")
                self._common.append(f"{name} AS ({query})")
                return self.named(name, alias, columns)
            return self.named(f"({query})", alias, columns)
        name = self.random.choice(list(self.tables))
        return self.named(name, alias, self.tables[name])

    @staticmethod
    def named(text: str, alias: str, columns: Columns) -> Relation:
        return Relation(f"{text} AS {alias}", {f"{alias}.{name}": kind for name, kind in columns.items()})

    def _from(self, depth: int) -> Relation:
        left = self._relation(depth)
        for _ in range(self.random.choice([0, 0, 1, 1, 2]) if depth else 0):
            left = self._joined(left, self._relation(depth - 1))
        return left

    def _joined(self, left: Relation, right: Relation) -> Relation:
        word = self.random.choice(JOINS)
        pair = self.shared(left.columns, right.columns)
        if pair is None:
            return Relation(f"{left.text} CROSS JOIN {right.text}", left.columns | right.columns)
        on = " = ".join(pair)
        if self.random.random() < 0.15 and word == "JOIN":
            on += f" AND {self._asked(left.columns | right.columns)}"
        if self.random.random() < 0.2 and word != "FULL JOIN":
            on += f" AND {self.test(left.columns | right.columns)}"
        only_left = word in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
        columns = left.columns if only_left else left.columns | right.columns
        return Relation(f"{left.text} {word} {right.text} ON {on}", columns)

    def shared(self, one: Columns, other: Columns) -> tuple[str, str] | None:
        """A column of each that can be equal."""
        both = [kind for kind in self.kinds if kind in one.values() and kind in other.values()]
        if not both:
            return None
        kind = "int" if "int" in both and self.random.random() < 0.6 else self.random.choice(both)
        first, second = ([name for name, its in side.items() if its == kind] for side in (one, other))
        return self.random.choice(first), self.random.choice(second)

    def alias(self, prefix: str = "r") -> str:
        self._aliases += 1
        return f"{prefix}{self._aliases}"

    # -- expressions ------------------------------------------------------------------------------------------------

    def _kinds(self, columns: Columns, most: int = 3) -> list[str]:
        """Kinds of which there mostly are columns."""
        there = [kind for kind in columns.values() if kind in self.kinds]
        return [self.random.choice([*there, *there, "int", "text"]) for _ in range(self.random.randint(1, most))]

    def value(self, columns: Columns, kind: str) -> Item:
        names = [name for name, one in columns.items() if one == kind]
        if not names:
            return f"coalesce(NULL, {KINDS[kind].constant})", kind
        name = self.random.choice(names)
        forms = KINDS[kind].forms
        form = self.random.choice(forms) if forms and self.random.random() < 0.5 else "{}"
        return form.replace("{}", name), kind

    def _some(self, columns: Columns, wanted: Sequence[str]) -> Item:
        """A column of one of some kinds, if there is one; now and then a ratio, of which DuckDB then has another."""
        names = [(name, kind) for name, kind in columns.items() if kind in wanted]
        ratios = [(name, kind) for name, kind in columns.items() if kind == "ratio"]
        if ratios and self.random.random() < 0.15:
            self.left_out.add(kinds.ROUNDED)
            return self.random.choice(ratios)
        return self.random.choice(names) if names else (f"coalesce(NULL, {KINDS[wanted[0]].constant})", wanted[0])

    def any_value(self, columns: Columns, wanted: Sequence[str]) -> Item:
        name, kind = self._some(columns, wanted)
        return self.value({name: kind}, kind)

    def aggregate(self, columns: Columns) -> Item:
        number, kind = self.any_value(columns, self.summed)
        value, its_kind = self.any_value(columns, self.kinds)
        calls = [
            ("COUNT(*)", "int"),
            (f"COUNT({value})", "int"),
            (f"COUNT(DISTINCT {value})", "int"),
            (f"SUM({number})", kind),
            (f"MIN({value})", its_kind),
            (f"MAX({value})", its_kind),
            (f"SUM({number}) FILTER (WHERE {self.test(columns)})", kind),
        ]
        if kind == "int":
            calls.append((f"COUNT(*) + MAX({number})", kind))
        if self.rich:
            calls += [
                (f"AVG({number})", "ratio"),
                (f"STDDEV({number})", "ratio"),
                (f"VAR_POP({number})", "ratio"),
                (f"MEDIAN({number})", "ratio"),
                (f"AVG(DISTINCT {number})", "ratio"),
                (f"SUM(DISTINCT {number})", kind),
            ]
        call, its = self.random.choice(calls)
        if call.startswith(("SUM", "AVG")):
            self._summed(kind)
        elif its == "ratio" and kind in ("float", "wild"):
            self.left_out.add(kinds.INFINITE)
        elif its == "ratio" and kind in ("money", "huge"):
            self.left_out.add(kinds.TOO_MANY_DIGITS)
        return call, its

    def _summed(self, kind: str) -> None:
        if kind == "wild":
            self.left_out.add(kinds.WILD)

    def _compares(self) -> str:
        return self.random.choice(["=", "<>", "<", ">", "<=", ">="])

    def test(self, columns: Columns) -> str:
        """A predicate of one row."""
        value, kind = self.any_value(columns, self.kinds)
        one, other = self.random.choices(KINDS[kind].literals, k=2)
        return self.random.choice(
            [
                f"{value} {self._compares()} {one}",
                f"{value} {self._compares()} {one}",
                f"{value} IS NULL",
                f"{value} IS NOT NULL",
                f"NOT ({value} = {one})",
                f"{value} IN ({one}, {other})",
            ]
        )

    def _where(self, columns: Columns, depth: int) -> str:
        tests = [self.test(columns) for _ in range(self.random.choice([0, 0, 1, 2]))]
        if depth and self.random.random() < 0.4:
            tests.append(self._asked(columns))
        if not tests:
            return ""
        word = self.random.choice([" AND ", " AND ", " OR "])
        return " WHERE " + word.join(f"({test})" for test in tests)

    def _asked(self, columns: Columns) -> str:
        """A predicate that asks a subquery."""
        inner = self._relation(0)
        test = f" WHERE {self.test(inner.columns)}" if self.random.random() < 0.4 else ""
        _, kind = self._some(columns, [kind for kind in self.kinds if kind in inner.columns.values()] or ["int"])
        mine, theirs = (self.value(side, kind)[0] for side in (columns, inner.columns))
        forms = ["EXISTS", "NOT EXISTS", "IN", "NOT IN", "scalar", "correlated"]
        form = self.random.choice([*forms, "ANY", "ALL"] if self.rich else forms)
        if form in ("EXISTS", "NOT EXISTS"):
            return f"{form} (SELECT 1 FROM {inner.text}{test or ' WHERE true'} AND {theirs} = {mine})"
        if form in ("IN", "NOT IN"):
            return f"{mine} {form} (SELECT {theirs} FROM {inner.text}{test})"
        if form in ("ANY", "ALL"):
            tied = self._tied(columns, inner, test)
            return f"{mine} {self._compares()} {form} (SELECT {theirs} FROM {inner.text}{test}{tied})"
        if form == "scalar":
            return f"{mine} {self._compares()} (SELECT MAX({theirs}) FROM {inner.text}{test})"
        value, its = self._scalar(columns)
        return f"{self.value(columns, its)[0]} {self._compares()} {value}"

    def _tied(self, columns: Columns, inner: Relation, test: str) -> str:
        """What ties rows of a subquery to those that ask it, now and then."""
        pair = self.shared(inner.columns, columns) if self.random.random() < 0.4 else None
        return f" {'AND' if test else 'WHERE'} {' = '.join(pair)}" if pair else ""

    def _scalar(self, columns: Columns) -> Item:
        """A value that a subquery gives for a row."""
        inner = self._relation(0)
        number, kind = self._some(inner.columns, self.summed)
        value, its = self._some(inner.columns, self.kinds)
        total = self.random.choice([("COUNT(*)", "int"), (f"SUM({number})", kind), (f"MIN({value})", its)])
        if total[0].startswith("SUM"):
            self._summed(kind)
        pair = self.shared(inner.columns, columns)
        where = f" WHERE {' = '.join(pair)}" if pair else ""
        return f"(SELECT {total[0]} FROM {inner.text}{where})", total[1]

    def _of_all(self) -> str:
        """A count that does not depend on the row that asks for it."""
        inner = self._relation(0)
        return f"(SELECT COUNT(*) FROM {inner.text} WHERE {self.test(inner.columns)})"
