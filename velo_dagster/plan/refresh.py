"""How changes of a table's inputs become changes of the table: which refresh method, its keys, its cost, its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from velo_dagster.sql.rows import why_not_by_row
from velo_dagster.sql.statements import CreateTableAs

Method = Literal["append", "merge", "full"]


@dataclass(frozen=True)
class Refresh:
    """The refresh method and why it is this one, in words that end a sentence."""

    method: Method
    reason: str
    keys: tuple[str, ...]
    cost: str


def plan_refresh(statement: CreateTableAs) -> Refresh:
    """The cheapest method that keeps the table equal to a full reload."""
    forbidden = why_not_by_row(statement)
    if forbidden is None and "retention" in statement.properties:
        forbidden = "retention removes rows that were loaded before"
    if forbidden is not None:
        return Refresh("full", forbidden, statement.keys, "every load reads all of the inputs")
    if statement.keys:
        reason = f"each row comes from one input row, and {_listed(statement.keys)} tells which row it replaces"
        return Refresh(
            "merge", reason, statement.keys, "a load reads what is new, and the table's files that hold its keys"
        )
    return Refresh("append", "each row comes from one input row", (), "a load reads what is new")


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
