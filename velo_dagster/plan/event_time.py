"""Which input of a table has which event time, and the rules about windows, EMIT FINAL, WITHIN and `retention`.

An input's event time is described where the input is: by the properties of a source, or those that stand at, or close,
a statement that reads a table. A table that takes the rows of its input one by one, the time among them, passes the
description on to whatever reads it. A Kafka message has a time of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from velo_dagster.plan.inputs import PlannedInput, own_properties
from velo_dagster.plan.property_places import find_property, written_properties
from velo_dagster.sql.event_time import EventTime
from velo_dagster.sql.names import sanitise
from velo_dagster.sql.problems import Problem, error
from velo_dagster.sql.properties import BadProperty, resolve
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.render import place
from velo_dagster.sql.rows import why_not_by_row
from velo_dagster.sql.statements import CreateTableAs, InputRef, Query
from velo_dagster.sql.time_windows import read_arguments, windowed_input
from velo_dagster.sql.variables import has_variables, resolve_all
from velo_dagster.sql.within import sides

if TYPE_CHECKING:
    from velo_dagster.plan.project import TablePlan

FIELD = "event.time.field"
KEYS = (FIELD, "event.time.format", "watermark.max_out_of_orderness", "late.data.strategy")
MESSAGE_TIME = "_timestamp"
"""The system column that holds a Kafka message's own time."""
_DESCRIBE = "Describe the input: WITH ('event.time.field' = 'event_time')."


def own_event_properties(ref: InputRef, closing: Mapping[str, str]) -> dict[str, str]:
    """What a statement says about the event time of a table that it reads."""
    return {key: value for key, value in own_properties(ref, closing).items() if key in KEYS}


def time_field(planned: PlannedInput) -> str | None:
    """The column that holds the input's event time, as written."""
    return planned.properties.get(FIELD) or (MESSAGE_TIME if planned.source_type == "kafka" else None)


def event_time(planned: PlannedInput, environ: Mapping[str, str]) -> EventTime | None:
    """The input's event time with variables replaced; None if nothing is said about it."""
    written = {key: value for key, value in planned.properties.items() if key in KEYS}
    if not written and time_field(planned) is None:
        return None
    try:
        values = resolve("file", resolve_all(written, environ, planned.span), where=planned.span)
    except BadProperty as bad:
        # What a variable stands for is not shown.
        raise BadProperty(bad.key, written[bad.key], bad.form, where=planned.span) from None
    return EventTime(
        field=values.get(FIELD, time_field(planned) or ""),
        format=values.get("event.time.format"),
        allowance=values["watermark.max_out_of_orderness"],
        late=values["late.data.strategy"],
    )


def with_places(source: PlannedInput, statement: CreateTableAs) -> PlannedInput:
    """The input, with the columns that say where rejected late rows stand, if the statement may have such."""
    if statement.emit != "final" or source.source_type != "file" or "late.data.strategy" not in source.properties:
        return source
    return replace(source, system_columns=tuple(dict.fromkeys((*source.system_columns, "_file", "_line"))))


def passed_on(tables: Sequence[TablePlan], order: Sequence[str]) -> list[TablePlan]:
    """The tables, their inputs with the event times that these pass on. `order`: that of their dependencies."""
    plans = {table.name: table for table in tables}
    named = {table.name.casefold(): table.name for table in tables}
    for name in order:
        plan = plans[name]
        inputs = tuple(
            _with_time(one, plans[named[one.table.casefold()]]) if one.table and one.table.casefold() in named else one
            for one in plan.inputs
        )
        plans[name] = replace(plan, inputs=inputs)
    return [plans[table.name] for table in tables]


def _with_time(planned: PlannedInput, upstream: TablePlan) -> PlannedInput:
    if FIELD in planned.properties or len(upstream.inputs) != 1 or why_not_by_row(upstream.statement) is not None:
        return planned
    described = {key: value for key, value in upstream.inputs[0].properties.items() if key in KEYS}
    column = _shown_as(upstream.statement, described.get(FIELD, ""))
    if column is None:
        return planned
    return replace(planned, properties={**described, FIELD: column, **planned.properties})


