"""What forbids to compute a query in parts (`plan.blocks`), so that it is computed whole."""

from __future__ import annotations

from sqlglot import exp

from velo_dagster.plan.adding import adds_up
from velo_dagster.plan.blocks import (
    aggregates,
    blocks,
    driving,
    function_names,
    group_keys,
    has_aggregate,
    has_windows,
    is_aggregate,
    is_one_row,
    own,
    partition,
    relations,
    unwrapped,
)
from velo_dagster.sql import functions
from velo_dagster.sql.floats import DIGITS, FINISH, FINISH_LIST
from velo_dagster.sql.functions import words

CHANGING = functions.RANDOM | functions.OUTSIDE
READS_TEXT = "velo_json_"
OURS = frozenset({FINISH, FINISH_LIST, *DIGITS})
KNOWN = functions.ROW_FUNCTIONS | functions.AGGREGATES | functions.WINDOW_FUNCTIONS | functions.GENERATORS | OURS
ONE_ROW = "an aggregate without GROUP BY is one row over all of the input"
ONE_PART = "nothing tells its rows apart"

_CLAUSES = {
    "limit": "LIMIT counts rows",
    "offset": "OFFSET counts rows",
    "pivots": "PIVOT combines rows",
    "sort": "SORT BY looks at all rows",
    "cluster": "CLUSTER BY looks at all rows",
    "distribute": "DISTRIBUTE BY looks at all rows",
    "match": "MATCH_RECOGNIZE looks at other rows",
}
_JOINS = {"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI", "LEFT SEMI", "LEFT ANTI"}
_WITH_ARTICLE = {"SEMI": "a semi", "ANTI": "an anti"}
_ORDERED = words(
    """
    any_value array_agg collect collect_list collect_set first first_value group_concat last last_value listagg
    string_agg max_by min_by mode histogram_numeric approx_percentile percentile_approx approx_top_k
    """
)
"""Their answer may depend on the order in which Spark meets rows that are equal to them."""


def why_whole(query: exp.Expr, *, root: bool = True) -> str | None:
    """What forbids to compute the query in parts, in words that end a sentence; None if nothing does."""
    for block in blocks(query):
        reason = _why_not_block(block)
        if reason is not None:
            return reason
    for node in query.walk():
        reason = _why_not_function(node)
        if reason is not None:
            return reason
        if isinstance(node, exp.Table) and node.args.get("sample"):
            return "TABLESAMPLE looks at all rows"
        if isinstance(node, exp.With) and node.args.get("recursive"):
            return "WITH RECURSIVE reads its own rows"
    return _why_not_root(query) if root else None


def _why_not_function(node: exp.Expr) -> str | None:
    names = function_names(node)
    for name in names:
        if name.startswith(READS_TEXT):
            return "a path reads JSON text, whose type is that of all its values"
        if name in CHANGING or (name == "unix_timestamp" and not node.expressions):
            return f"{name}() is not the same at every load"
        if name in _ORDERED and not _is_finished(node):
            return f"{name}() depends on the order of rows"
    unknown = isinstance(node, exp.Anonymous) and not KNOWN.intersection(names)
    return f"{names[0]}() is not known" if unknown else None


def _is_finished(node: exp.Expr) -> bool:
    """Whether what it gives goes into a function of ours that puts it in order."""
    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if FINISH_LIST in function_names(above):
            return True
        above = above.parent
    return False


def _why_not_root(query: exp.Expr) -> str | None:
    block = unwrapped(query)
    if not isinstance(block, exp.Select | exp.SetOperation):
        return "it reads no input"
    if isinstance(block, exp.Select):
        if block.args.get("from_") is None:
            return "it reads no input"
        if is_one_row(query):
            return None if adds_up(query) else ONE_ROW
        if has_windows(block) and not partition(block):
            return "OVER without a PARTITION BY that all functions share looks at all rows"
        if block.args.get("group") and not group_keys(block):
            return "a session window alone has no key"
        if not _has_key(block):
            return ONE_PART
    return None


def _has_key(query: exp.Expr) -> bool:
    """Whether there is something by which the rows of a query are told apart."""
    block = unwrapped(query)
    if not isinstance(block, exp.Select) or block.args.get("distinct") or "time_window" in block.meta:
        return True
    if has_windows(block):
        return bool(partition(block))
    if aggregates(block):
        return bool(group_keys(block))
    kept = driving(block)
    return any(isinstance(one, exp.Table) or (isinstance(one, exp.Subquery) and _has_key(one)) for one in kept)


def _why_not_block(block: exp.Expr) -> str | None:
    for clause, reason in _CLAUSES.items():
        if block.args.get(clause):
            return reason
    if not isinstance(block, exp.Select):
        return None if isinstance(block, exp.SetOperation) else f"{block.key.upper()} is not taken apart"
    if any(isinstance(item, exp.Aliases) for item in block.expressions):
        return "an item gives several columns"
    group = block.args.get("group")
    if group is not None and any(value for key, value in group.args.items() if key not in ("expressions", "all")):
        return "ROLLUP, CUBE and GROUPING SETS make several groups of one row"
    if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        return "ROLLUP, CUBE and GROUPING SETS make several groups of one row"
    if group is not None and group.args.get("all") and any(map(_mixes, block.expressions)):
        return "an item mixes an aggregate with columns that GROUP BY ALL takes for groups"
    if has_windows(block) and aggregates(block) and not _partitions_groups(block):
        return "OVER looks at other groups than those that GROUP BY makes"
    return _why_not_from(block)


def _why_not_from(block: exp.Select) -> str | None:
    for relation in relations(block):
        if relation.args.get("pivots"):
            return _CLAUSES["pivots"]
        if isinstance(relation, exp.Subquery) and isinstance(relation.this, exp.Query):
            continue
        if not isinstance(relation, exp.Table | exp.Values) or relation.args.get("joins"):
            return "its FROM holds more than tables and subqueries"
        if isinstance(relation, exp.Table) and not isinstance(relation.this, exp.Identifier):
            return "it reads a table function"
    joins = block.args.get("joins") or ()
    for number, join in enumerate(joins):
        if join.method or join.args.get("match_condition") or join.kind not in _JOINS:
            return f"{join.method or join.kind} JOIN is not taken apart"
        on = join.args.get("on")
        if on is not None and on.find(exp.Query):
            if join.side or join.kind in ("SEMI", "ANTI"):
                return f"a subquery stands in the ON of {_WITH_ARTICLE.get(join.kind, 'an outer')} join"
            if any(one.side in ("RIGHT", "FULL") for one in joins[number + 1 :]):
                return "a subquery stands in an ON before a RIGHT or FULL JOIN"
    return None


def _mixes(item: exp.Expr) -> bool:
    """Whether columns stand beside an aggregate."""
    inside = {id(node) for one in own(item) if is_aggregate(one) for node in one.walk()}
    outside = any(isinstance(node, exp.Column) and id(node) not in inside for node in own(item))
    return has_aggregate(item) and outside


def _partitions_groups(select: exp.Select) -> bool:
    groups = group_keys(select)
    return bool(partition(select)) and all(one in groups for one in partition(select))
