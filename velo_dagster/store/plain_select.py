"""Which SELECTs mean the same in DuckDB and in Spark, and how DuckDB is told them.

A statement goes to DuckDB only if every part of it is on the list below, with the types of its columns known; for
anything else `NeedsSpark` says why, and Spark answers. The list leaves out whatever the two treat differently or may:
arithmetic, casts, implicit conversions between text and numbers, floats in groups and sums, backslashes in text.
What differs but can be put right is written out: where NULLs sort, the type of a sum, names in any case, `*` without
hidden columns, the names of unnamed results, names that Delta refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from velo_dagster.errors import Span, Terminal, VeloError
from velo_dagster.sql.names import sanitise
from velo_dagster.sql.problems import nearest
from velo_dagster.store.plain_types import INTEGERS, NeedsSpark, Typed, alike, comparable, decimal, exact, literal, only
from velo_dagster.store.reader import Column

COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}
CLAUSES = {"expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit", "offset"}


class UnknownColumn(Terminal, VeloError):
    """A column that none of the tables in FROM has."""

    code = "Q602"

    def __init__(self, name: str, known: Sequence[str], where: Span | None) -> None:
        near = nearest(name, known)
        hint = [f"Did you mean {' or '.join(near)}?"] if near else []
        listed = f"There are {', '.join(known)}." if known else "Name the table that has it: FROM …"
        super().__init__(f"There is no column '{name}'.", where=where, steps=[*hint, listed])


def _place(column: exp.Column) -> Span | None:
    """Where the column's name stands in the query; the parser notes the place of its last character."""
    at = column.this.meta
    return Span("query", at["line"], at["col"] - (at["end"] - at["start"])) if "col" in at else None


@dataclass(frozen=True)
class Translated:
    """The SELECT in DuckDB's words. `tables` maps the relations it reads to table names; `names` are the result's."""

    sql: str
    names: tuple[str, ...]
    tables: Mapping[str, str]


@dataclass(frozen=True)
class Relation:
    alias: str
    view: str
    columns: tuple[Column, ...]


