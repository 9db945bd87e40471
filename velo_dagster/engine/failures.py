"""Spark's errors in our words: the sentence that helps, where the statement stands, and nothing of the JVM's stack."""

from __future__ import annotations

import re

from velo_dagster.engine.errors import StatementFailed
from velo_dagster.errors import VeloError
from velo_dagster.plan.project import TablePlan

NOISE = re.compile(r"\n(JVM stacktrace|== SQL|== DataFrame ==|\s+at |Caused by:|Driver stacktrace|Traceback).*", re.S)

STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.S)
CAUSE = re.compile(r"^(?:Caused by: )[\w.$]+: ([^\n]+)", re.M)
HIDDEN_NAMES = re.compile(r", `_velo_\w+`|`_velo_\w+`, ")


def as_velo_error(error: Exception, plan: TablePlan) -> VeloError:
    """The error to show; the original stays its cause, for whoever asks for the details."""
    made = StatementFailed(
        f"Table '{plan.name}' could not be loaded and is as it was. {summary(error)}", where=plan.statement.span
    )
    made.__cause__ = error
    return made


def summary(error: Exception) -> str:
    """The part of an error's text that concerns the user.

    >>> summary(ValueError("[DIVIDE_BY_ZERO] Division by zero.\\n== SQL (line 1) ==\\nx\\n\\tat org.apache"))
    '[DIVIDE_BY_ZERO] Division by zero.'
    """
    whole = str(error)
    text = NOISE.sub("", whole).strip()
    named = re.search(r"(?:Exception|Error): (\[[A-Z_.]+\][^\n]*)", text)
    said = HIDDEN_NAMES.sub("", STATE.sub("", named.group(1) if named else text)).strip()
    causes = CAUSE.findall(whole)
    return f"{said} Cause: {causes[-1]}" if causes and causes[-1] not in said else said
