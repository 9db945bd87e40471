"""`x op ANY|SOME|ALL (list or subquery)` for Spark, with SQL's three-valued logic.

Over a list it is a chain of OR (ANY) or AND (ALL). `= ANY (subquery)` is IN and `<> ALL (subquery)` is NOT IN. For the
rest every value of the subquery is compared, and the answers are counted: one that decides wins, else an unknown one
makes the whole unknown; over nothing ANY is false and ALL is true. Each value is compared as it is, so Spark's own rules
for comparing two types hold, which a comparison with MIN or MAX would not keep.
"""

from __future__ import annotations

from velo_dagster.sql.marks import Quantified
from velo_dagster.sql.splice import Splice

_ANSWERS = {
    "ANY": "CASE WHEN count_if(_velo_c) > 0 THEN true WHEN count(*) > count(_velo_c) THEN NULL ELSE false END",
    "ALL": "CASE WHEN count_if(NOT _velo_c) > 0 THEN false WHEN count(*) > count(_velo_c) THEN NULL ELSE true END",
}


def rewrite(splice: Splice, mark: Quantified) -> None:
    if not mark.subquery:
        _over_list(splice, mark)
    elif mark.word == "ANY" and mark.operator in ("=", "=="):
        splice.replace(mark.whole, mark.left, " IN (", mark.inside, ")")
    elif mark.word == "ALL" and mark.operator in ("<>", "!="):
        splice.replace(mark.whole, mark.left, " NOT IN (", mark.inside, ")")
    else:
        _over_subquery(splice, mark)


def _over_list(splice: Splice, mark: Quantified) -> None:
    parts: list[str | tuple[int, int]] = ["("]
    for item in mark.items:
        if len(parts) > 1:
            parts.append(" OR " if mark.word == "ANY" else " AND ")
        parts += ["(", mark.left, f") {mark.operator} (", item, ")"]
    splice.replace(mark.whole, *parts, ")")


def _over_subquery(splice: Splice, mark: Quantified) -> None:
    # The inner SELECT has no column but _velo_v, so that every name of the left operand still means the outer row's.
    compared = (
        "(SELECT (",
        mark.left,
        f") {mark.operator} _velo_v AS _velo_c FROM (",
        mark.inside,
        ") AS _velo_q(_velo_v))",
    )
    splice.replace(mark.whole, f"(SELECT {_ANSWERS[mark.word]} FROM ", *compared, ")")
