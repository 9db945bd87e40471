"""WINDOW TUMBLING, SLIDING and SESSION as a grouping that Spark knows.

The clause becomes one more group: `window(time, size[, advance])` or `session_window(time, gap)`; `window_start` and
`window_end` are fields of it. Windows are half open and aligned to 1970-01-01 00:00 UTC. A row belongs to a session if
it is not more than the gap apart from another row of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.event_time import Shown, Times
from velo_dagster.sql.functions import AGGREGATES
from velo_dagster.sql.marks import TimeWindow
from velo_dagster.sql.problems import NotSupportedYet, StatementError, error
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query

FIELDS = {"window_start": "start", "_window_start": "start", "window_end": "end", "_window_end": "end"}
"""The system columns of a window, by name in lower case, and which field of it each is."""
_COLUMN = re.compile(r"(?:(\w+|`[^`]+`)\.)?(\w+|`[^`]+`)")


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


def rewrite(splice: Splice, query: Query, times: Times) -> None:
    for select in query.tree.find_all(exp.Select):
        if window := select.meta.get("time_window"):
            _rewrite_select(splice, query, select, window, times)


def windowed_input(select: exp.Select, arguments: WindowArguments) -> tuple[exp.Table, str | None] | None:
    """The input whose rows carry the window's time, and the column that the clause names, if it names one.

    None if the time is not known to be a column of an input: it comes from a subquery, is an expression, or stands
    without a prefix over a join.
    """
    from_ = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    relations = ([from_.this] if from_ else []) + joined
    if arguments.column is None:
        table = relations[0] if relations else None
        return (table, None) if isinstance(table, exp.Table) and "input" in table.meta else None
    named = _COLUMN.fullmatch(arguments.column)
    if named is None:
        return None
    prefix, column = named[1], named[2].strip("`")
    if prefix is None and (len(relations) > 1 or select.args.get("laterals")):
        return None
    for table in relations:
        if isinstance(table, exp.Table) and "input" in table.meta:
            called = (relation_alias(table) or "").casefold()
            if prefix is None or prefix.strip("`").casefold() == called:
                return table, column
    return None


def _rewrite_select(splice: Splice, query: Query, select: exp.Select, window: TimeWindow, times: Times) -> None:
    arguments = read_arguments(window)
    if arguments is None:
        raise StatementError(error("E112", f"{window.kind} needs its durations, such as (5m).", query.span))
    column = _time(query, select, arguments, times)
    function = "session_window" if window.kind == "SESSION" else "window"
    lengths = ", ".join(f"'{_microseconds(query, d)} microseconds'" for d in arguments.durations)
    call = f"{function}({column}, {lengths})"
    clauses = {kind: (start, end) for kind, start, end in select.meta["clauses"]}
    conditions = _shown(function, times.shown) if select is query.tree else ""
    having = f" HAVING {conditions}" if conditions and "having" not in clauses else ""
    group = select.args.get("group")
    if group is None:
        groups = [arguments.key, call] if arguments.key else [call]
        splice.replace((window.start, window.end), "GROUP BY " + ", ".join(groups) + having)
    else:
        splice.replace((window.start, window.end))
        added = _add_to_group(splice, query, group, arguments, call)
        splice.insert(clauses["group"][1], added + having)
    if conditions and "having" in clauses:
        start, end = clauses["having"]
        splice.insert(start + len("HAVING"), " (")
        splice.insert(end, f") AND {conditions}")
    _rename_fields(splice, select, function)


def _shown(function: str, shown: Shown) -> str:
    """The condition on which a window is shown. A row at the very end of a session still belongs to it."""
    conditions = []
    end = _as_spark(function, "end")
    if shown.final:
        behind = "<" if function == "session_window" else "<="
        conditions.append(f"{end} {behind} {_moment(shown.until)}")
    if shown.retained:
        conditions.append(f"{end} >= {_moment(shown.since)}")
    return " AND ".join(conditions)


def _as_spark(function: str, field: str) -> str:
    """A field of the window. That of a session as an aggregate, which is the same: a condition on the field itself
    Spark applies to each row's own session, before it has merged them, and so loses rows."""
    if function != "session_window":
        return f"{function}.{field}"
    return f"{'min' if field == 'start' else 'max'}({function}.{field})"