def _shown_as(statement: CreateTableAs, field: str) -> str | None:
    """What a row-by-row SELECT calls this column of its input; None if it does not show it as it is."""
    if not field:
        return None
    select = statement.query.tree
    for item in select.expressions:
        value = item.unalias()
        if "star_end" in item.meta:
            star = item if isinstance(item, exp.Star) else item.find(exp.Star)
            left_out = (star.args.get("except_") or ()) if star is not None else ()
            if not any(one.name.casefold() == field.casefold() for one in left_out):
                return field
        elif isinstance(value, exp.Column) and sanitise(value.name).casefold() == sanitise(field).casefold():
            return sanitise(item.output_name)
    return None


# -- rules ------------------------------------------------------------------------------------------------------------


def window_without_time(plan: TablePlan) -> Iterator[Problem]:
    query = plan.statement.query
    for select in query.tree.find_all(exp.Select):
        window = select.meta.get("time_window")
        arguments = read_arguments(window) if window is not None else None
        if window is None or arguments is None or arguments.column is not None:
            continue
        found = windowed_input(select, arguments)
        if found is None or found[0].meta["input"] not in _timed(plan):
            yield error(
                "E112",
                "WINDOW does not know which column holds the time.",
                place(query, window.start),
                f"Name it: {window.kind}(event_time, {', '.join(window.arguments)}).",
                "Or describe the source: WITH ('event.time.field' = 'event_time').",
            )


def final_window(query: Query) -> tuple[str, str | None] | None:
    """The input whose clock closes the windows of the statement's own SELECT, and the column that the clause names."""
    select = query.tree
    window = select.meta.get("time_window")
    arguments = read_arguments(window) if window is not None else None
    found = windowed_input(select, arguments) if isinstance(select, exp.Select) and arguments is not None else None
    return None if found is None else (found[0].meta["input"], found[1])


def final_can_be_kept(plan: TablePlan, plans: Mapping[str, TablePlan]) -> Iterator[Problem]:
    """EMIT FINAL shows rows once and for all: windows of the SELECT itself, over an input whose clock is known."""
    query, select = plan.statement.query, plan.statement.query.tree
    if plan.statement.emit != "final" or not any("time_window" in node.meta for node in select.walk()):
        return
    where = place(query, next(node.meta["emit"][1] for node in select.walk() if "emit" in node.meta))
    if not isinstance(select, exp.Select) or "time_window" not in select.meta:
        message = "EMIT FINAL waits for windows of the statement's own SELECT, and its WINDOW stands further inside."
        yield error("E134", message, where, "Make a table of the inner query, with EMIT FINAL, and read that.")
        return
    others = [kind for kind, *_ in select.meta["clauses"] if kind in ("limit", "offset", "qualify")]
    if others or any(node.find_ancestor(exp.Select) is select for node in select.find_all(exp.Window)):
        what = others[0].upper() if others else "OVER"
        message = f"EMIT FINAL shows a window's row once and for all, but with {what} it depends on windows to come."
        yield error("E134", message, where, f"Leave {what} out here, and use it in a table that reads this one.")
        return
    if read_arguments(select.meta["time_window"]) is None:
        return
    found = final_window(query)
    if found is None:
        message = "EMIT FINAL does not know which input's clock closes the windows."
        step = "Name the column with the input that it is of: TUMBLING(o.event_time, 5m)."
        yield error("E134", message, where, step)
        return
    yield from _late_rows_have_an_order(plan, plans, found[0])


def _late_rows_have_an_order(plan: TablePlan, plans: Mapping[str, TablePlan], name: str) -> Iterator[Problem]:
    for planned in plan.inputs:
        strategy = planned.properties.get("late.data.strategy", "include").strip().lower()
        if planned.name == name and strategy in ("drop", "reject") and not has_source_order(planned, plans):
            order = f"the order in which rows came, which '{planned.label}' does not keep"
            message = f"'late.data.strategy' = '{strategy}' needs {order}."
            step = "Read the source itself, or a table that takes its rows one by one; or leave the property out."
            yield error("E134", message, planned.span, step)


