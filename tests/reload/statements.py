"""Random statements of a whole project: what the grammar gives, windows over time, tables with a key; and as DuckDB
would be asked for the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from tests.reload import kinds
from tests.reload.grammar import Columns, Grammar, Item, Relation
from tests.reload.kinds import KINDS
from velo_dagster.sql.dialect import Velo

INPUTS: dict[str, Columns] = {
    "a": {"id": "int", "k": "int", "s": "text", "m": "money", "x": "float", "at": "time"},
    "b": {"id": "int", "k": "int", "t": "text", "m": "money", "y": "wild", "d": "day"},
    "c": {"id": "int", "k": "int", "s": "text", "h": "huge", "x": "float", "at": "time"},
}
"""Each has rows of its own files. `id` is the key where a history wants one."""
FILES = "WITH ('file.deleted' = 'remove', 'null.value' = '~')"
ADDED = ("COUNT(", "SUM(", "MIN(", "MAX(", "AVG(")
SIZE, ADVANCE, GAP = "1h", "30m", "20m"
STARTS = "(VALUES (0), (1)) AS o(n)"
BUCKET = "time_bucket(INTERVAL '{}', {})"


@dataclass(frozen=True)
class Statement:
    """A table: its statement, and what DuckDB is asked. Without that, `left_out` says why."""

    name: str
    sql: str
    duckdb: str = ""
    columns: Mapping[str, str] | None = None
    left_out: str = ""


def declared(columns: Columns) -> str:
    return ", ".join(f"{name} {KINDS[kind].spark}" for name, kind in columns.items())


def of_files(name: str, *, keyed: bool, where: str = "") -> Statement:
    """The table of an input's rows: all of them, or the last one of each id; those that pass a test."""
    columns = INPUTS[name]
    listed = ", ".join(f"{one} PRIMARY KEY" if keyed and one == "id" else one for one in columns)
    sql = f"CREATE TABLE {name} ({declared(columns)}) AS SELECT {listed} FROM file://{name}/*.csv {FILES}{where};"
    duckdb = f"SELECT * FROM {_last(f'files_{name}', 'id')}" if keyed else f"SELECT * FROM files_{name}"
    return Statement(name, sql, duckdb + where, columns)


def _last(table: str, *keys: str) -> str:
    quoted = ", ".join(f'"{key}"' for key in keys)
    over = f"PARTITION BY {quoted} ORDER BY _file DESC, _line DESC"
    return f"(SELECT * FROM {table} QUALIFY row_number() OVER ({over}) = 1)"


def for_duckdb(sql: str) -> str:
    return sqlglot.parse_one(sql, dialect=Velo).sql("duckdb")


