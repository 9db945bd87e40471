"""What a query or relation gives, as far as its text and the columns of its inputs tell: columns, order of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from velo_dagster.sql import functions
from velo_dagster.sql.names import sanitise
from velo_dagster.sql.relations import relation_alias


@dataclass(frozen=True)
class Output:
    """A column; no name where Spark makes one up. `sortable`: nothing is known against ordering by it.

    `shown`: `*` has it; system columns are there only for those who name them.
    """

    name: str | None
    sortable: bool = True
    shown: bool = True


Shape = list[Output]
Inputs = Mapping[str, Sequence[Output]]


def shape_of(query: exp.Expr, inputs: Inputs) -> Shape | None:
    """The columns of a query's result; None if they can't be told."""
    if isinstance(query, exp.Subquery):
        return None if query.args.get("pivots") else shape_of(query.this, inputs)
    if isinstance(query, exp.SetOperation):
        return shape_of(query.this, inputs)
    if not isinstance(query, exp.Select) or {"table_query", "time_window"} & query.meta.keys():
        return None
    found: Shape = []
    for item in query.expressions:
        columns = _starred(query, item, inputs) if item.is_star else _single(item)
        if columns is None:
            return None
        found += columns
    return found


def relations(select: exp.Select) -> list[exp.Expr]:
    """What its rows are made of; what a SEMI or ANTI join only compares with is not."""
    from_ = select.args.get("from_")
    joins = [join for join in select.args.get("joins") or () if join.kind not in ("SEMI", "ANTI")]
    return ([from_.this] if from_ else []) + [join.this for join in joins]


def relation_shape(relation: exp.Expr, inputs: Inputs) -> Shape | None:
    """The columns of what stands behind FROM or JOIN."""
    if relation.args.get("pivots") or relation.args.get("joins"):
        return None
    alias = relation.args.get("alias")
    if alias is not None and alias.columns:
        return [Output(sanitise(column.name)) for column in alias.columns]
    if isinstance(relation, exp.Subquery):
        return shape_of(relation.this, inputs)
    if not isinstance(relation, exp.Table):
        return None
    if "input" in relation.meta:
        return list(inputs.get(relation.meta["input"], ())) or None
    common = _common_table(relation)
    if common is None:
        return None
    alias = common.args.get("alias")
    if alias is not None and alias.columns:
        return [Output(sanitise(column.name)) for column in alias.columns]
    return shape_of(common.this, inputs)


def called(relation: exp.Expr) -> str | None:
    """What the query calls the relation."""
    if isinstance(relation, exp.Table) and "input" in relation.meta:
        return relation_alias(relation)
    return relation.alias_or_name or None


def order_behind(query: exp.Expr) -> exp.Expr | None:
    """The query inside of this one in whose ORDER BY its rows come, because all between only pass rows on."""
    inner = _passed_on(query)
    while inner is not None and not inner.args.get("order"):
        inner = _passed_on(inner)
    return inner


def aggregates(select: exp.Select) -> bool:
    """Whether its rows stand for groups of those it reads; without GROUP BY, it is one row."""
    return bool(select.args.get("group") or select.args.get("having")) or any(
        isinstance(node, exp.Anonymous) and node.name.lower() in functions.AGGREGATES and not _in_window(node)
        for node in _own(select)
    )


def _passed_on(query: exp.Expr) -> exp.Expr | None:
    """The query whose rows this one gives one by one as they come. Spark keeps no order through all else."""
    if isinstance(query, exp.Subquery):
        return None if query.args.get("pivots") or query.args.get("joins") else query.this
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in _REORDERING) or aggregates(query):
        return None
    if any(isinstance(node, exp.Window) for node in _own(query)) or len(relations(query)) != 1:
        return None
    relation = relations(query)[0]
    if not isinstance(relation, exp.Table):
        return relation if isinstance(relation, exp.Subquery) else None
    common = None if "input" in relation.meta or relation.args.get("pivots") else _common_table(relation)
    return None if common is None else common.this


_REORDERING = ("joins", "distinct", "sort", "cluster", "distribute")


def _own(select: exp.Select) -> Iterator[exp.Expr]:
    """What stands in the SELECT itself, not in queries inside of it."""

    def inner(node: exp.Expr) -> bool:
        return isinstance(node, exp.Query) and node is not select

    return (node for node in select.walk(prune=inner) if not inner(node))


def _in_window(call: exp.Expr) -> bool:
    """Whether OVER follows the call: what stands in its arguments or in the window itself is no part of that."""
    node = call
    while isinstance(node.parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        if node.arg_key != "this":
            return False
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def _single(item: exp.Expr) -> Shape | None:
    value = item.this if isinstance(item, exp.Alias) else item
    if isinstance(value, (exp.UDTF, exp.Aliases)) or value.name.lower() in functions.GENERATORS:
        return None
    if any(value.key == name.replace("_", "") for name in functions.GENERATORS):
        return None
    named = isinstance(item, (exp.Alias, exp.Column))
    return [Output(sanitise(item.output_name) if named else None)]


def _starred(select: exp.Select, item: exp.Expr, inputs: Inputs) -> Shape | None:
    star = item if isinstance(item, exp.Star) else item.find(exp.Star)
    joins = select.args.get("joins") or ()
    merged = any(join.args.get("using") or join.method for join in joins)
    if "star_end" not in item.meta or select.args.get("laterals") or merged or star is None or any(star.args.values()):
        return None
    prefix = item.table.casefold() if isinstance(item, exp.Column) else None
    found: Shape = []
    for relation in relations(select):
        if prefix is None or (called(relation) or "").casefold() == prefix:
            columns = relation_shape(relation, inputs)
            if columns is None:
                return None
            found += [column for column in columns if column.shown]
    return found or None


def _common_table(table: exp.Table) -> exp.CTE | None:
    """The part of a WITH clause that the name means, unless it may mean itself."""
    name = table.name.casefold()
    child: exp.Expr = table
    while (parent := child.parent) is not None:
        inside = isinstance(parent, exp.With)
        clause = parent if inside else parent.args.get("with_")
        if clause is not None and child is not clause:
            visible = clause.expressions[: clause.expressions.index(child)] if inside else clause.expressions
            found = [cte for cte in visible if cte.alias.casefold() == name]
            if clause.args.get("recursive") and (found or inside):
                return None
            if found:
                return found[-1]
        child = parent
    return None
