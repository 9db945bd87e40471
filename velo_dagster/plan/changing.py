"""Rules about statements that change tables, INSERT and its like, and about sinks: what they name must be there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from velo_dagster.errors import Span
from velo_dagster.plan.inputs import SINK_TYPES, prefixes
from velo_dagster.plan.property_places import places_in
from velo_dagster.sql.dialect import Velo
from velo_dagster.sql.problems import Problem, error, nearest
from velo_dagster.sql.statements import (
    CreateTableAs,
    Delete,
    InputRef,
    Insert,
    Statement,
    Transaction,
    Update,
    Upsert,
)

Change = Insert | Update | Delete | Upsert


def changes(statements: Iterable[Statement]) -> Iterator[Change]:
    """The statements that change tables, those of transactions included."""
    for statement in statements:
        if isinstance(statement, Transaction):
            yield from changes(statement.statements)
        elif isinstance(statement, (Insert, Update, Delete, Upsert)):
            yield statement


def inputs_of(change: Change) -> tuple[InputRef, ...]:
    if isinstance(change, (Insert, Upsert)):
        return change.query.inputs
    return (change.input,) if change.input is not None else ()


def unknown_target(change: Change, tables: Sequence[str]) -> Iterator[Problem]:
    """A statement changes a table that a statement of the project creates."""
    if any(name.casefold() == change.table.casefold() for name in tables):
        return
    similar = nearest(change.table, tables)
    steps = [f"Did you mean {' or '.join(similar)}?"] if similar else []
    steps += [
        f"Tables of this project: {', '.join(sorted(tables)) or 'none'}.",
        f"Or create it: CREATE TABLE {change.table} (column type, …);",
    ]
    before = ("UPDATE",) if isinstance(change, Update) else ("INTO", "FROM")
    where = _place_after(change, before, change.table)
    yield error("E113", f"There is no table '{change.table}' to change.", where, *steps)


def unknown_sink(statement: CreateTableAs, named: Mapping[str, object]) -> Iterator[Problem]:
    """A sink is a URI, or a name that the statement or velo.yaml (`named`) describes."""
    name = statement.into.name if statement.into is not None else None
    described = prefixes((k, v) for k, v in statement.properties.items() if v in SINK_TYPES)
    known = sorted({*described, *named})
    if name is None or any(one.casefold() == name.casefold() for one in known):
        return
    similar = nearest(name, known)
    steps = [f"Did you mean {' or '.join(similar)}?"] if similar else []
    steps += [
        f"Describe it: WITH ('{name}.type' = 'kafka_sink', …); types are {', '.join(SINK_TYPES)}.",
        "Or name it by its URI: INTO kafka://broker:9092/topic",
    ]
    yield error("E113", f"Nothing describes the sink '{name}'.", _place_after(statement, ("INTO",), name), *steps)


def _place_after(statement: Statement, words: Sequence[str], name: str) -> Span:
    """Where the name stands right behind one of the words."""
    tokens = Velo().tokenize(statement.text)
    found = (b.start for a, b in pairwise(tokens) if a.text.upper() in words and b.text == name)
    return places_in(statement)(next(found, 0))
