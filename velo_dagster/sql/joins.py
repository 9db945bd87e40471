"""Joins of one driving input with others: which input drives, what stands in the way of joining each row once, where
a join's condition stands."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velo_dagster.sql.names import sanitise
from velo_dagster.sql.relations import input_tables, relation_alias
from velo_dagster.sql.shapes import aggregates, common_table, own_nodes
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query

_COMBINING = {
    "distinct": "DISTINCT compares rows",
    "group": "GROUP BY combines rows",
    "having": "HAVING looks at groups",
    "limit": "LIMIT counts rows",
    "offset": "OFFSET counts rows",
    "qualify": "QUALIFY looks at other rows",
}


def driving_input(tree: exp.Expr) -> str | None:
    """The input whose rows the result is made of: the first that FROM names, also through subqueries.

    None if there are several, as for UNION, or none.
    """
    while not isinstance(tree, exp.Table):
        if isinstance(tree, exp.Subquery):
            tree = tree.this
        elif isinstance(tree, exp.Select) and tree.args.get("from_") is not None:
            tree = tree.args["from_"].this
        else:
            return None
        if isinstance(tree, exp.Table) and "input" not in tree.meta:
            common = common_table(tree)
            if common is None:
                return None
            tree = common.this
    return tree.meta["input"]


def why_not_once(query: Query) -> str | None:
    """What forbids to join each row of the driving input by itself, and only once; None if nothing does."""
    select = query.tree
    if isinstance(select, exp.SetOperation):
        return f"{select.key.upper()} combines several queries"
    piped = any(token.token_type == TokenType.PIPE_GT for token in query.tokens)
    if not isinstance(select, exp.Select) or "table_query" in select.meta or piped:
        return "it is not a plain SELECT"
    if "time_window" in select.meta:
        return "a time window combines rows"
    for clause, why in _COMBINING.items():
        if select.args.get(clause):
            return why
    if aggregates(select):
        return "an aggregate combines rows"
    if any(isinstance(node, exp.Window) for node in own_nodes(select)):
        return "OVER looks at other rows"
    return _why_not_relations(select)


def _why_not_relations(select: exp.Select) -> str | None:
    from_ = select.args.get("from_")
    driving = from_.this if from_ is not None else None
    if not isinstance(driving, exp.Table) or "input" not in driving.meta:
        return "its rows come from a subquery, so no single input drives it"
    if any(driving.args.get(part) for part in ("sample", "pivots", "joins")):
        return "TABLESAMPLE, PIVOT and joins in parentheses look at several rows"
    name = driving.meta["input"]
    if sum(table.meta.get("input") == name for table in input_tables(select)) > 1:
        return f"it reads '{relation_alias(driving)}' more than once"
    for join in select.args.get("joins") or ():
        if join.side in ("RIGHT", "FULL"):
            return f"a {join.side} join also keeps rows that nothing of the driving input matches"
        if "within" in join.meta:
            return "WITHIN joins rows of either side with those of the other that come later"
    return None


def why_not_filled(query: Query, name: str) -> str | None:
    """What forbids to give every row one made-up row of the input `name`; None if nothing does."""
    joins = query.tree.args.get("joins") or ()
    own = [join for join in joins if join.this.meta.get("input") == name and isinstance(join.this, exp.Table)]
    if len(own) != sum(table.meta.get("input") == name for table in input_tables(query.tree)):
        return "it is read in a subquery"
    for join in own:
        if join.kind in ("SEMI", "ANTI"):
            return f"a {join.kind} join gives no column of it"
        if join.args.get("using") or join.method:
            return "USING and NATURAL take a column from both sides: write ON"
    return None


def joined_anyway(splice: Splice, query: Query, names: Collection[str]) -> None:
    """Let every row match the one row that these inputs have: their joins' conditions become TRUE."""
    for join in query.tree.find_all(exp.Join):
        if join.this.meta.get("input") in names and join.args.get("on") is not None:
            splice.replace((_condition(query, join), join.meta["end"]), "ON TRUE")


def _condition(query: Query, join: exp.Join) -> int:
    """Where the ON of a join stands: the first behind its relation that no parenthesis encloses."""
    depth = 0
    for token in query.tokens:
        if token.start < join.this.meta["name_end"]:
            continue
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type == TokenType.ON:
            return token.start
    raise AssertionError("a join with a condition has an ON")


def named_columns(query: Query, name: str) -> list[str] | None:
    """The columns of an input that the query names by the input's alias; None where it may see others, too."""
    tables = [table for table in input_tables(query.tree) if table.meta.get("input") == name]
    aliases = {(relation_alias(table) or "").casefold() for table in tables}
    others = {
        (relation.alias_or_name or "").casefold()
        for relation in query.tree.find_all(exp.Table, exp.Subquery)
        if relation.meta.get("input") != name
    }
    if aliases & others or "|>" in query.text:
        return None
    found: dict[str, str] = {}
    for join in query.tree.find_all(exp.Join):
        if join.this.meta.get("input") == name:
            for column in join.args.get("using") or ():
                found.setdefault(column.name.casefold(), sanitise(column.name))
            if join.method:
                return None
    for column in query.tree.find_all(exp.Column):
        if not isinstance(column.this, exp.Identifier):
            if column.is_star and (not column.table or column.table.casefold() in aliases):
                return None
        elif column.parts[0].name.casefold() in aliases and len(column.parts) > 1:
            found.setdefault(column.parts[1].name.casefold(), sanitise(column.parts[1].name))
    # A star on its own shows the columns of every relation beside it.
    for select in query.tree.find_all(exp.Select):
        if any(isinstance(item, exp.Star) for item in select.expressions) and any(
            table.find_ancestor(exp.Select) is select for table in tables
        ):
            return None
    return list(found.values())
