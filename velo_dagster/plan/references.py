"""Tables that a statement joins its rows with: what a load does while one is not ready, and when rows are joined once.

The *driving* input is the one whose rows the result is made of; every other table that is read is a reference.

| `missing.reference` | while a reference is not ready |
|---|---|
| wait, fail | the load does not begin |
| skip | it is an input without rows, at no position; once it is there, the table is computed anew |
| null, default | each row is joined with one made-up row of it, and stays as it is |

Rows that stay as they are, here and under `join.time = load`, are joined once: what a full reload would give is not
what the table has. It is exempt from the promise by choice, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from velo_dagster.errors import Span
from velo_dagster.plan.defaults import ADVICE, defaults_place, unfit
from velo_dagster.plan.inputs import REFERENCE_KEYS, PlannedInput, names_reference
from velo_dagster.plan.refresh import Refresh
from velo_dagster.sql.joins import driving_input, why_not_filled, why_not_once
from velo_dagster.sql.problems import Problem, error
from velo_dagster.sql.properties import BadProperty, resolve
from velo_dagster.sql.statements import CreateTableAs, InputRef
from velo_dagster.sql.variables import MissingVariable

if TYPE_CHECKING:
    from velo_dagster.plan.project import TablePlan

Types = Mapping[str, Mapping[str, str | None]]
How = Literal["wait", "fail", "skip", "null", "default"]
HOW, DEFAULTS = REFERENCE_KEYS


@dataclass(frozen=True)
class Missing:
    """What a load does while a reference is not ready; `defaults`: values of its columns, by name."""

    how: How = "wait"
    defaults: Mapping[str, Any] | None = None

    @property
    def goes_on(self) -> bool:
        return self.how in ("skip", "null", "default")

    @property
    def fills(self) -> bool:
        return self.how in ("null", "default")


def reference_properties(ref: InputRef, statement: CreateTableAs) -> dict[str, str]:
    """What a statement says about one table that it reads: for all references, for the one by name, at the relation.

    The driving input is no reference: of what is said for all, only whether to wait is said of it, too.
    """
    closing = statement.properties
    goes_on = closing.get(HOW, "wait").strip().lower() not in ("wait", "fail")
    drives = goes_on and driving_input(statement.query.tree) == ref.name
    found = {} if drives else {key: closing[key] for key in REFERENCE_KEYS if key in closing}
    for key, value in closing.items():
        plain = names_reference(key, ref.name)
        found |= {plain: value} if plain is not None else {}
    return found | {key: value for key, value in ref.properties.items() if key in REFERENCE_KEYS}


def missing_of(planned: PlannedInput, environ: Mapping[str, str] = os.environ) -> Missing:
    """What to do while the input is not ready."""
    if planned.kind != "table" or not planned.properties:
        return Missing()
    _, given = planned.resolve(environ)
    values = resolve("table", given, where=planned.span)
    return Missing(values[HOW], values[DEFAULTS])


def missable(plan: TablePlan) -> frozenset[str]:
    """The inputs that a load goes on without, by name."""
    return frozenset(one.name for one in plan.inputs if missing_of(one).goes_on)


def driving_of(plan: TablePlan) -> PlannedInput | None:
    name = driving_input(plan.statement.query.tree)
    return next((one for one in plan.inputs if one.name == name), None)


def once_refresh(statement: CreateTableAs) -> Refresh | None:
    """The refresh of a table whose rows are joined once, if its statement asks for that."""
    joins = len(statement.inputs) > 1 and statement.properties.get("join.time", "").strip().lower() == "load"
    if not joins:
        return None
    reason = "'join.time' = 'load' joins each row once, with the other tables as they are at that load"
    return Refresh("once", reason, statement.keys, "a load reads what is new in the driving input, and the others")


def exemption(plan: TablePlan) -> str:
    """Why the table need not equal a full reload, by choice of its statement; empty if it always does."""
    if plan.refresh.method == "once":
        return "join.time = load: rows stay as they were joined"
    fills = [one for one in plan.inputs if missing_of(one).fills]
    if not fills:
        return ""
    named = ", ".join(f"{one.name} ({missing_of(one).how})" for one in fills)
    return f"missing.reference: rows that were loaded without {named} stay as they were filled"


def declared_types(statement: CreateTableAs) -> dict[str, str | None]:
    """The types that a statement declares, by column in lower case; DECIMAL alone says too little."""
    return {one.name.casefold(): one.type for one in statement.columns if one.type.upper() != "DECIMAL"}


def reference_problems(plan: TablePlan, several_streams: bool, types: Types) -> Iterator[Problem]:
    """What is asked of references has a meaning for this statement. `types`: by table, those that it declares."""
    statement = plan.statement
    try:
        asked = {one.name: missing_of(one) for one in plan.inputs}
    except BadProperty:
        # The rule about forms says so.
        return
    except MissingVariable as missing:
        yield error(missing.code, missing.what, statement.span, *missing.steps)
        return
    drives = driving_of(plan)
    if drives is not None and asked[drives.name].goes_on:
        message = f"'{drives.label}' gives the table its rows: it is no reference that could be missing."
        yield error("E125", message, drives.span, "Say it of a table that is joined.")
        return
    fills = [one for one in plan.inputs if asked[one.name].fills]
    skips = [one for one in plan.inputs if asked[one.name].how == "skip"]
    for one in fills:
        yield from _filling(plan, one, asked[one.name], types.get((one.table or "").casefold(), {}))
    loads = plan.refresh.method == "once"
    if not fills and not loads:
        return
    what = "'join.time' = 'load'" if loads else f"'{HOW}' = '{asked[fills[0].name].how}'"
    where = statement.span if loads else fills[0].span
    why = why_not_once(statement.query) or ("it joins several streams" if several_streams else None)
    if why is not None:
        yield error("E139", f"{what} joins each row once, which is not possible here: {why}.", where, *_ADVICE)
    elif skips:
        yield _no_healing(what, skips[0].label, where)


_ADVICE = ("Leave it out: the table then follows its references.", "Or join in a table of its own, and combine there.")


def _no_healing(what: str, label: str, where: Span) -> Problem:
    message = f"{what} joins each row once, so what '{label}' lacks under 'skip' would never be made good."
    return error("E139", message, where, f"Let '{label}' be 'wait', 'null' or 'default'.")


def _filling(
    plan: TablePlan, planned: PlannedInput, asked: Missing, types: Mapping[str, str | None]
) -> Iterator[Problem]:
    why = why_not_filled(plan.statement.query, planned.name)
    if why is not None:
        message = f"'{planned.label}' can't be filled ('{HOW}' = '{asked.how}'): {why}."
        yield error("E139", message, planned.span, "Use 'wait' or 'skip' for it.")
    if asked.how == "default" and not asked.defaults:
        message = f"'{HOW}' = 'default' for '{planned.label}' needs values."
        yield error("E139", message, planned.span, f"""Give them: '{DEFAULTS}' = '{{"name": "unknown"}}'.""")
    for name, value in (asked.defaults or {}).items():
        if not isinstance(value, str | int | Decimal | bool | None):
            message = f"The default of '{name}' is no text, number, true, false or null."
            yield error("E139", message, planned.span, "Leave it out: it is NULL then.")
            return
    for message in unfit(asked.defaults or {}, types):
        yield error("E139", message, defaults_place(plan.statement, planned), ADVICE)
