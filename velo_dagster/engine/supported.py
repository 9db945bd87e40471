"""What parses and cannot be loaded yet: refused by name, never half done."""

from __future__ import annotations

from velo_dagster.errors import Terminal, VeloError
from velo_dagster.plan.project import TablePlan

HONOURED = {
    "join.time": {"current"},
    "missing.reference": {"wait", "fail"},
    "extension": {"delta"},
    "retention": set(),
    "event.time.format": {"iso8601"},
}


class Unsupported(Terminal, VeloError):
    """A part of the language that this version reads but does not execute."""

    code = "E210"

    def __init__(self, plan: TablePlan, what: str) -> None:
        super().__init__(
            f"{what} is not supported yet, so table '{plan.name}' is not loaded.", where=plan.statement.span
        )


def check_supported(plan: TablePlan) -> None:
    """Raise for whatever the statement asks that a load would have to ignore."""
    if plan.statement.into is not None:
        raise Unsupported(plan, "INTO a sink")
    for key, honoured in HONOURED.items():
        for given in (plan.statement.properties, *(one.properties for one in plan.inputs)):
            value = given.get(key)
            if value is not None and value.strip().lower() not in honoured:
                raise Unsupported(plan, f"The property '{key}' = '{value}'")