def _moment(microseconds: int | None) -> str:
    return "CAST(NULL AS TIMESTAMP)" if microseconds is None else f"timestamp_micros({microseconds})"


def _time(query: Query, select: exp.Select, arguments: WindowArguments, times: Times) -> str:
    found = windowed_input(select, arguments)
    if found is not None:
        table, column = found
        name, alias = table.meta["input"], relation_alias(table)
        if column is not None:
            return times.of_column(name, alias, column, query.span)
        if name in times.fields and times.fields[name].field:
            return times.of_input(name, alias, query.span)
    if arguments.column is not None:
        return arguments.column
    raise StatementError(
        error(
            "E112",
            "WINDOW does not know which column holds the time.",
            query.span,
            "Name it: TUMBLING(event_time, 5m).",
            "Or describe the source: WITH ('event.time.field' = 'event_time').",
        )
    )


def _add_to_group(splice: Splice, query: Query, group: exp.Group, arguments: WindowArguments, call: str) -> str:
    """What GROUP BY lacks: the window, unless it names its start or end, which stand for it; a session's key."""
    sets = any(value for key, value in group.args.items() if key != "expressions")
    if sets or group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        what = "GROUP BY with ROLLUP, CUBE, GROUPING SETS or ALL"
        step = "List the plain columns: the window itself is a group without being named."
        raise NotSupportedYet(error("E205", f"{what} is not supported together with a time window.", query.span, step))
    fields = [column for column in group.find_all(exp.Column) if _field(column)]
    if any(column.parent is not group for column in fields):
        step = "Group by window_start itself, and compute with it in the select list."
        message = "GROUP BY an expression of window_start or window_end is not supported."
        raise NotSupportedYet(error("E205", message, query.span, step))
    for column in fields:
        meta = column.this.meta
        splice.replace((meta["start"], meta["end"] + 1), call)
    named = {e.sql("spark").casefold() for e in group.expressions}
    keyed = arguments.key is not None and arguments.key.casefold() not in named
    added = [*([arguments.key or ""] if keyed else []), *([] if fields else [call])]
    return "".join(f", {one}" for one in added)


def _microseconds(query: Query, seconds: Decimal) -> int:
    value = seconds * 1_000_000
    if value != value.to_integral_value():
        raise StatementError(error("E108", "A window is a whole number of microseconds long.", query.span))
    return int(value)


def _field(column: exp.Column) -> str | None:
    """The field of the window that a column without a prefix means."""
    return None if column.table or "start" not in column.this.meta else FIELDS.get(column.name.lower())


def _rename_fields(splice: Splice, select: exp.Select, function: str) -> None:
    clauses = [select.args.get(kind) for kind in ("having", "qualify", "order")]
    for part in [*select.expressions, *clauses]:
        for column in part.find_all(exp.Column) if part is not None else ():
            field = _field(column)
            if field is None:
                continue
            alias = f" AS {column.name}" if column is part else ""
            text = f"{function}.{field}" if _is_aggregated(column) else _as_spark(function, field)
            meta = column.this.meta
            splice.replace((meta["start"], meta["end"] + 1), f"{text}{alias}")


def _is_aggregated(column: exp.Column) -> bool:
    """Whether the column stands inside an aggregate, which takes no other one."""
    node = column.parent
    while node is not None and not isinstance(node, exp.Query):
        called = isinstance(node, exp.Func) and (node.name or node.key).lower() in AGGREGATES
        if called and not isinstance(node.parent, exp.Window):
            return True
        node = node.parent
    return False
