"""Which cast of a statement, or which of its declared columns, does not hold a value.

Of a cast that overflowed Spark tells the type, but not the place. The casts to that type are looked for in the user's
own text. Where there is one, it is the one; where there are several, all of them are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.engine.columns import BARE, MISFIT, WIDEST
from velo_dagster.engine.errors import InexactCast
from velo_dagster.errors import Span
from velo_dagster.sql.render import place
from velo_dagster.sql.statements import Column, Query
from velo_dagster.sql.type_names import spark_type

OVERFLOW = re.compile(r'\[CAST_OVERFLOW\] The value \S+ of the type "[^"]+" cannot be cast to "(\w+)"')

RAISED = "[USER_RAISED_EXCEPTION]"


def casts_that_overflow(error: Exception, query: Query) -> list[Span]:
    """Where the cast may stand of which an error says that it overflowed; none, if it says no such thing."""
    found = OVERFLOW.search(str(error))
    return [place(query, at) for at in _casts(query.tokens, found[1])] if found else []


def too_narrow(sentence: str, declared: Sequence[Column], lead: str) -> InexactCast | None:
    """The error to show if Spark's sentence is that a declared column does not hold a value."""
    said = sentence.removeprefix(f"{RAISED} ")
    for column in declared:
        if said != sentence and said.startswith(f"Column {column.name} ") and MISFIT in said:
            steps = ["Mend the value or the SELECT, or declare a type that holds it."]
            if column.type.upper() == BARE:
                steps.append(
                    f"{BARE} over a text or a float is {WIDEST}: declare the digits that it needs, {BARE}(p,s)."
                )
            return InexactCast(f"{lead}{said}.", where=column.span, steps=steps)
    return None


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
