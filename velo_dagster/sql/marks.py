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
| Join | `end` | where it ends, without its WITHIN |
| Join | `within`, `on_start` | (duration text, start, end); where the condition of such a join begins |
| Window | `buffer`, `bounds` | (start, end, n) of ROWS WINDOW BUFFER n ROWS; where the bounds of its own frame stand |
| VeloPath | `span`, `steps` | where the path stands; what follows its column |
| Select | `from_end` | where its FROM ends, joins and LATERAL VIEWs included |
| value of a VARIANT | `variant_path` | where its path `:a.b[0]` stands |
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


@dataclass(frozen=True)
class Name:
    """A step of a path: the field, or the key, of that name."""

    name: str


@dataclass(frozen=True)
class Index:
    """A step of a path: the element at a place, counted from 0."""

    at: int


@dataclass(frozen=True)
class Each:
    """A step of a path: all elements, fields or values, one level down. `*` or `[*]`."""


@dataclass(frozen=True)
class Deep:
    """A step of a path: the value itself and all below it, at any depth. `**`."""


Step = Name | Index | Each | Deep


class VeloPath(Expression):
    """A path into nested data with a wildcard or an index: its column, or a star where it starts from the row."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.meta["steps"]

    @property
    def many(self) -> bool:
        """Whether it has a wildcard, and so any number of values."""
        return any(isinstance(step, Each | Deep) for step in self.steps)


class Refusal(ParseError):
    """The text cannot be read as a statement: a stable code, the sentence, the offset, what helps."""

    def __init__(self, code: str, message: str, offset: int, steps: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.steps = tuple(steps)
