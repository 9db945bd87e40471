"""What parses and cannot be loaded yet: refused by name, never half done."""

from __future__ import annotations

import os
from collections.abc import Mapping

from velo_dagster.engine.event_time import input_times
from velo_dagster.errors import Terminal, VeloError
from velo_dagster.plan.project import TablePlan
from velo_dagster.sql.render import check_supported as check_rendering
from velo_dagster.sql.variables import resolve

HONOURED = {
    "extension": {"delta"},
}


class Unsupported(Terminal, VeloError):
    """A part of the language that this version reads but does not execute."""

    code = "E210"

    def __init__(self, plan: TablePlan, what: str, step: str) -> None:
        super().__init__(
            f"{what} is not supported yet, so table '{plan.name}' is not loaded.",
            where=plan.statement.span,
            steps=[step],
        )


def check_supported(plan: TablePlan, environ: Mapping[str, str] = os.environ) -> None:
    """Raise for whatever the statement asks that a load would have to ignore.

    Values are judged with their variables replaced, and told as they were written.
    """
    statement = plan.statement
    if statement.into is not None:
        raise Unsupported(plan, "INTO a sink", "Leave INTO out, and read the table: any Delta reader opens it.")
    # Rendering would find it as well, but only once Spark is up and the sources are read.
    check_rendering(statement.query)
    for key, honoured in HONOURED.items():
        written = statement.properties.get(key)
        if written is not None and resolve(key, written, environ, statement.span).strip().lower() not in honoured:
            step = f"Leave it out, or write '{key}' = '{', '.join(sorted(honoured))}'."
            raise Unsupported(plan, f"The property '{key}' = '{written}'", step)
    # What variables stand for is known only now; else Spark would be up before a wrong value is told.
    input_times(plan, environ)
