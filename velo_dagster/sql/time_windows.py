"""WINDOW TUMBLING, SLIDING and SESSION as a grouping that Spark knows.

The clause becomes one more group: `window(time, size[, advance])` or `session_window(time, gap)`; `window_start` and
`window_end` are fields of it. Windows are half open and aligned to 1970-01-01 00:00 UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.marks import TimeWindow
from velo_dagster.sql.names import quote
from velo_dagster.sql.problems import NotSupportedYet, StatementError, error
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query

_FIELDS = {"window_start": "start", "_window_start": "start", "window_end": "end", "_window_end": "end"}


@dataclass(frozen=True)
class WindowArguments:
    """What the clause says: the time column if it names one, its durations, and a session's key."""

    column: str | None
    durations: tuple[Decimal, ...]
    key: str | None


def read_arguments(window: TimeWindow) -> WindowArguments | None:
    """The arguments, or None if they are not of the clause's form.

    >>> read_arguments(TimeWindow("SESSION", ("ts", "30m", "user_id"), 0, 0))
    WindowArguments(column='ts', durations=(Decimal('1800'),), key='user_id')
    """
    arguments = list(window.arguments)
    durations = [parse_duration(argument.strip("'\"")) for argument in arguments]
    wanted = 2 if window.kind in ("SLIDING", "HOPPING") else 1
    column = arguments.pop(0) if durations and durations[0] is None else None
    if column is not None:
        durations.pop(0)
    found = durations[:wanted]
    rest = arguments[wanted:]
    if len(found) < wanted or any(not d for d in found) or len(rest) > (window.kind == "SESSION"):
        return None
    return WindowArguments(column, tuple(d for d in found if d), rest[0] if rest else None)


def rewrite(splice: Splice, query: Query, event_times: Mapping[str, str]) -> None:
    for select in query.tree.find_all(exp.Select):
        if window := select.meta.get("time_window"):
            _rewrite_select(splice, query, select, window, event_times)


def _rewrite_select(
    splice: Splice, query: Query, select: exp.Select, window: TimeWindow, event_times: Mapping[str, str]
) -> None:
    arguments = read_arguments(window)
    if arguments is None:
        raise StatementError(error("E112", f"{window.kind} needs its durations, such as (5m).", query.span))
    column = arguments.column or _event_time(query, select, event_times)
    function = "session_window" if window.kind == "SESSION" else "window"
    lengths = ", ".join(f"'{_microseconds(query, d)} microseconds'" for d in arguments.durations)
    groups = [f"{function}({column}, {lengths})"]
    group = select.args.get("group")
    if group is None:
        groups = [arguments.key, *groups] if arguments.key else groups
        splice.replace((window.start, window.end), "GROUP BY " + ", ".join(groups))
    else:
        _check_group(query, group)
        splice.replace((window.start, window.end))
        end = next(end for kind, _, end in select.meta["clauses"] if kind == "group")
        named = {e.sql("spark").casefold() for e in group.expressions}
        if arguments.key and arguments.key.casefold() not in named:
            groups = [arguments.key, *groups]
        splice.insert(end, ", " + ", ".join(groups))
    _rename_fields(splice, select, function)


def _event_time(query: Query, select: exp.Select, event_times: Mapping[str, str]) -> str:
    from_ = select.args.get("from_")
    name = from_.this.meta.get("input", "") if from_ else ""
    if name not in event_times:
        raise StatementError(
            error(
                "E112",
                "WINDOW does not know which column holds the time.",
                query.span,
                "Name it: TUMBLING(event_time, 5m).",
                "Or describe the source: WITH ('event.time.field' = 'event_time').",
            )
        )
    return quote(event_times[name])


def _microseconds(query: Query, seconds: Decimal) -> int:
    value = seconds * 1_000_000
    if value != value.to_integral_value():
        raise StatementError(error("E108", "A window is a whole number of microseconds long.", query.span))
    return int(value)


def _check_group(query: Query, group: exp.Group) -> None:
    sets = any(value for key, value in group.args.items() if key != "expressions")
    sets = sets or group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None
    fields = any(c.name.lower() in _FIELDS for c in group.find_all(exp.Column))
    if sets or fields:
        what = "GROUP BY with ROLLUP, CUBE, GROUPING SETS or ALL" if sets else "GROUP BY window_start or window_end"
        step = "List the plain columns: the window itself is a group without being named."
        raise NotSupportedYet(error("E205", f"{what} is not supported together with a time window.", query.span, step))


def _rename_fields(splice: Splice, select: exp.Select, function: str) -> None:
    items = select.expressions
    for part in [*items, select.args.get("having"), select.args.get("order")]:
        for column in part.find_all(exp.Column) if part is not None else ():
            field = _FIELDS.get(column.name.lower())
            if field is None or column.table or "start" not in column.this.meta:
                continue
            alias = f" AS {column.name}" if column is part else ""
            meta = column.this.meta
            splice.replace((meta["start"], meta["end"] + 1), f"{function}.{field}{alias}")
