"""`JOIN … ON … WITHIN duration`: rows meet if their event times are no further apart than that.

It becomes one more condition of ON, so outer, SEMI and ANTI joins mean by it what they mean by ON. A row without a time
is within no duration of another.
"""

from __future__ import annotations

from collections.abc import Container

from sqlglot import exp

from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.event_time import Times
from velo_dagster.sql.problems import StatementError, error
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query

Sides = tuple[exp.Table, exp.Table]


def rewrite(splice: Splice, query: Query, times: Times) -> None:
    timed = {name for name, time in times.fields.items() if time.field}
    for join in query.tree.find_all(exp.Join):
        if "within" not in join.meta:
            continue
        duration, start, end = join.meta["within"]
        found, seconds = sides(join, timed), parse_duration(duration)
        if isinstance(found, str) or seconds is None:
            raise StatementError(error("E136", found if isinstance(found, str) else "WITHIN needs a time.", query.span))
        moments = [
            f"unix_micros(CAST({times.of_input(table.meta['input'], relation_alias(table), query.span)} AS TIMESTAMP))"
            for table in found
        ]
        splice.insert(join.meta["on_start"], " (")
        # Whatever is finer than a microsecond is finer than the times.
        splice.replace((start, end), f") AND abs({moments[0]} - {moments[1]}) <= {int(seconds * 1_000_000)}")


def sides(join: exp.Join, timed: Container[str]) -> Sides | str:
    """The two relations whose times are compared, of inputs that have one (`timed`); or why they can't be told.

    On the right it is what is joined. On the left it is the relation that ON names; if that names several, or none, the
    only one that has a time.
    """
    select = join.parent
    if not isinstance(select, exp.Select):
        return "WITHIN is understood in a join of the SELECT itself, not inside parentheses."
    if not _is_timed(join.this, timed):
        return f"WITHIN does not know the event time of {_label(join.this)}."
    joins = select.args["joins"]
    at = next(number for number, one in enumerate(joins) if one is join)
    earlier = [select.args["from_"].this, *(one.this for one in joins[:at])]
    on = join.args.get("on")
    prefixes = {column.table.casefold() for column in on.find_all(exp.Column)} if on is not None else set()
    named = [one for one in earlier if _called(one).casefold() in prefixes] or earlier
    left = [one for one in named if _is_timed(one, timed)]
    if not left:
        return f"WITHIN does not know the event time of {' or '.join(map(_label, named))}."
    if len(left) > 1:
        return f"WITHIN can't tell whose event time counts on the left: {' or '.join(map(_label, left))}."
    return left[0], join.this


def _is_timed(relation: exp.Expr, timed: Container[str]) -> bool:
    return isinstance(relation, exp.Table) and relation.meta.get("input", "") in timed


def _called(relation: exp.Expr) -> str:
    return (relation_alias(relation) or "") if isinstance(relation, exp.Table) else relation.alias_or_name


def _label(relation: exp.Expr) -> str:
    return f"'{_called(relation)}'" if _called(relation) else "a subquery"
