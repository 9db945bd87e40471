"""What a query or relation gives, as far as its text and the columns of its inputs tell: columns, order of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from velo_dagster.sql import functions
from velo_dagster.sql.names import sanitise
from velo_dagster.sql.nested import Type
from velo_dagster.sql.relations import called


@dataclass(frozen=True)
class Output:
    """A column; no name where Spark makes one up. `sortable`: nothing is known against ordering by it.

    `shown`: `*` has it; system columns are there only for those who name them. `type`, `origin`: its type, and the
    input and column that it is, where it is one.
    """

    name: str | None
    sortable: bool = True
    shown: bool = True
    type: Type | None = None
    origin: tuple[str, str] | None = None


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
        columns = _starred(query, item, inputs) if item.is_star else _single(item, inputs)
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
    return _renamed(relation.args.get("alias"), _named_shape(relation, inputs))


def _named_shape(relation: exp.Expr, inputs: Inputs) -> Shape | None:
    if isinstance(relation, exp.Subquery):
        return shape_of(relation.this, inputs)
    if not isinstance(relation, exp.Table):
        return None
    if "input" in relation.meta:
        return list(inputs.get(relation.meta["input"], ())) or None
    common = common_table(relation)
    return None if common is None else _renamed(common.args.get("alias"), shape_of(common.this, inputs))


def _renamed(alias: exp.Expr | None, shape: Shape | None) -> Shape | None:
    """The columns under the names that an alias such as `t(a, b)` gives them."""
    names = [sanitise(column.name) for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return shape
    known = shape if shape is not None and len(shape) == len(names) else [Output(None)] * len(names)
    return [Output(name, type=one.type, origin=one.origin) for name, one in zip(names, known, strict=True)]


def find_column(node: exp.Expr, names: Sequence[str], inputs: Inputs) -> tuple[Output, int] | None:
    """The column that names joined by dots begin with, where `node` stands, and how many of them name it: one, or two
    with the relation's. None if it can't be told."""
    select = node.find_ancestor(exp.Select)
    while select is not None:
        for relation in all_relations(select):
            shape = relation_shape(relation, inputs) or []
            by_relation = len(names) > 1 and (called(relation) or "").casefold() == names[0].casefold()
            for used in (2, 1) if by_relation else (1,):
                wanted = sanitise(names[used - 1]).casefold()
                for column in shape:
                    if (column.name or "").casefold() == wanted:
                        return column, used
        select = _around(select)
    return None


def _around(select: exp.Select) -> exp.Select | None:
    """The SELECT whose columns this one sees as well: not one that reads it in FROM, or defines it in WITH."""
    node: exp.Expr = select
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.From | exp.CTE | exp.Lateral) or (
            isinstance(parent, exp.Join) and node.arg_key == "this"
        ):
            return None
        if isinstance(parent, exp.Select):
            return parent
        node = parent
    return None


def all_relations(select: exp.Select) -> list[exp.Expr]:
    """What stands behind FROM and every JOIN."""
    from_ = select.args.get("from_")
    return ([from_.this] if from_ else []) + [join.this for join in select.args.get("joins") or ()]


def order_behind(query: exp.Expr) -> exp.Expr | None:
    """The query inside of this one in whose ORDER BY its rows come, because all between only pass rows on."""
    inner = _passed_on(query)
    while inner is not None and not inner.args.get("order"):
        inner = _passed_on(inner)
    return inner


def aggregates(select: exp.Select) -> bool:
    """Whether its rows stand for groups of those it reads; without GROUP BY, it is one row."""
    return bool(select.args.get("group") or select.args.get("having")) or any(
        isinstance(node, exp.Anonymous) and node.name.lower() in functions.AGGREGATES and not in_window(node)
        for node in own_nodes(select)
    )


def _passed_on(query: exp.Expr) -> exp.Expr | None:
    """The query whose rows this one gives one by one as they come. Spark keeps no order through all else."""
    if isinstance(query, exp.Subquery):
        return None if query.args.get("pivots") or query.args.get("joins") else query.this
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in _REORDERING) or aggregates(query):
        return None
    if any(isinstance(node, exp.Window) for node in own_nodes(query)) or len(relations(query)) != 1:
        return None
    relation = relations(query)[0]
    if not isinstance(relation, exp.Table):
        return relation if isinstance(relation, exp.Subquery) else None
    common = None if "input" in relation.meta or relation.args.get("pivots") else common_table(relation)
    return None if common is None else common.this


_REORDERING = ("joins", "distinct", "sort", "cluster", "distribute")


def own_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """What stands in the SELECT itself, not in queries inside of it."""

    def inner(node: exp.Expr) -> bool:
        return isinstance(node, exp.Query) and node is not select

    return (node for node in select.walk(prune=inner) if not inner(node))


def in_window(call: exp.Expr) -> bool:
    """Whether OVER follows the call: what stands in its arguments or in the window itself is no part of that."""
    node = call
    while isinstance(node.parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        if node.arg_key != "this":
            return False
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def _single(item: exp.Expr, inputs: Inputs) -> Shape | None:
    value = item.this if isinstance(item, exp.Alias) else item
    if isinstance(value, (exp.UDTF, exp.Aliases)) or value.name.lower() in functions.GENERATORS:
        return None
    if any(value.key == name.replace("_", "") for name in functions.GENERATORS):
        return None
    named = isinstance(item, (exp.Alias, exp.Column))
    name = sanitise(item.output_name) if named else None
    parts = [part.name for part in value.parts] if isinstance(value, exp.Column) else []
    found = find_column(value, parts, inputs) if parts else None
    if found is None or found[1] < len(parts):
        return [Output(name)]
    return [Output(name, type=found[0].type, origin=found[0].origin)]


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


def common_table(table: exp.Table) -> exp.CTE | None:
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
