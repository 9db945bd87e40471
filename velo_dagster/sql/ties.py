"""Ties are broken by all columns, so that a recomputation gives the same rows whichever way Spark cut the data.

LIMIT and OFFSET take rows in the order of ORDER BY, and rows that are equal in it in any order: all columns of the
result are added to it. ROW_NUMBER, NTILE, LAG, LEAD, FIRST_VALUE and frames of ROWS look at the order within a
window: all columns of the inputs are added to that. RANK, and aggregates over a range, give equal rows equal answers;
nothing may be added to theirs. Rows that are equal in all columns are the same row to everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from velo_dagster.sql.functions import words
from velo_dagster.sql.names import quote, sanitise
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query

_POSITIONAL = words("row_number ntile lag lead first_value first")


@dataclass(frozen=True)
class Ties:
    """What can be ordered by: positions (from 1) of the result's columns, and the columns of each input by its name."""

    result: Sequence[int]
    inputs: Mapping[str, Sequence[str]]


def has_ties(query: Query) -> bool:
    """Whether the query takes rows by an order that may leave some of them equal."""
    return _limited(query.tree) is not None or any(_positional(window) for window in query.tree.find_all(exp.Window))


def break_ties(splice: Splice, query: Query, ties: Ties) -> None:
    if (holder := _limited(query.tree)) is not None and ties.result:
        _order_result(splice, holder, ties.result)
    for window in query.tree.find_all(exp.Window):
        if _positional(window):
            _order_window(splice, window, ties.inputs)


def _limited(tree: exp.Expr) -> exp.Expr | None:
    """The query whose clauses hold the outermost LIMIT or OFFSET; of a set operation they stand in its last part."""
    if not (tree.args.get("limit") or tree.args.get("offset")):
        return None
    while isinstance(tree, exp.SetOperation) and "clauses" not in tree.meta:
        tree = tree.expression
    return tree if "clauses" in tree.meta else None


def _order_result(splice: Splice, holder: exp.Expr, positions: Sequence[int]) -> None:
    listed = ", ".join(str(position) for position in positions)
    spans = {kind: (start, end) for kind, start, end in holder.meta["clauses"]}
    if "order" in spans:
        start, end = spans["order"]
        if splice.text[start:end].split()[-1].upper() != "ALL":
            splice.insert(end, f", {listed}")
    elif not {"sort", "cluster", "distribute"} & spans.keys():
        first = min(span[0] for kind, span in spans.items() if kind in ("limit", "offset"))
        splice.insert(first, f"ORDER BY {listed} ")


def _positional(window: exp.Window) -> bool:
    function = window.this.this if isinstance(window.this, (exp.IgnoreNulls, exp.RespectNulls)) else window.this
    order, frame = window.args.get("order"), window.args.get("spec")
    by_rows = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
    return (by_rows or function.name.lower() in _POSITIONAL) and order is not None and "end" in order.meta


def _order_window(splice: Splice, window: exp.Window, inputs: Mapping[str, Sequence[str]]) -> None:
    select = window.find_ancestor(exp.Select)
    if select is None:
        return
    group = select.args.get("group")
    if group is not None:
        spans = {kind: (start, end) for kind, start, end in select.meta.get("clauses", ())}
        if "group" in spans and all(isinstance(e, exp.Column) for e in group.expressions):
            keys = ", ".join(_column(e) for e in group.expressions if isinstance(e, exp.Column))
            splice.insert(window.args["order"].meta["end"], f", {keys}")
        return
    from_ = select.args.get("from_")
    relations = ([from_.this] if from_ else []) + [join.this for join in select.args.get("joins") or ()]
    columns = [c for relation in relations for c in _columns(relation, inputs)]
    if columns:
        splice.insert(window.args["order"].meta["end"], ", " + ", ".join(columns))


def _column(column: exp.Column) -> str:
    return ".".join(quote(sanitise(part.name)) for part in column.parts)


def _columns(relation: exp.Expr, inputs: Mapping[str, Sequence[str]]) -> list[str]:
    name = relation.meta.get("input", "")
    if not isinstance(relation, exp.Table) or name not in inputs or relation.args.get("pivots"):
        return []
    alias = relation.args.get("alias")
    if alias is not None and alias.columns:
        return []
    called = relation_alias(relation)
    prefix = f"{quote(sanitise(called))}." if called else ""
    return [f"{prefix}{quote(column)}" for column in inputs[name]]