def translate(sql: str, columns_of: Callable[[str], tuple[Column, ...]]) -> Translated:
    """The SELECT for DuckDB; `columns_of` gives a table's columns, or raises for a table that does not exist."""
    if "\\" in sql:
        raise NeedsSpark("backslashes in text")
    try:
        statements = sqlglot.parse(sql, read="spark")
    except SqlglotError as error:
        raise NeedsSpark("syntax that only Spark's parser can judge") from error
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, exp.Select):
        raise NeedsSpark("not a plain SELECT")
    only(select, CLAUSES)
    return _Translation(columns_of).select(select)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class _Translation:
    columns_of: Callable[[str], tuple[Column, ...]]
    relations: list[Relation] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    aliases: frozenset[str] = frozenset()
    grouped: bool = False

    def select(self, select: exp.Select) -> Translated:
        self.aliases = frozenset(item.alias.lower() for item in select.expressions if item.alias)
        source = self._from(select)
        where = select.args.get("where")
        group = select.args.get("group")
        having = select.args.get("having")
        filters = f" WHERE {self._condition(where.this).sql}" if where else ""
        items = [one for item in select.expressions for one in self._item(item)]
        if group:
            only(group, {"expressions"})
            self.groups = [self._group(one) for one in group.expressions]
        self.grouped = bool(group) or any(value.aggregate for _, value in items)
        for _, value in items:
            self._check_grouped(value)
        grouping = f" GROUP BY {', '.join(self.groups)}" if group else ""
        if having:
            if not self.grouped:
                raise NeedsSpark("HAVING without GROUP BY")
            grouping += f" HAVING {self._condition(having.this, aggregates=True).sql}"
        shown = ", ".join(f"{value.sql} AS c{number}" for number, (_, value) in enumerate(items))
        text = f"SELECT {self._distinct(select, items)}{shown}{source}{filters}{grouping}"
        text += self._order(select, items) + self._bounds(select)
        return Translated(text, tuple(name for name, _ in items), self.tables)

    # FROM and JOIN

    def _from(self, select: exp.Select) -> str:
        first = select.args.get("from_")
        if first is None:
            return ""
        text = f" FROM {self._relation(first.this)}"
        for join in select.args.get("joins") or ():
            text += self._join(join)
        return text

    def _relation(self, node: exp.Expr) -> str:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise NeedsSpark("FROM something other than a table")
        only(node, {"this", "alias"})
        alias = node.args.get("alias")
        if alias:
            only(alias, {"this"})
        name = (node.alias or node.name).lower()
        if any(one.alias == name for one in self.relations):
            raise NeedsSpark("two relations of one name")
        view = f"t{len(self.relations)}"
        self.relations.append(Relation(name, view, self.columns_of(node.name)))
        self.tables[view] = node.name
        return view

    def _join(self, join: exp.Join) -> str:
        only(join, {"this", "side", "kind", "on"})
        left = join.side == "LEFT"
        if join.side not in ("", "LEFT") or join.kind not in (("", "OUTER") if left else ("", "INNER")):
            raise NeedsSpark(f"{join.side or join.kind} JOIN")
        view = self._relation(join.this)
        condition = join.args.get("on")
        if condition is None:
            raise NeedsSpark("a join without ON")
        pairs = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
        return f" {'LEFT' if left else 'INNER'} JOIN {view} ON {' AND '.join(self._equal(pair) for pair in pairs)}"

    def _equal(self, pair: exp.Expr) -> str:
        if not isinstance(pair, exp.EQ):
            raise NeedsSpark("a join on something other than equal columns")
        left, right = self._column(pair.this), self._column(pair.expression)
        alike = left.type == right.type or {left.type, right.type} <= set(INTEGERS)
        if not alike or not exact(left.type):
            raise NeedsSpark(f"a join of {left.type} with {right.type}")
        return f"{left.sql} = {right.sql}"

    # The select list

    def _item(self, item: exp.Expr) -> list[tuple[str, Typed]]:
        if isinstance(item, exp.Star):
            only(item, set())
            if not self.relations:
                raise NeedsSpark("* without FROM")
            return [self._named(relation, column) for relation in self.relations for column in relation.columns]
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            only(item.this, set())
            only(item, {"this", "table"})
            relation = self._find_relation(item.table)
            return [self._named(relation, column) for column in relation.columns]
        if isinstance(item, exp.Alias):
            return [(sanitise(item.alias), self._value(item.this, aggregates=True))]
        return [(_unnamed(item), self._value(item, aggregates=True))]

    def _named(self, relation: Relation, column: Column) -> tuple[str, Typed]:
        return column.name, Typed(f"{relation.view}.{quoted(column.name)}", column.type)

    def _distinct(self, select: exp.Select, items: list[tuple[str, Typed]]) -> str:
        distinct = select.args.get("distinct")
        if not distinct:
            return ""
        only(distinct, set())
        if not all(exact(value.type) for _, value in items):
            raise NeedsSpark("DISTINCT over floats or nested values")
        return "DISTINCT "

    # GROUP BY, ORDER BY, LIMIT

    def _group(self, node: exp.Expr) -> str:
        column = self._column(node)
        if not exact(column.type):
            raise NeedsSpark(f"GROUP BY a {column.type}")
        return column.sql

    def _check_grouped(self, value: Typed) -> None:
        if self.grouped and not value.aggregate and value.sql not in self.groups:
            raise NeedsSpark("a result that is neither grouped nor an aggregate")

    def _order(self, select: exp.Select, items: list[tuple[str, Typed]]) -> str:
        order = select.args.get("order")
        if not order:
            return ""
        only(order, {"expressions"})
        return " ORDER BY " + ", ".join(self._ordered(select, one, items) for one in order.expressions)

    def _ordered(self, select: exp.Select, one: exp.Expr, items: list[tuple[str, Typed]]) -> str:
        if not isinstance(one, exp.Ordered):
            raise NeedsSpark("an unusual ORDER BY")
        only(one, {"this", "desc", "nulls_first"})
        direction = "DESC" if one.args.get("desc") else "ASC"
        nulls = "FIRST" if one.args.get("nulls_first") else "LAST"
        return f"{self._order_key(select, one.this, items)} {direction} NULLS {nulls}"

    def _order_key(self, select: exp.Select, key: exp.Expr, items: list[tuple[str, Typed]]) -> str:
        if isinstance(key, exp.Literal):
            if key.is_string or not key.name.isdigit() or not 1 <= int(key.name) <= len(items):
                raise NeedsSpark("ORDER BY a literal")
            return key.name
        if isinstance(key, exp.Column) and not key.table:
            results = [
                number for number, (name, _) in enumerate(items, 1) if name.lower() == sanitise(key.name).lower()
            ]
            if len(results) == 1:
                return str(results[0])
            if results:
                raise NeedsSpark("ORDER BY a name that several results have")
        if select.args.get("distinct"):
            raise NeedsSpark("ORDER BY something else than a result, with DISTINCT")
        value = self._value(key, aggregates=True)
        if value.aggregate and not self.grouped:
            raise NeedsSpark("ORDER BY an aggregate without GROUP BY")
        self._check_grouped(value)
        if not exact(value.type) and value.type != "double":
            raise NeedsSpark(f"ORDER BY a {value.type}")
        return value.sql

    def _bounds(self, select: exp.Select) -> str:
        text = ""
        for clause in ("limit", "offset"):
            if node := select.args.get(clause):
                only(node, {"expression"})
                count = node.expression
                if not isinstance(count, exp.Literal) or count.is_string or not count.name.isdigit():
                    raise NeedsSpark(f"{clause.upper()} of something other than a number")
                text += f" {clause.upper()} {count.name}"
        return text

    # Expressions

    def _value(self, node: exp.Expr, aggregates: bool = False) -> Typed:
        if isinstance(node, exp.Paren):
            inner = self._value(node.this, aggregates)
            return Typed(f"({inner.sql})", inner.type, inner.text, inner.aggregate)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, (exp.Count, exp.Sum, exp.Min, exp.Max)):
            if not aggregates:
                raise NeedsSpark("an aggregate outside SELECT, HAVING and ORDER BY")
            return self._aggregate(node)
        return literal(node)

    def _column(self, node: exp.Expr) -> Typed:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            raise NeedsSpark("an expression where a column is plain")
        only(node, {"this", "table"})
        relations = [self._find_relation(node.table)] if node.table else self.relations
        found = [
            (relation, column)
            for relation in relations
            for column in relation.columns
            if column.name.lower() == sanitise(node.name).lower()
        ]
        if not found and not node.table and node.name.lower() in self.aliases:
            raise NeedsSpark(f"'{node.name}' is an alias of the select list")
        if not found:
            known = [column.name for relation in relations for column in relation.columns]
            raise UnknownColumn(node.name, known, _place(node))
        if len(found) > 1:
            raise NeedsSpark(f"'{node.name}' is a column of several tables")
        return self._named(*found[0])[1]

    def _find_relation(self, name: str) -> Relation:
        for relation in self.relations:
            if relation.alias == name.lower():
                return relation
        raise NeedsSpark(f"'{name}' is not a table in FROM")

    def _aggregate(self, node: exp.Count | exp.Sum | exp.Min | exp.Max) -> Typed:
        only(node, {"this", "big_int"})
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return Typed("count(*)", "long", aggregate=True)
        column = self._column(node.this)
        if isinstance(node, exp.Count):
            return Typed(f"count({column.sql})", "long", aggregate=True)
        if not exact(column.type):
            raise NeedsSpark(f"an aggregate of a {column.type}")
        if not isinstance(node, exp.Sum):
            return Typed(f"{node.key}({column.sql})", column.type, aggregate=True)
        if column.type in INTEGERS:
            return Typed(f"CAST(sum({column.sql}) AS BIGINT)", "long", aggregate=True)
        if size := decimal(column.type):
            # Spark's rule for the sum of a DECIMAL(p, s); what does not fit it fails the cast, and Spark is asked.
            total = f"decimal({min(38, size[0] + 10)},{size[1]})"
            return Typed(f"CAST(sum({column.sql}) AS {total})", total, aggregate=True)
        raise NeedsSpark(f"the sum of a {column.type}")

    def _condition(self, node: exp.Expr, aggregates: bool = False) -> Typed:
        return Typed(self._boolean(node, aggregates), "boolean")

    def _boolean(self, node: exp.Expr, aggregates: bool) -> str:
        if isinstance(node, (exp.And, exp.Or)):
            left, right = self._boolean(node.this, aggregates), self._boolean(node.expression, aggregates)
            return f"({left} {node.key.upper()} {right})"
        if isinstance(node, exp.Not):
            return f"(NOT {self._boolean(node.this, aggregates)})"
        if isinstance(node, exp.Paren):
            return self._boolean(node.this, aggregates)
        if type(node) in COMPARISONS:
            left, right = self._operand(node.this, aggregates), self._operand(node.expression, aggregates)
            return self._comparison(left, COMPARISONS[type(node)], right)
        if isinstance(node, exp.Is):
            return self._is(node, aggregates)
        if isinstance(node, exp.In):
            return self._in(node, aggregates)
        if isinstance(node, exp.Between):
            only(node, {"this", "low", "high"})
            value, low, high = (self._operand(node.args[key], aggregates) for key in ("this", "low", "high"))
            return f"({self._comparison(value, '>=', low)} AND {self._comparison(value, '<=', high)})"
        if isinstance(node, exp.Like):
            return self._like(node)
        value = self._operand(node, aggregates)
        if value.type != "boolean":
            raise NeedsSpark(f"a {value.type} as a condition")
        return value.sql

    def _operand(self, node: exp.Expr, aggregates: bool) -> Typed:
        value = self._value(node, aggregates)
        if aggregates and not isinstance(node, exp.Literal):
            self._check_grouped(value)
        return value

    def _comparison(self, left: Typed, operator: str, right: Typed) -> str:
        left, right = alike(left, right), alike(right, left)
        if not comparable(left.type, right.type):
            raise NeedsSpark(f"a comparison of {left.type} with {right.type}")
        return f"({left.sql} {operator} {right.sql})"

    def _is(self, node: exp.Is, aggregates: bool) -> str:
        value = self._operand(node.this, aggregates)
        if isinstance(node.expression, exp.Null):
            return f"({value.sql} IS NULL)"
        if isinstance(node.expression, exp.Boolean) and value.type == "boolean":
            return f"({value.sql} IS {str(node.expression.this).upper()})"
        raise NeedsSpark("an unusual IS")

    def _in(self, node: exp.In, aggregates: bool) -> str:
        only(node, {"this", "expressions"})
        value = self._operand(node.this, aggregates)
        if not node.expressions:
            raise NeedsSpark("IN without a list")
        choices = [self._comparison(value, "=", literal(choice)) for choice in node.expressions]
        return f"({' OR '.join(choices)})"

    def _like(self, node: exp.Like) -> str:
        only(node, {"this", "expression", "negate"})
        value = self._column(node.this)
        pattern = literal(node.expression)
        if value.type != "string" or pattern.text is None:
            raise NeedsSpark("LIKE over something other than text and a literal")
        return f"({value.sql} {'NOT ' if node.args.get('negate') else ''}LIKE {pattern.sql})"


def _unnamed(item: exp.Expr) -> str:
    """How Spark calls a result that has no alias."""
    if isinstance(item, exp.Column):
        return sanitise(item.name)
    if isinstance(item, exp.Literal) and re.fullmatch(r"[1-9]\d*|0", item.name) and not item.is_string:
        return item.name
    if isinstance(item, exp.Count) and isinstance(item.this, exp.Star):
        return "count(1)"
    if isinstance(item, (exp.Count, exp.Sum, exp.Min, exp.Max)) and isinstance(item.this, exp.Column):
        return f"{item.key}({sanitise(item.this.name)})"
    raise NeedsSpark("an expression without an alias")