class Statements(Grammar):
    """The statement of one table over others; `unknown` are those that DuckDB does not have."""

    rich = True

    def made(self, name: str, unknown: frozenset[str] = frozenset()) -> Statement:
        forms = {"query": 7, "timed": 2 if "time" in self.kinds else 0, "keyed": 1, "total": 1}
        form = self.random.choices(list(forms), list(forms.values()))[0]
        sql, duckdb, columns = getattr(self, f"_{form}_table")()
        if any(table.name in unknown for table in sqlglot.parse_one(duckdb, dialect="duckdb").find_all(exp.Table)):
            self.left_out.add(kinds.READS)
        statement = f"CREATE TABLE {name} AS {sql};"
        left_out = "; ".join(sorted(self.left_out))
        return Statement(name, statement, "" if left_out else duckdb, columns, left_out)

    def _query_table(self) -> tuple[str, str, Columns]:
        query, columns = self.query(2)
        text = self.with_common(query)
        return text, for_duckdb(text), columns

    def _total_table(self) -> tuple[str, str, Columns]:
        """One row over everything."""
        from_ = self._from(self.random.choice([0, 0, 1]))
        found = self.aggregate if self.random.random() < 0.2 else self._added
        totals = [found(from_.columns) for _ in range(self.random.randint(1, 4))]
        query, columns = self.select("SELECT", totals, from_, self._where(from_.columns, 0))
        text = self.with_common(query)
        return text, for_duckdb(text), columns

    def _added(self, columns: Columns) -> Item:
        """An aggregate that new rows can be added to."""
        while True:
            before = set(self.left_out)
            call, kind = self.aggregate(columns)
            if call.startswith(ADDED) and "DISTINCT" not in call:
                return call, kind
            self.left_out = before

    # -- keys -------------------------------------------------------------------------------------------------------

    def _keyed_table(self) -> tuple[str, str, Columns]:
        """Per key the last row in the order of files and lines, if it passes the test."""
        table = self.random.choice([name for name in self.tables if name in INPUTS])
        columns = INPUTS[table]
        key = self.random.choice(["id", *columns])
        others = [name for name in columns if name != key and self.random.random() < 0.7]
        where = f" WHERE {self.test({f'r.{name}': kind for name, kind in columns.items()})}"
        where = where if self.random.random() < 0.6 else ""
        listed = ", ".join([f"r.{key}{{}}", *(f"r.{name}" for name in others)])
        sql = f"SELECT {listed.format(' PRIMARY KEY')} FROM {table} AS r{where}"
        duckdb = for_duckdb(f"SELECT {listed.format('')} FROM {table} AS r{where}")
        duckdb = duckdb.replace(f"FROM {table} AS r", f"FROM {_last(table, key)} AS r")
        return sql, duckdb, {name: columns[name] for name in (key, *others)}

    # -- windows over time ------------------------------------------------------------------------------------------

    def _timed_table(self) -> tuple[str, str, Columns]:
        timed = [name for name, columns in self.tables.items() if "time" in columns.values()]
        table = self.random.choice(timed)
        alias = self.alias()
        from_ = self.named(table, alias, self.tables[table])
        window = self.random.choice(["TUMBLING", "SLIDING", "SESSION"])
        if window != "SESSION" and self.random.random() < 0.4:
            from_ = self._with_reference(from_)
        at = self.random.choice([name for name, kind in from_.columns.items() if kind == "time"])
        usable = {name: kind for name, kind in from_.columns.items() if kind not in ("ratio", "time")}
        keys = [self.value(usable, self.random.choice(sorted({*usable.values()}))) for _ in range(self._few())]
        totals = [self.aggregate(from_.columns) for _ in range(self.random.randint(1, 2))]
        where = f" WHERE {self.test(from_.columns)}" if self.random.random() < 0.4 else ""
        groups = f" GROUP BY {', '.join(text for text, _ in keys)}" if keys else ""
        having = self.having(from_.columns, 0)
        span = {"TUMBLING": SIZE, "SLIDING": f"{SIZE}, {ADVANCE}", "SESSION": GAP}[window]
        clauses = [f" WINDOW {window}({at}, {span})", groups]
        self.random.shuffle(clauses)
        items: list[Item] = [*keys, ("window_start", "time"), ("window_end", "time"), *totals]
        sql, columns = self.select("SELECT", items, from_, where + "".join(clauses) + having)
        if not groups and having:
            sql, having = sql.removesuffix(having), ""
        if self.random.random() < 0.15:
            self.left_out.add(kinds.FINAL)
            return f"{sql} EMIT FINAL", f"SELECT 1 FROM {table}", columns
        asked = {"TUMBLING": self._tumbling, "SLIDING": self._sliding, "SESSION": self._session}[window]
        return sql, asked(from_, at, where, keys, totals, having), columns

    def _few(self) -> int:
        return self.random.choice([0, 1, 1, 1, 2])

    def _with_reference(self, from_: Relation) -> Relation:
        right = self.named("b", self.alias(), INPUTS["b"])
        on = " = ".join(self.shared(from_.columns, right.columns) or ("true", "true"))
        word = self.random.choice(["JOIN", "LEFT JOIN"])
        return Relation(f"{from_.text} {word} {right.text} ON {on}", from_.columns | right.columns)

    def _tumbling(self, from_: Relation, at: str, where: str, keys: list[Item], totals: list[Item], having: str) -> str:
        start = BUCKET.format(SIZE, at)
        return self._grouped(from_.text, start, f"{start} + INTERVAL '{SIZE}'", _and(where, at), keys, totals, having)

    def _sliding(self, from_: Relation, at: str, where: str, keys: list[Item], totals: list[Item], having: str) -> str:
        start = f"{BUCKET.format(ADVANCE, at)} - o.n * INTERVAL '{ADVANCE}'"
        text = f"{from_.text} CROSS JOIN {STARTS}"
        return self._grouped(text, start, f"{start} + INTERVAL '{SIZE}'", _and(where, at), keys, totals, having)

    def _session(self, from_: Relation, at: str, where: str, keys: list[Item], totals: list[Item], having: str) -> str:
        by = ", ".join(_asked(text) for text, _ in keys)
        over = f"OVER ({f'PARTITION BY {by} ' if by else ''}ORDER BY {at})"
        alias = at.partition(".")[0]
        new = f"CASE WHEN {at} - lag({at}) {over} <= INTERVAL '{GAP}' THEN 0 ELSE 1 END AS _new"
        rows = f"SELECT {alias}.*, {new} FROM {from_.text}{_and(_asked_where(where), at)}"
        told = f"(SELECT {alias}.*, sum(_new) {over} AS _session FROM ({rows}) AS {alias}) AS {alias}"
        groups = [*keys, (f"{alias}._session", "int")]
        return self._grouped(told, f"min({at})", f"max({at}) + INTERVAL '{GAP}'", "", keys, totals, having, groups)

    @staticmethod
    def _grouped(
        from_: str,
        start: str,
        end: str,
        where: str,
        keys: list[Item],
        totals: list[Item],
        having: str,
        groups: list[Item] | None = None,
    ) -> str:
        items = [*(_asked(text) for text, _ in keys), start, end, *(_asked(text) for text, _ in totals)]
        listed = ", ".join(f"{text} AS c{number}" for number, text in enumerate(items))
        by = [_asked(text) for text, _ in groups] if groups else [*(_asked(text) for text, _ in keys), start]
        asked = _asked_where(where)
        return f"SELECT {listed} FROM {from_}{asked} GROUP BY {', '.join(by)}{_asked_where(having)}"


def _and(where: str, at: str) -> str:
    return f"{where or ' WHERE true'} AND {at} IS NOT NULL"


def _asked(expression: str) -> str:
    """An expression in DuckDB's words."""
    return for_duckdb(f"SELECT {expression}").removeprefix("SELECT ")


def _asked_where(clause: str) -> str:
    if not clause:
        return ""
    word, _, condition = clause.strip().partition(" ")
    return f" {word} {_asked(condition)}"
