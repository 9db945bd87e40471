"""Which tables of a project can be loaded although others have errors, and why the rest can't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.errors import Span
from velo_dagster.sql.dialect import Velo
from velo_dagster.sql.problems import Problem
from velo_dagster.sql.statements import Statement
from velo_dagster.sql.text import Places


def unreadable_tables(text: str, file: str, problems: Sequence[Problem]) -> Iterator[str]:
    """The names of tables that statements would create which can't be read; those that get as far as the name."""
    if not problems:
        return
    try:
        tokens = Velo().tokenize(text)
    except TokenError:
        return
    places = Places(text, file)
    wrong = [problem.span for problem in problems]
    for piece in _pieces(tokens):
        end = places.span(piece[-1].end + 1)
        if any(places.span(piece[0].start) <= span <= end for span in wrong):
            words = [token.text.upper() for token in piece[:2]]
            if len(piece) > 2 and words in (["CREATE", "TABLE"], ["CREATE", "STREAM"]):
                yield piece[2].text


def _pieces(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    piece: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            piece.append(token)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def errors_in(statement: Statement, errors: Iterable[Problem]) -> tuple[Problem, ...]:
    """Those of `errors` that stand in the text of the statement."""
    start = statement.span
    lines = statement.text.split("\n")
    column = len(lines[-1]) + (start.column if len(lines) == 1 else 1)
    end = Span(start.file, start.line + len(lines) - 1, column)
    return tuple(one for one in errors if one.span.file == start.file and start <= one.span <= end)


def blocked_tables(
    own: Mapping[str, Sequence[Problem]], reads: Mapping[str, Sequence[str]], unreadable: Iterable[str]
) -> dict[str, str]:
    """Why a table can't be loaded, by name: its own statement, or that of a table that it needs.

    >>> blocked = blocked_tables({"a": [], "b": []}, {"a": ["x"], "b": []}, ["x"])
    >>> blocked["a"], "b" in blocked
    ("it reads table 'x', which is blocked", False)
    """
    found = dict.fromkeys(unreadable, "its statement can't be read")
    for name, errors in own.items():
        if errors:
            more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
            found[name] = f"its statement has an error: {errors[0].code} at {errors[0].span}{more}"
    waiting = True
    while waiting:
        waiting = False
        folded = {name.casefold(): name for name in found}
        for name, inputs in reads.items():
            wrong = next((folded[one.casefold()] for one in inputs if one.casefold() in folded), None)
            if name not in found and wrong is not None:
                found[name] = f"it reads table '{wrong}', which is blocked"
                waiting = True
    return found
