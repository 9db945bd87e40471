"""Where in a statement a property stands, so that what is wrong with it can be told there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.errors import Span
from velo_dagster.sql.dialect import Velo
from velo_dagster.sql.statements import Statement
from velo_dagster.sql.text import Places
from velo_dagster.sql.variables import has_variables

_BEFORE = (TokenType.COMMA, TokenType.L_PAREN)
_AFTER = (TokenType.COMMA, TokenType.R_PAREN)


@dataclass(frozen=True)
class Written:
    """A property as a statement writes it."""

    key: str
    value: str
    key_span: Span
    value_span: Span


def places_in(statement: Statement) -> Callable[[int], Span]:
    """Gives the place in the file for an offset in the statement's text."""
    start, places = statement.span, Places(statement.text, statement.span.file)

    def span(offset: int) -> Span:
        place = places.span(offset)
        column = place.column + (start.column - 1 if place.line == 1 else 0)
        return Span(place.file, start.line + place.line - 1, column)

    return span


def written_properties(statement: Statement) -> tuple[Written, ...]:
    """Everything of the form `key = value` between commas and parentheses: all properties, and perhaps more."""
    text, span = statement.text, places_in(statement)
    tokens = Velo().tokenize(text)
    found: list[Written] = []
    for at, token in enumerate(tokens):
        if token.token_type != TokenType.EQ:
            continue
        first = next((n + 1 for n in range(at - 1, -1, -1) if tokens[n].token_type in _BEFORE), at)
        last = next((n for n in range(at + 1, len(tokens)) if tokens[n].token_type in _AFTER), at)
        if first < at and at + 1 < last:
            key, value = tokens[first:at], tokens[at + 1 : last]
            found.append(Written(_text(text, key), _text(text, value), span(key[0].start), span(value[0].start)))
    return tuple(found)


def find_property(written: Sequence[Written], key: str, value: str, owner: str | None) -> Written | None:
    """The property of this value, under its own name or that of the source that it describes; the last one counts.

    The value may be what its variables stand for.
    """
    spellings = {key, f"{owner}.{key}"}
    last_first = [one for one in reversed(written) if one.key in spellings]
    return next((one for one in last_first if one.value == value or has_variables(one.value)), None)


def _text(text: str, tokens: Sequence[Token]) -> str:
    """A quoted part without its quotes, another as it is written."""
    return tokens[0].text if len(tokens) == 1 else text[tokens[0].start : tokens[-1].end + 1]
