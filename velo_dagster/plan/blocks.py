"""A query as blocks: what each SELECT does with the rows it reads, and by which columns it can be computed in parts.

The key of a block is what tells its parts apart: rows of two parts never need each other. A part can then be computed
alone, by restricting the block to some values of its key.

| block | key |
|---|---|
| GROUP BY | the groups; of a session window only what stands beside it |
| functions with OVER | what all of them have in PARTITION BY |
| DISTINCT, UNION, INTERSECT, EXCEPT | all columns |
| an aggregate without GROUP BY | one for all |
| any other SELECT | the row of the driving relation: the one whose rows a join keeps, else the first |
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from velo_dagster.sql import functions

ROW_MARK = "_velo_row"
"""What tells rows of an input apart; rows that are equal may share it."""


def blocks(query: exp.Expr) -> Iterator[exp.Expr]:
    """Every SELECT and set operation of a query, those inside of others included."""
    yield from (
        node for node in query.walk() if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery | exp.Table)
    )


def unwrapped(query: exp.Expr) -> exp.Expr:
    while isinstance(query, exp.Subquery):
        query = query.this
    return query


def relations(select: exp.Select) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    return ([from_.this] if from_ else []) + [join.this for join in select.args.get("joins") or ()]


def own(select: exp.Expr) -> Iterator[exp.Expr]:
    """What stands in a SELECT itself, not in queries inside of it."""
    yield from select.walk(
        prune=lambda node: node is not select and isinstance(node, exp.Query) and not isinstance(node, exp.Table)
    )


def function_names(node: exp.Expr) -> list[str]:
    """The names under which the function that the node calls is known; none if it calls none."""
    if isinstance(node, exp.Anonymous):
        return [node.name.lower()]
    if not isinstance(node, exp.Func) or isinstance(node, exp.Connector):
        return []
    return [name.lower() for name in type(node).sql_names()]


def aggregates(select: exp.Select) -> bool:
    """Whether its rows stand for groups of those it reads; without GROUP BY, it is one row."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(is_aggregate(node) for node in own(select))


def has_aggregate(item: exp.Expr) -> bool:
    """Whether the item itself, not a query inside of it, calls an aggregate."""
    return any(is_aggregate(node) for node in own(item))


def is_aggregate(node: exp.Expr) -> bool:
    # ANY and SOME over one value are aggregates; over several they compare.
    alone = isinstance(node, exp.Any) and not isinstance(node.parent, exp.Binary)
    called = isinstance(node, exp.AggFunc) or not functions.AGGREGATES.isdisjoint(function_names(node))
    return (called or alone) and not _is_windowed(node)


def _is_windowed(node: exp.Expr) -> bool:
    parent, child = node.parent, node
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        parent, child = parent.parent, parent
    return isinstance(parent, exp.Window) and parent.this is child


def is_global(select: exp.Select) -> bool:
    return aggregates(select) and not select.args.get("group")


def is_one_row(query: exp.Expr) -> bool:
    """Whether the query is one row over all that it reads. A time window, where it is not written out yet, groups."""
    block = unwrapped(query)
    return isinstance(block, exp.Select) and is_global(block) and "time_window" not in block.meta


def driving(select: exp.Select) -> list[exp.Expr]:
    """The relations whose rows tell rows of the result apart: those that joins keep, else the first."""
    found = relations(select)[:1]
    for join in select.args.get("joins") or ():
        if join.kind in ("SEMI", "ANTI"):
            continue
        if join.side == "RIGHT":
            found = [join.this]
        elif join.side == "FULL":
            found = [*found, join.this]
    return found


def has_windows(select: exp.Select) -> bool:
    return any(isinstance(node, exp.Window) for node in own(select))


def generates(select: exp.Select) -> bool:
    """Whether an item makes several rows of one. Time windows do that before rows are grouped."""
    several = functions.GENERATORS - {"window", "session_window"}
    return any(several.intersection(function_names(node)) for item in select.expressions for node in own(item))


def group_keys(select: exp.Select) -> list[exp.Expr]:
    """What a GROUP BY groups by, without session windows: a session is known only with all rows of its other groups."""
    group = select.args.get("group")
    found = group.expressions if group is not None else []
    if group is not None and group.args.get("all"):
        found = all_groups(select)
    return [one for one in found if not _is_session(one)]


def all_groups(select: exp.Select) -> list[exp.Expr]:
    """What GROUP BY ALL groups by: the items without an aggregate."""
    return [item.unalias() for item in select.expressions if not has_aggregate(item)]


def has_sessions(select: exp.Select) -> bool:
    group = select.args.get("group")
    return group is not None and any(map(_is_session, group.expressions))


def _is_session(group: exp.Expr) -> bool:
    return any("session_window" in function_names(node) for node in group.walk())


def partition(select: exp.Select) -> list[exp.Expr]:
    """What all functions with OVER have in PARTITION BY."""
    used = [node for node in own(select) if isinstance(node, exp.Window) and node.args.get("over")]
    named = {one.name.casefold(): one for one in select.args.get("windows") or ()}
    windows = [named.get(one.alias.casefold(), one) if one.alias else one for one in used]
    parts = [list(one.args.get("partition_by") or ()) for one in windows]
    return [one for one in parts[0] if all(one in other for other in parts[1:])] if parts else []
