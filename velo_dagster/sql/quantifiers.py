"""`x op ANY|SOME|ALL (list or subquery)` for Spark, with SQL's three-valued logic.

Over a list it is a chain of OR (ANY) or AND (ALL). `= ANY (subquery)` is IN and `<> ALL (subquery)` is NOT IN. For the
rest the subquery's values are gathered into an array and asked with `exists` or `forall`, which do exactly what the
standard wants: over nothing ANY is false and ALL is true; a NULL makes the answer NULL unless another value decides it.
Each value is compared as it is, so Spark's own rules for comparing two types hold, which a comparison with MIN or MAX
would not keep.
"""

from __future__ import annotations

from sqlglot import exp

from velo_dagster.sql.marks import Quantified
from velo_dagster.sql.splice import Splice

_VALUES = "(SELECT collect_set(named_struct('v', _velo_v)) FROM ("


def rewrite(splice: Splice, mark: Quantified, node: exp.Expr) -> None:
    if not mark.subquery:
        _over_list(splice, mark)
    elif mark.word == "ANY" and mark.operator in ("=", "=="):
        splice.replace(mark.whole, mark.left, " IN (", mark.inside, ")")
    elif mark.word == "ALL" and mark.operator in ("<>", "!="):
        splice.replace(mark.whole, mark.left, " NOT IN (", mark.inside, ")")
    else:
        _over_subquery(splice, mark, node.this.find(exp.Query) is not None)


def _over_list(splice: Splice, mark: Quantified) -> None:
    parts: list[str | tuple[int, int]] = ["("]
    for item in mark.items:
        if len(parts) > 1:
            parts.append(" OR " if mark.word == "ANY" else " AND ")
        parts += ["(", mark.left, f") {mark.operator} (", item, ")"]
    splice.replace(mark.whole, *parts, ")")


def _over_subquery(splice: Splice, mark: Quantified, left_has_subquery: bool) -> None:
    test = "exists" if mark.word == "ANY" else "forall"
    values = (_VALUES, mark.inside, ") AS _velo_values(_velo_v))")
    if not left_has_subquery:
        body = (", _velo_e -> (", mark.left, f") {mark.operator} _velo_e.v)")
        splice.replace(mark.whole, f"{test}(", *values, *body)
        return
    # A lambda's body may hold no subquery, so the left operand is computed outside of it and handed in.
    operand = ("element_at(transform(array(named_struct('x', ", mark.left, ", 's', ", *values, ")), ")
    body = f"_velo_p -> {test}(_velo_p.s, _velo_e -> _velo_p.x {mark.operator} _velo_e.v)), 1)"
    splice.replace(mark.whole, *operand, body)
