"""What a user probably meant where the grammar cannot go on: a misspelt word, a missing `;`, a dash in a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql.dialect import URI, VeloParser
from velo_dagster.sql.marks import Refusal
from velo_dagster.sql.uris import is_file_name, label

_CLAUSE_WORDS = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "JOIN", "WINDOW", "UNION", "EMIT", "WITH")
_BEGINNINGS = {
    "CREATE": ("TABLE", "STREAM"),
    "INSERT": ("INTO",),
    "DELETE": ("FROM",),
    "UPSERT": ("INTO",),
    "BEGIN": (),
    "COMMIT": (),
    "UPDATE": (),
}
"""The words that begin a statement, and what must follow them."""

_BEFORE_A_NAME = ("FROM", "JOIN", "INTO", "TABLE", "STREAM", "UPDATE", ",", "(")
_WORD_LIKE = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.STAR, TokenType.NUMBER, URI)


def did_you_mean(word: str, known: Sequence[str]) -> tuple[str, ...]:
    """A step that names the known word most like this one, if any is.

    >>> did_you_mean("SELCT", ["SELECT", "CREATE"]), did_you_mean("DROP", ["SELECT", "CREATE"])
    (('Did you mean SELECT?',), ())
    """
    near = get_close_matches(word.upper(), known, n=1, cutoff=0.74)
    return (f"Did you mean {near[0]}?",) if near and near[0] != word.upper() else ()


def left_over(parser: VeloParser, *, alone: bool = False) -> Refusal:
    """Why a statement that could end here goes on. A misspelt word may have been taken for an alias just before.

    `alone`: it is a query by itself, which reads tables only, and has no statement beside it.
    """
    index, tokens = parser._index, parser._tokens
    slips = (dash_in_name, _misspelt_clause)
    if not alone:
        slips = (_missing_semicolon, _blank_in_uri, _bare_path, misspelt_key, *slips)
    found = next((refusal for slip in slips if (refusal := slip(parser, tokens, index))), None)
    return found or _anything_else(parser, alone)


def _blank_in_uri(parser: VeloParser, tokens: Sequence[Token], index: int) -> Refusal | None:
    """`file://my orders.csv`: the URI ends at the blank, `orders` was taken for its alias, and `.csv` is left."""
    uri = next((tokens[at] for at in (index - 1, index - 2) if at >= 0 and tokens[at].token_type == URI), None)
    if uri is None:
        return None
    rest = _rest_of_uri(parser.sql[uri.end + 1 :])
    if uri.end + 1 + len(rest) <= tokens[index].start:
        return None
    shown = label(uri.text)
    step = f"If the blank is part of it, quote it: '{shown}{rest}'"
    return parser.refuse("E102", f"The URI {shown} ends at the blank behind it.", step, at=uri.start)


def _rest_of_uri(text: str) -> str:
    """What of the text behind a URI looks like its end: up to the first word that ends as a file does, or is a path.

    >>> _rest_of_uri(" data/orders 2.csv WHERE a.b > 1"), _rest_of_uri(" data/more WHERE c"), _rest_of_uri(" o WHERE c")
    (' data/orders 2.csv', ' data/more', '')
    """
    words = list(re.finditer(r"[^\s;,()]+", text.split(";")[0].split("\n")[0]))
    ends = [word.end() for word in words if is_file_name(word[0])] or [word.end() for word in words if "/" in word[0]]
    return text[: ends[0]] if ends else ""


def _bare_path(parser: VeloParser, tokens: Sequence[Token], index: int) -> Refusal | None:
    """`FROM data/a.csv` where the parser has read the name `data`."""
    if index < 2 or tokens[index].token_type != TokenType.SLASH:
        return None
    if tokens[index - 2].text.upper() not in ("FROM", "JOIN"):
        return None
    path = re.match(r"[^\s;,()]+", parser.sql[tokens[index - 1].start :])
    if path is None or tokens[index - 1].end + 1 != tokens[index].start:
        return None
    message = f"'{path[0]}' is neither a table nor a URI."
    return parser.refuse("E102", message, f"For a file, write file://{path[0]}", at=tokens[index - 1].start)


def misspelt_key(parser: VeloParser, tokens: Sequence[Token], index: int) -> Refusal | None:
    """`PRIMRY KEY` or `PRIMARY KEE`, of which the second word stands at `index`."""
    if not 0 < index < len(tokens):
        return None
    first, second = tokens[index - 1].text.upper(), tokens[index].text.upper()
    primary = get_close_matches(first, ["PRIMARY"], cutoff=0.74)
    key = get_close_matches(second, ["KEY"], cutoff=0.6)
    if not primary or not key or (first, second) == ("PRIMARY", "KEY"):
        return None
    written = parser.raw(tokens[index - 1].start, tokens[index].end + 1)
    at = tokens[index - 1].start
    return parser.refuse("E102", f"'{written}' says nothing about a column.", "Did you mean PRIMARY KEY?", at=at)


def dash_in_name(parser: VeloParser, tokens: Sequence[Token], index: int) -> Refusal | None:
    """`my-orders` where the parser has read the name `my`."""
    if index + 1 >= len(tokens) or tokens[index].token_type != TokenType.DASH or index < 2:
        return None
    last = index
    while last + 1 < len(tokens) and tokens[last + 1].start == tokens[last].end + 1 and _in_name(tokens[last + 1]):
        last += 1
    first = tokens[index - 1]
    named = tokens[index - 2].text.upper() in _BEFORE_A_NAME
    if not named or first.token_type == TokenType.IDENTIFIER or first.end + 1 != tokens[index].start or last == index:
        return None
    name = parser.raw(first.start, tokens[last].end + 1)
    step = f"Write `{name}` with backticks, or call it {name.replace('-', '_')}."
    return parser.refuse("E105", "A name with a dash must be quoted.", step, at=first.start)


def _in_name(token: Token) -> bool:
    return token.token_type == TokenType.DASH or token.text.replace("_", "a").isalnum()


def _missing_semicolon(parser: VeloParser, tokens: Sequence[Token], index: int) -> Refusal | None:
    for at in (index - 1, index):
        word = tokens[at].text.upper()
        if at < 1 or word not in _BEGINNINGS or tokens[at].token_type == TokenType.IDENTIFIER:
            continue
        following = tokens[at + 1].text.upper() if at + 1 < len(tokens) else ""
        needed = _BEGINNINGS[word]
        if following in needed or (not needed and at == index):
            step = "Put ; between the two statements."
            return parser.refuse("E102", f"A ; is missing before {word}.", step, at=tokens[at].start)
    return None


def _misspelt_clause(parser: VeloParser, tokens: Sequence[Token], index: int) -> Refusal | None:
    for at in (index - 1, index):
        token = tokens[at]
        if at < 1 or token.token_type != TokenType.VAR or tokens[at - 1].token_type not in _WORD_LIKE:
            continue
        near = get_close_matches(token.text.upper(), _CLAUSE_WORDS, n=1, cutoff=0.74)
        by = near and near[0] in ("GROUP", "ORDER")
        if not near or near[0] == token.text.upper() or (by and not _is_followed_by(tokens, at, "BY")):
            continue
        step = f"Did you mean {near[0]}{' BY' if by else ''}?"
        return parser.refuse("E102", f"'{token.text}' is not a clause of a SELECT.", step, at=token.start)
    return None


def _is_followed_by(tokens: Sequence[Token], at: int, word: str) -> bool:
    return at + 1 < len(tokens) and tokens[at + 1].text.upper() == word


def _anything_else(parser: VeloParser, alone: bool) -> Refusal:
    left = parser.raw(parser.offset(), len(parser.sql)).strip().split("\n")[0][:60]
    if alone:
        return parser.refuse("E102", f"The query is complete before '{left}'.", "Remove the rest.")
    message = f"The statement is complete before '{left}'."
    return parser.refuse("E102", message, "Remove the rest, or put ; between two statements.")
