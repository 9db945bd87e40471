"""Text → statements, or all that is wrong with it at once.

The text is cut at its semicolons first, so that an error in one statement does not hide those of the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql.dialect import Velo, VeloParser
from velo_dagster.sql.grammar import Grammar
from velo_dagster.sql.marks import Refusal
from velo_dagster.sql.problems import Problem, StatementError, error
from velo_dagster.sql.statements import Comment, Query, Statement, Transaction
from velo_dagster.sql.text import Places, comments_between, comments_inside
from velo_dagster.sql.uris import unclosed

_DIALECT = Velo()
_Written = tuple[int, str]
"""A comment, and where in the file it begins."""


@dataclass(frozen=True)
class _Piece:
    """The tokens of one statement, moved so that the statement's text begins at 0, and where it begins in the file."""

    tokens: list[Token]
    text: str
    offset: int
    comments: tuple[_Written, ...]
    inner_comments: tuple[_Written, ...]


def parse(text: str, file: str) -> tuple[tuple[Statement, ...], tuple[Problem, ...]]:
    """Every statement of a file that can be read, and a problem for each that cannot."""
    places = Places(text, file)
    statements: list[Statement] = []
    problems: list[Problem] = []
    opened: tuple[_Piece, list[Statement]] | None = None
    pieces, unreadable = _cut(text, places)
    if unreadable:
        return (), (unreadable,)
    for piece in pieces:
        span = places.span(piece.offset)
        try:
            word = _transaction_word(piece)
            if word == "BEGIN":
                if opened:
                    raise Refusal("E126", "BEGIN stands inside a transaction.", 0, ["COMMIT the first one before."])
                opened = (piece, [])
            elif word == "COMMIT":
                if not opened:
                    raise Refusal("E126", "COMMIT without BEGIN.", 0, ["Write BEGIN; before the first statement."])
                begin, inner = opened
                statements.append(_transaction(begin, inner, text, piece, places))
                opened = None
            else:
                statement = _statement(piece, places)
                (opened[1] if opened else statements).append(statement)
        except Refusal as refusal:
            problems.append(_problem(refusal, piece, places))
        except RecursionError:
            problems.append(error("E129", "The statement is nested too deeply.", span, "Split it into several tables."))
    if opened:
        span = places.span(opened[0].offset)
        problems.append(
            error("E126", "The transaction is never closed.", span, "Write COMMIT; after its last statement.")
        )
    return tuple(statements), tuple(problems)


def loose_comments(text: str, file: str) -> tuple[Comment, ...]:
    """The comments of a file that belong to no statement: those above a blank line, and those at the end."""
    places = Places(text, file)
    pieces, _ = _cut(text, places)
    loose: list[_Written] = []
    at = 0
    for piece in pieces:
        gap = list(comments_between(text, at, piece.offset))
        own = len(_lines_right_above(text, at, piece.offset))
        loose += gap[: len(gap) - own]
        at = piece.offset + len(piece.text)
    return _comments([*loose, *comments_between(text, at, len(text))], places)


def _comments(written: Iterable[_Written], places: Places) -> tuple[Comment, ...]:
    return tuple(Comment(text, places.span(offset)) for offset, text in written)


def parse_select(text: str, file: str = "query") -> Query:
    """A query alone, as the command line takes it; raises `StatementError`."""
    places = Places(text, file)
    pieces, unreadable = _cut(text, places)
    if unreadable:
        raise StatementError(unreadable)
    if len(pieces) != 1:
        message = "There is no query." if not pieces else "One query at a time."
        raise StatementError(error("E103", message, places.span(0), "Write one SELECT …"))
    try:
        return _grammar(pieces[0], places).lone_query()
    except Refusal as refusal:
        if refusal.code == "E122":
            refusal.steps = ("A query reads tables, by names without dots. To query a file, load a table from it.",)
        raise StatementError(_problem(refusal, pieces[0], places)) from None


def _pieces(text: str) -> Iterator[_Piece]:
    tokens = _DIALECT.tokenize(text)
    chunk: list[Token] = []
    before = 0
    for token in [*tokens, Token(TokenType.SEMICOLON, ";", start=len(text), end=len(text))]:
        if token.token_type != TokenType.SEMICOLON:
            chunk.append(token)
            continue
        if chunk:
            yield _piece(text, chunk, before)
            chunk = []
        before = token.end + 1


def _piece(text: str, tokens: list[Token], before: int) -> _Piece:
    start, end = tokens[0].start, tokens[-1].end + 1
    above = _lines_right_above(text, before, start)
    inside = tuple(comments_inside(text, tokens))
    for token in tokens:
        token.start -= start
        token.end -= start
    return _Piece(tokens, text[start:end], start, above, inside)


def _lines_right_above(text: str, before: int, start: int) -> tuple[_Written, ...]:
    """The comment lines that touch the statement: a blank line ends them."""
    gap = text[before:start]
    blank = [match.end() for match in re.finditer(r"\n[ \t]*\r?\n", gap)]
    begin = before + (blank[-1] if blank else 0)
    return tuple(comments_between(text, begin, start))


def _transaction_word(piece: _Piece) -> str | None:
    words = [token.text.upper() for token in piece.tokens]
    if words in (["BEGIN"], ["BEGIN", "TRANSACTION"]):
        return "BEGIN"
    return "COMMIT" if words in (["COMMIT"], ["COMMIT", "TRANSACTION"]) else None


def _grammar(piece: _Piece, places: Places) -> Grammar:
    parser = VeloParser(dialect=_DIALECT)
    parser.start(piece.tokens, piece.text)
    head = {
        "span": places.span(piece.offset),
        "text": piece.text,
        "comments": _comments(piece.comments, places),
        "inner_comments": _comments(piece.inner_comments, places),
    }
    return Grammar(parser, lambda offset: places.span(piece.offset + offset), head)


def _statement(piece: _Piece, places: Places) -> Statement:
    return _grammar(piece, places).statement()


def _transaction(begin: _Piece, inner: Sequence[Statement], text: str, commit: _Piece, places: Places) -> Transaction:
    whole = text[begin.offset : commit.offset + len(commit.text)]
    return Transaction(places.span(begin.offset), whole, _comments(begin.comments, places), (), tuple(inner))


def _problem(refusal: Refusal, piece: _Piece, places: Places) -> Problem:
    return error(refusal.code, refusal.message, places.span(piece.offset + refusal.offset), *refusal.steps)


def _cut(text: str, places: Places) -> tuple[list[_Piece], Problem | None]:
    """The statements' pieces, or why the text cannot be cut into any."""
    at = unclosed(text)
    if at is not None:
        message = "A quote or comment that begins here is never closed."
        return [], error("E101", message, places.span(at), "Close it.")
    try:
        return list(_pieces(text)), None
    except TokenError as failure:
        reason = str(failure.__cause__ or failure)
        return [], error("E101", f"The text cannot be cut into words: {reason}.", places.span(0))