def has_source_order(planned: PlannedInput, plans: Mapping[str, TablePlan]) -> bool:
    """Whether the input's rows are those of a source, each where it stood there."""
    if planned.table is None:
        return True
    upstream = plans.get(planned.table.casefold())
    if upstream is None or why_not_by_row(upstream.statement) is not None:
        return False
    return all(has_source_order(one, plans) for one in upstream.inputs)


def retention_has_a_time(plan: TablePlan) -> Iterator[Problem]:
    """`retention` must know how old a row of the table is."""
    given = plan.statement.properties.get("retention")
    why = _why_ageless(plan) if given and len(plan.inputs) == len(plan.statement.inputs) else ""
    if given and why:
        found = find_property(written_properties(plan.statement), "retention", given, None)
        span = found.key_span if found else plan.statement.span
        steps = (_DESCRIBE, "And keep that column in the select list, if rows are joined or combined.")
        yield error("E135", f"'retention' does not know how old a row of this table is: {why}.", span, *steps)


def _why_ageless(plan: TablePlan) -> str:
    query = plan.statement.query
    if "time_window" in query.tree.meta:
        return "" if final_window(query) is not None else "its window is over no input's column"
    if why_not_by_row(plan.statement) is None:
        return "" if _timed(plan) else "its input has no event time"
    return "" if aged_column(plan) is not None else "no column of the result is the event time of an input"


def aged_column(plan: TablePlan) -> tuple[str, str] | None:
    """The input, and the column of the result that is its event time, where rows of several inputs are combined."""
    select = plan.statement.query.tree
    if not isinstance(select, exp.Select):
        return None
    fields = {one.name: sanitise(time_field(one) or "") for one in plan.inputs if time_field(one)}
    from_ = select.args.get("from_")
    relations = ([from_.this] if from_ else []) + [join.this for join in select.args.get("joins") or ()]
    inputs = [one for one in relations if isinstance(one, exp.Table) and one.meta.get("input") in fields]
    for item in select.expressions:
        value = item.unalias()
        prefix = value.table.casefold() if isinstance(value, exp.Column) else ""
        for table in inputs:
            called, name = (relation_alias(table) or "").casefold(), table.meta["input"]
            if prefix and prefix != called:
                continue
            if "star_end" in item.meta and "except_at" not in item.meta:
                return name, fields[name]
            if isinstance(value, exp.Column) and sanitise(value.name).casefold() == fields[name].casefold():
                return name, sanitise(item.output_name)
    return None


def within_has_times(plan: TablePlan) -> Iterator[Problem]:
    """Both sides of a join WITHIN a duration have an event time."""
    query = plan.statement.query
    for join in query.tree.find_all(exp.Join):
        found = sides(join, _timed(plan)) if "within" in join.meta else None
        if isinstance(found, str):
            step = "Describe both inputs: FROM a WITH ('event.time.field' = 'event_time') JOIN b WITH (…) ON … WITHIN …"
            yield error("E136", found, place(query, join.meta["within"][1]), step)


def _timed(plan: TablePlan) -> set[str]:
    return {one.name for one in plan.inputs if time_field(one) is not None}


def known_time_columns(plan: TablePlan, columns: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    """The event time that a statement gives a table is a column of it, where its columns are known."""
    closing = plan.statement.properties.get(FIELD)
    for planned, ref in ((one, ref) for one in plan.inputs for ref in plan.statement.inputs if one.name == ref.name):
        field = ref.properties.get(FIELD) or (closing if len(plan.inputs) == 1 else None)
        known = columns.get((planned.table or "").casefold())
        if not field or known is None or has_variables(field):
            continue
        names = {name.casefold() for name in known}
        if not names & {sanitise(field).casefold(), field.partition(".")[0].casefold()}:
            message = f"There is no column '{field}' in '{planned.table}', which is to hold its event time."
            yield error("E114", message, planned.span, f"There are {', '.join(known)}.")
