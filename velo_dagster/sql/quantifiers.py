"""`x op ANY|SOME|ALL (list or subquery)` for Spark, and IN, with SQL's three-valued logic.

Over a list it is a chain of OR (ANY) or AND (ALL). Over a subquery it is asked with EXISTS: one answer that decides
wins, else an unknown one makes the whole unknown; over nothing ANY is false and ALL is true. Each value is compared
as it is, so Spark's own rules for comparing two types hold, which a comparison with MIN or MAX would not keep.

Where unknown and false come to the same, as in WHERE, one EXISTS is enough, and `= ANY` and `<> ALL` are IN and NOT
IN. Elsewhere Spark takes an IN over a subquery that holds NULLs for false; such an IN is asked as `= ANY`, or `<>
ALL`.
"""

from __future__ import annotations

from sqlglot import exp

from velo_dagster.sql.marks import Quantified
from velo_dagster.sql.splice import Part, Splice


def rewrite(splice: Splice, mark: Quantified, node: exp.Expr) -> None:
    if not mark.subquery:
        _over_list(splice, mark)
        return
    filters = _only_truth_counts(node, alternatives=mark.word == "ANY")
    if mark.operator in ("IN", "NOT IN"):
        if not filters:
            _three_valued(splice, mark, "=" if mark.word == "ANY" else "<>")
    elif filters and mark.word == "ANY":
        if mark.operator in ("=", "=="):
            splice.replace(mark.whole, mark.left, " IN (", mark.inside, ")")
        else:
            splice.replace(mark.whole, *_exists(mark, ("(", mark.left, f") {mark.operator} _velo_v")))
    elif filters:
        if mark.operator in ("<>", "!="):
            splice.replace(mark.whole, mark.left, " NOT IN (", mark.inside, ")")
        else:
            test = ("NOT coalesce((", mark.left, f") {mark.operator} _velo_v, false)")
            splice.replace(mark.whole, "NOT ", *_exists(mark, test))
    else:
        _three_valued(splice, mark, mark.operator)


def _over_list(splice: Splice, mark: Quantified) -> None:
    parts: list[Part] = ["("]
    for item in mark.items:
        if len(parts) > 1:
            parts.append(" OR " if mark.word == "ANY" else " AND ")
        parts += ["(", mark.left, f") {mark.operator} (", item, ")"]
    splice.replace(mark.whole, *parts, ")")


def _exists(mark: Quantified, test: tuple[Part, ...]) -> tuple[Part, ...]:
    # The relation has no column but _velo_v, so that every name in the left operand still means the outer row's.
    return ("EXISTS (SELECT 1 FROM (", mark.inside, ") AS _velo_q(_velo_v) WHERE ", *test, ")")


def _three_valued(splice: Splice, mark: Quantified, operator: str) -> None:
    answer = ("((", mark.left, f") {operator} _velo_v)")
    decisive = answer if mark.word == "ANY" else ("NOT ", *answer)
    decided, otherwise = ("true", "false") if mark.word == "ANY" else ("false", "true")
    splice.replace(
        mark.whole,
        "(CASE WHEN ",
        *_exists(mark, decisive),
        f" THEN {decided} WHEN ",
        *_exists(mark, (*answer, " IS NULL")),
        f" THEN NULL ELSE {otherwise} END)",
    )


def _only_truth_counts(node: exp.Expr, alternatives: bool) -> bool:
    """Whether the predicate stands where false and unknown come to the same.

    That is in a filter, under AND, and under OR too if Spark may ask it by an existence join, which knows no NULL.
    """
    passing = (exp.And, exp.Paren, exp.Or) if alternatives else (exp.And, exp.Paren)
    child, parent = node, node.parent
    if isinstance(node, exp.In) and not alternatives:
        while isinstance(parent, exp.Paren):
            child, parent = parent, parent.parent
        child, parent = (parent, parent.parent) if isinstance(parent, exp.Not) else (child, parent)
    while isinstance(parent, passing):
        child, parent = parent, parent.parent
    if isinstance(parent, exp.If) and alternatives:
        return parent.this is child and isinstance(parent.parent, exp.Case) and parent.parent.this is None
    return isinstance(parent, (exp.Where, exp.Having)) or (isinstance(parent, exp.Join) and not parent.side)
