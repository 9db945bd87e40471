"""Which cast of a statement overflowed: Spark tells the type, but not the place.

The casts to that type are looked for in the user's own text, and among the declared columns. Where there is one, it is
the one; where there are several, all of them are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.errors import Span
from velo_dagster.sql.render import place
from velo_dagster.sql.statements import Column, Query
from velo_dagster.sql.type_names import spark_type

OVERFLOW = re.compile(r'\[CAST_OVERFLOW\] The value \S+ of the type "[^"]+" cannot be cast to "(\w+)"')


def casts_that_overflow(error: Exception, query: Query, declared: Sequence[Column] = ()) -> list[Span]:
    """Where the cast may stand of which an error says that it overflowed; none, if it says no such thing."""
    found = OVERFLOW.search(str(error))
    if found is None:
        return []
    written = [place(query, at) for at in _casts(query.tokens, found[1])]
    return [*(column.span for column in declared if column.type == found[1]), *written]


def _casts(tokens: Sequence[Token], wanted: str) -> Iterator[int]:
    """Where casts to a type begin: `CAST(x AS t)`, `t(x)`; of `x::t`, where the type stands."""
    opened: list[Token] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.token_type == TokenType.L_PAREN:
            opened.append(before or token)
        elif token.token_type == TokenType.R_PAREN and opened:
            opened.pop()
        if spark_type(token.text) != wanted or before is None:
            continue
        if before.token_type == TokenType.ALIAS and opened and opened[-1].text.upper() == "CAST":
            yield opened[-1].start
        elif before.token_type == TokenType.DCOLON or (after and after.token_type == TokenType.L_PAREN):
            yield token.start
