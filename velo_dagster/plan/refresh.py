"""How changes of a table's inputs become changes of the table: which refresh method, its keys, its cost, its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velo_dagster.plan.blocks import (
    aggregates,
    driving,
    group_keys,
    has_windows,
    is_one_row,
    partition,
    unwrapped,
)
from velo_dagster.plan.touched import touched_by
from velo_dagster.plan.whole import why_whole
from velo_dagster.plan.words import listed, shown_key
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.rows import outside_word, why_not_by_row
from velo_dagster.sql.statements import CreateTableAs

Method = Literal["append", "merge", "groups", "once", "full"]


@dataclass(frozen=True)
class Refresh:
    """The refresh method and why it is this one, in words that end a sentence. `touches`: by input, which rows or parts
    of the table a changed row of it touches, where a load looks for them."""

    method: Method
    reason: str
    keys: tuple[str, ...]
    cost: str
    touches: Mapping[str, str] = field(default_factory=dict)


def plan_refresh(statement: CreateTableAs) -> Refresh:
    """The cheapest method that keeps the table equal to a full reload."""
    forbidden = why_not_by_row(statement)
    if forbidden is None and "retention" in statement.properties:
        forbidden = "retention removes rows that were loaded before"
    if forbidden is not None:
        return _over_tables(statement, forbidden)
    if statement.keys:
        tells = "tells" if len(statement.keys) == 1 else "tell"
        reason = f"each row comes from one input row, and {listed(statement.keys)} {tells} which row it replaces"
        cost = "a load reads what is new, and the table's files that hold its keys"
        touches = {one.name: f"the row with its {listed(statement.keys)}" for one in statement.inputs}
        return Refresh("merge", reason, statement.keys, cost, touches)
    return Refresh("append", "each row comes from one input row", (), "a load reads what is new")


def _over_tables(statement: CreateTableAs, by_row: str) -> Refresh:
    """`by_row`: what forbids to treat it row by row."""
    whole = _why_whole(statement)
    if whole is not None:
        return Refresh("full", whole, statement.keys, "every load reads all of the inputs: O(table)")
    cost = "a load computes anew the parts that changed: O(groups touched)"
    reason = f"{by_row}; its parts are told apart by {_parts(statement.query.tree)}"
    if is_one_row(statement.query.tree):
        cost = "a load reads what is new: O(change); where rows changed or went, all of the inputs: O(table)"
        reason = f"{by_row}; it is one row, to which new rows are added"
    return Refresh("groups", reason, statement.keys, cost, touched_by(statement.query.tree))


def _why_whole(statement: CreateTableAs) -> str | None:
    query = statement.query
    if statement.emit == "final" and "time_window" in query.tree.meta:
        return "EMIT FINAL shows windows that every row can close"
    if "retention" in statement.properties:
        return "retention removes rows that were loaded before"
    if any(token.token_type == TokenType.PIPE_GT for token in query.tokens):
        return "steps with |> are not taken apart"
    if any("table_query" in node.meta for node in query.tree.walk()):
        return "TABLE is not taken apart"
    for select in query.tree.find_all(exp.Select):
        window = select.meta.get("time_window")
        if (
            window is not None
            and window.kind == "SESSION"
            and not (select.args.get("group") or len(window.arguments) > 2)
        ):
            return "a session window alone has no key"
    outside = outside_word(query)
    return f"{outside} is not the same at every load" if outside is not None else why_whole(query.tree)


def _parts(query: exp.Expr) -> str:
    """By what the result is told apart, in words."""
    block = unwrapped(query)
    if not isinstance(block, exp.Select) or block.args.get("distinct"):
        return "all columns"
    if has_windows(block):
        return listed([shown_key(block, key) for key in partition(block)])
    if aggregates(block) or "time_window" in block.meta:
        window = block.meta.get("time_window")
        timed = ["the window"] if window is not None and window.kind != "SESSION" else []
        session = [window.arguments[-1]] if window is not None and window.kind == "SESSION" else []
        keys = [shown_key(block, key) for key in group_keys(block)]
        return listed([*keys, *timed] if keys or timed else session)
    rows = [
        _parts(one) if isinstance(one, exp.Subquery) else f"the row of {relation_alias(one) or one.name}"
        for one in driving(block)
        if isinstance(one, exp.Table | exp.Subquery)
    ]
    return listed(rows)
