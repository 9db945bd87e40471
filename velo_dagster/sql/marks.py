"""What the parser leaves in the tree for those who rewrite the text, and how it refuses a text.

The marks, in the nodes' `meta`, are offsets into the text that was parsed:

| node | key | value |
|---|---|---|
| Table | `name_span` | where the relation's name, URI or kafka_topic('t') stands |
| Table | `name_end` | where an alias would be put: after the name and its TABLESAMPLE |
| Table | `uri`, `properties`, `with_span` | of a URI; of a WITH at the relation |
| TableSample, Order | `end` | where it ends |
| select item | `span`, `key_span` | the item without PRIMARY KEY; where PRIMARY KEY stands |
| Alias | `value_end` | where the aliased expression ends |
| Select | `table_query` | where the `TABLE` of `TABLE t` stands |
| Star, in an item | `star_end`, `except_at` | after the `*`; inside the parentheses of its EXCEPT |
| Select, set operation | `clauses` | (kind, start, end) of WHERE, GROUP BY, ... in the order written |
| Select, set operation | `time_window`, `emit` | TimeWindow; (word, start, end) |
| call, with its OVER or WITHIN GROUP | `call_start` | where the function's name stands |
| comparison | `quantified` | Quantified: `x op ANY|SOME|ALL (...)` |
| Join | `within` | (duration text, start, end) |
| Window | `buffer` | (start, end) of ROWS WINDOW BUFFER n ROWS |
| VeloPath | `span` | where the path stands |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.errors import ParseError
from sqlglot.expressions.core import Expression

Span = tuple[int, int]


@dataclass(frozen=True)
class TimeWindow:
    """`WINDOW kind(column, size, ...)`: the arguments as written, and where the clause stands."""

    kind: str
    arguments: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Quantified:
    """`left op ANY|SOME|ALL (...)`: where the whole, the left operand, and what is in the parentheses stand.

    `left IN (subquery)` is one too, as ANY, and `left NOT IN (subquery)`, as ALL.
    """

    whole: Span
    left: Span
    operator: str
    word: str
    inside: Span
    subquery: bool
    items: tuple[Span, ...]


class VeloPath(Expression):
    """A path with a wildcard into nested data, as written."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Refusal(ParseError):
    """The text cannot be read as a statement: a stable code, the sentence, the offset, what helps."""

    def __init__(self, code: str, message: str, offset: int, steps: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.steps = tuple(steps)
