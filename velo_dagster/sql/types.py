"""Declared types in Spark's spelling."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from velo_dagster.sql.dialect import VeloParser
from velo_dagster.sql.names import quote
from velo_dagster.sql.type_names import SIMPLE, similar_types

_STEPS = ("Use one of " + ", ".join(sorted(SIMPLE)) + ", DECIMAL(p,s), ARRAY(t), MAP(k,v), STRUCT(name t, …).",)


def parse_type(parser: VeloParser) -> str:
    """Read a type; text types may carry a length, which tables do not enforce."""
    at = parser.offset()
    if not parser._curr:
        raise parser.refuse("E128", "A column needs a type.", *_STEPS)
    parser._advance()
    word = parser._prev.text.upper()
    if word in ("DECIMAL", "NUMERIC", "DEC"):
        return _decimal(parser, at)
    if word in ("ARRAY", "MAP"):
        return _nested(parser, word, 1 if word == "ARRAY" else 2)
    if word == "STRUCT":
        return _struct(parser)
    if word not in SIMPLE:
        raise parser.refuse("E128", f"'{word}' is not a type.", *similar_types(word), *_STEPS, at=at)
    if word in ("VARCHAR", "CHAR") and parser._match(TokenType.L_PAREN):
        _number(parser)
        parser._match_r_paren()
    return SIMPLE[word]


def _decimal(parser: VeloParser, at: int) -> str:
    if not parser._match(TokenType.L_PAREN):
        return "DECIMAL"
    precision = _number(parser)
    scale = _number(parser) if parser._match(TokenType.COMMA) else 0
    parser._match_r_paren()
    if not (1 <= precision <= 38 and scale <= precision):
        raise parser.refuse("E128", f"DECIMAL({precision},{scale}) does not exist: 38 digits at most.", at=at)
    return f"DECIMAL({precision},{scale})"


def _number(parser: VeloParser) -> int:
    if not parser._match(TokenType.NUMBER) or not parser._prev.text.isdigit():
        raise parser.refuse("E128", "Expected a whole number here.")
    return int(parser._prev.text)


def _open(parser: VeloParser) -> TokenType:
    if parser._match(TokenType.L_PAREN):
        return TokenType.R_PAREN
    if parser._match(TokenType.LT):
        return TokenType.GT
    raise parser.refuse("E128", "Expected the parts of the type in parentheses.", *_STEPS)


def _close(parser: VeloParser, closing: TokenType) -> None:
    if not parser._match(closing):
        raise parser.refuse("E128", "The type is not closed here.")


def _nested(parser: VeloParser, word: str, parts: int) -> str:
    closing = _open(parser)
    types = [parse_type(parser)]
    while len(types) < parts and parser._match(TokenType.COMMA):
        types.append(parse_type(parser))
    _close(parser, closing)
    return f"{word}<{', '.join(types)}>"


def _struct(parser: VeloParser) -> str:
    closing = _open(parser)
    fields: list[str] = []
    while True:
        name = parser._parse_id_var()
        if name is None:
            raise parser.refuse("E128", "Expected the name of a field.")
        parser._match(TokenType.COLON)
        fields.append(f"{quote(name.name)}: {parse_type(parser)}")
        if not parser._match(TokenType.COMMA):
            break
    _close(parser, closing)
    return f"STRUCT<{', '.join(fields)}>"
