"""A query in the form in which it is taken apart: the same rows, fewer ways to say it."""

from __future__ import annotations

from sqlglot import exp

from velo_dagster.plan.blocks import aggregates, all_groups, has_windows
from velo_dagster.plan.written import column_names


def prepared(tree: exp.Expr) -> exp.Expr:
    """The tree as it is taken apart: parts of WITH in their places, no order, GROUP BY ALL spelled out, DISTINCT by
    itself, subqueries of an inner join's ON in WHERE. Its rows are the same. Inner queries come first: outer ones are
    copied with them."""
    tree = _inlined(tree.copy())
    for node in list(tree.walk()):
        if isinstance(node, exp.Query) and node.args.get("order"):
            node.set("order", None)
    for select in reversed(list(tree.find_all(exp.Select))):
        _spell_out_groups(select)
        _hoist(select)
        if select.args.get("distinct") and (aggregates(select) or has_windows(select)):
            split = _distinct_alone(select)
            if select is tree:
                tree = split
            else:
                select.replace(split)
    return tree


def _inlined(tree: exp.Expr) -> exp.Expr:
    """WITH in its places, innermost and earliest first: a part may name those before it."""
    for node in reversed(list(tree.find_all(exp.With))):
        query = node.parent
        assert query is not None
        parts = list(node.expressions)
        query.set("with_", None)
        for number, part in enumerate(parts):
            name = part.alias.casefold()
            for place in [*parts[number + 1 :], query]:
                _put(place, name, part)
    return tree


def _put(place: exp.Expr, name: str, part: exp.CTE) -> None:
    for table in list(place.find_all(exp.Table)):
        if table.name.casefold() == name and not table.args.get("db"):
            inner = exp.Subquery(
                this=part.this.copy(), alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
            )
            table.replace(inner)


def _spell_out_groups(select: exp.Select) -> None:
    """GROUP BY ALL would group by whatever is selected beside the user's items, too."""
    group = select.args.get("group")
    if group is None or not group.args.get("all"):
        return
    # A number in GROUP BY is the place of an item.
    keys = [one.copy() if one.find(exp.Column) else exp.cast(one.copy(), "string") for one in all_groups(select)]
    select.set("group", exp.Group(expressions=keys))


def _hoist(select: exp.Select) -> None:
    for join in select.args.get("joins") or ():
        on = join.args.get("on")
        if on is None or join.side or join.kind in ("SEMI", "ANTI") or not on.find(exp.Query):
            continue
        parts = list(on.flatten()) if isinstance(on, exp.And) else [on]
        kept = [one for one in parts if not one.find(exp.Query)]
        join.set("on", exp.and_(*kept, copy=True) if kept else None)
        for one in parts:
            if one.find(exp.Query):
                select.where(one.copy(), copy=False)


def _distinct_alone(select: exp.Select) -> exp.Select:
    inner = select.copy()
    inner.set("distinct", None)
    outer = exp.Select(
        expressions=[exp.alias_(exp.column(name, "d", quoted=True), name, quoted=True) for name in column_names(select)]
    )
    outer.set("distinct", exp.Distinct())
    read = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("d", quoted=True)))
    read.meta["split"] = True
    return outer.from_(read, copy=False)
