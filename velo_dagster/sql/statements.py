"""What a user's SQL says, as frozen values with the place they came from.

Two statements are equal if they say the same: places, white space and comments don't count. A query keeps the user's
own text, because the text is what Spark gets; its tree is there to understand it (see `velo_dagster.sql.marks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from velo_dagster.errors import Span
from velo_dagster.sql import uris


@dataclass(frozen=True)
class InputRef:
    """One relation in FROM or JOIN: a name (table or named source), or a URI. Equal URIs and properties are one input.

    For a URI `name` is made up (`_input_0`, ...), the same for equal input, and never shown to users (`label` is).
    """

    name: str
    uri: str | None
    properties: Mapping[str, str]
    span: Span = field(compare=False)

    @property
    def label(self) -> str:
        """How messages call it: the URI without its query string and password, else the name."""
        return uris.label(self.uri) if self.uri else self.name


@dataclass(frozen=True)
class Query:
    """A SELECT (or set operation, VALUES, …): its text in one normal form, its tree, where it stands in `source`."""

    text: str
    source: str = field(compare=False, repr=False)
    start: int = field(compare=False, repr=False)
    end: int = field(compare=False, repr=False)
    tree: exp.Expr = field(compare=False, repr=False)
    tokens: tuple[Token, ...] = field(compare=False, repr=False)
    inputs: tuple[InputRef, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Column:
    """A declared column. `type` is Spark's spelling, or 'DECIMAL' alone where the user gave no precision."""

    name: str
    type: str
    primary_key: bool
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Sink:
    """Where a table's changes also go: a name described by properties, or a URI."""

    name: str | None
    uri: str | None


@dataclass(frozen=True)
class Comment:
    """A `--` comment: its text, without the dashes and the blank behind them, and where that text begins."""

    text: str
    span: Span


@dataclass(frozen=True)
class Statement:
    """What all statements have: where they stand, their text, and the comment lines right above and inside them."""

    span: Span = field(compare=False)
    text: str = field(compare=False, repr=False)
    comments: tuple[Comment, ...] = field(compare=False, repr=False)
    inner_comments: tuple[Comment, ...] = field(compare=False, repr=False)


@dataclass(frozen=True)
class CreateTableAs(Statement):
    """CREATE TABLE | STREAM name AS select: a table that is loaded from its inputs."""

    name: str
    columns: tuple[Column, ...]
    query: Query
    keys: tuple[str, ...]
    emit: Literal["changes", "final"] | None
    into: Sink | None
    properties: Mapping[str, str]
    stream: bool

    @property
    def inputs(self) -> tuple[InputRef, ...]:
        return self.query.inputs


@dataclass(frozen=True)
class CreateTable(Statement):
    """CREATE TABLE name (columns): a table that only statements change."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT INTO table SELECT … or VALUES …; `columns` is empty where the user named none."""

    table: str
    columns: tuple[str, ...]
    query: Query
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Assignment:
    """`column = expression` of an UPDATE; the expression in the user's text."""

    column: str
    expression: str


@dataclass(frozen=True)
class Update(Statement):
    """UPDATE table SET … [FROM input] WHERE …"""

    table: str
    alias: str | None
    assignments: tuple[Assignment, ...]
    input: InputRef | None
    input_alias: str | None
    where: str | None


@dataclass(frozen=True)
class Delete(Statement):
    """DELETE FROM table [USING input | FROM input] WHERE …"""

    table: str
    alias: str | None
    input: InputRef | None
    input_alias: str | None
    where: str | None


@dataclass(frozen=True)
class Upsert(Statement):
    """UPSERT INTO table SELECT … ON table.key = input.key"""

    table: str
    query: Query
    on: str


@dataclass(frozen=True)
class Transaction(Statement):
    """BEGIN; …; COMMIT: several statements, all or nothing."""

    statements: tuple[Statement, ...]


def place(query: Query, offset: int) -> Span:
    """Where in the user's file an offset of the query's source stands."""
    before = query.source[query.start : offset]
    lines = before.count("\n")
    column = len(before) - before.rfind("\n") if lines else query.span.column + len(before)
    return Span(query.span.file, query.span.line + lines, column)
