"""Expressions of the Velo dialect: comparisons with ANY and ALL, wildcard paths, row buffers; places in the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql.marks import Quantified, Refusal, Span, VeloPath
from velo_dagster.sql.type_names import similar_types

_QUANTIFIERS = (TokenType.ANY, TokenType.SOME, TokenType.ALL)
_LITERALS = (TokenType.NUMBER, TokenType.STRING, TokenType.NULL, TokenType.DASH)
_NO_TYPE = "Expected TYPE after CAST"
_QUOTE = "If a word here is a name, quote it: `name`."
_NONE = Token.string("")


class ExpressionParser(SparkParser):
    """Spark's parser of sqlglot with Velo's expressions."""

    # A call stays the call the user wrote: what other languages make of `map(…)` or `date_add(…)` is of no interest.
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parse
        for name, parse in SparkParser.FUNCTION_PARSERS.items()
        if name not in ("GROUP_CONCAT", "LISTAGG", "STRING_AGG")
    }

    _buffer: Span | None = None

    def __init__(self, dialect: Any = None) -> None:
        super().__init__(dialect=dialect)
        self._ranges: list[int] = []

    def start(self, tokens: list[Token], text: str) -> None:
        """Make ready to read one statement's tokens."""
        self.reset()
        self.sql = text
        self._chunks = [tokens]
        self._advance_chunk()

    # -- places -----------------------------------------------------------------------------------------------------

    def offset(self) -> int:
        """Where the next token begins, or where the text ends."""
        return self._curr.start if self._curr else (self._prev.end + 1 if self._prev else 0)

    def end_offset(self) -> int:
        """Where the last token ended."""
        return self._prev.end + 1 if self._prev else 0

    def raw(self, start: int, end: int) -> str:
        return self.sql[start:end]

    def refuse(self, code: str, message: str, *steps: str, at: int | None = None) -> Refusal:
        return Refusal(code, message, self.offset() if at is None else at, steps)

    def raise_error(self, message: str, token: Token = _NONE) -> None:
        at = token if token.text else self._curr
        if not at:
            raise self.refuse("E100", "The statement ends too early.", "Complete it; see what is missing at its end.")
        if message == _NO_TYPE:
            steps = (*similar_types(at.text), "Types are those of Spark SQL.")
            raise self.refuse("E128", f"'{self._shown(at)}' is not a type.", *steps, at=at.start)
        raise self.refuse(
            "E100", f"Cannot read the statement at '{self._shown(at)}'.{_tidy(message)}", _QUOTE, at=at.start
        )

    def _shown(self, token: Token) -> str:
        return self.raw(token.start, token.end + 1).split("\n")[0][:60]

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        return self._quantified(lambda: SparkParser._parse_equality(self, parse_is), self.EQUALITY)

    def _parse_comparison(self, this: exp.Expr | None = None) -> exp.Expr | None:
        return self._quantified(lambda: SparkParser._parse_comparison(self, this), self.COMPARISON, this)

    def _quantified(
        self, parse: Callable[[], exp.Expr | None], operators: Any, left: exp.Expr | None = None
    ) -> exp.Expr | None:
        """Read a comparison, and mark it if its last operand is ANY, SOME or ALL."""
        start = left.meta["start_offset"] if left is not None and "start_offset" in left.meta else self.offset()
        node = parse()
        if node is None:
            return None
        node.meta["start_offset"] = start
        compared = type(node) in operators.values() and "quantified" not in node.meta
        if compared and (mark := self._find_quantified(start)):
            node.meta["quantified"] = mark
        return node

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        start = self.offset()
        call = super()._parse_function_call(*args, **kwargs)
        if call is not None:
            call.meta["call_start"] = start
        return call

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:
        start = this.meta["start_offset"] if this is not None and "start_offset" in this.meta else self.offset()
        self._ranges.append(start)
        try:
            return super()._parse_range(this, parse_is)
        finally:
            self._ranges.pop()

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        index, start = self._index, self._ranges[-1]
        node = super()._parse_in(this, alias)
        subquery = node.args.get("query") is not None and self._tokens[index].token_type == TokenType.L_PAREN
        if subquery and not isinstance(this, exp.Tuple):
            negated = self._tokens[index - 2].token_type == TokenType.NOT
            node.meta["quantified"] = Quantified(
                whole=(start, self.end_offset()),
                left=(start, self._tokens[index - (3 if negated else 2)].end + 1),
                operator="NOT IN" if negated else "IN",
                word="ALL" if negated else "ANY",
                inside=(self._tokens[index].end + 1, self._prev.start),
                subquery=True,
                items=(),
            )
        return node

    def _find_quantified(self, start: int) -> Quantified | None:
        """The mark for `left op ANY (...)` if that is what was just read.

        `any(x)` and `some(x)` are also aggregates of Spark, so one item is a list only if it is a literal.
        """
        close, depth, opening = self._index - 1, 0, self._index - 1
        for opening in range(close, -1, -1):
            kind = self._tokens[opening].token_type
            depth += (kind == TokenType.R_PAREN) - (kind == TokenType.L_PAREN)
            if depth == 0:
                break
        if opening < 3 or opening == close or self._tokens[opening - 1].token_type not in _QUANTIFIERS:
            return None
        subquery = self._tokens[opening + 1].token_type in (TokenType.SELECT, TokenType.WITH)
        word = "ALL" if self._tokens[opening - 1].token_type == TokenType.ALL else "ANY"
        items = () if subquery else self._list_items(opening, close)
        literal = all(t.token_type in _LITERALS for t in self._tokens[opening + 1 : close])
        if word == "ANY" and len(items) == 1 and not literal:
            return None
        operator = self._tokens[opening - 2]
        return Quantified(
            whole=(start, self.end_offset()),
            left=(start, self._tokens[opening - 3].end + 1),
            operator=self.raw(operator.start, operator.end + 1),
            word=word,
            inside=(self._tokens[opening].end + 1, self._tokens[close].start),
            subquery=subquery,
            items=items,
        )

    def _list_items(self, opening: int, close: int) -> tuple[Span, ...]:
        items, at, depth = [], self._tokens[opening].end + 1, 0
        for token in self._tokens[opening + 1 : close]:
            depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
            depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
            if depth == 0 and token.token_type == TokenType.COMMA:
                items.append((at, token.start))
                at = token.end + 1
        return (*items, (at, self._tokens[close].start))

    def _parse_term(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        last = self._tokens[max(self._index - 2, 0) : self._index + 1]
        if [token.token_type for token in last] == [TokenType.GT] * 3 and last[2].start == last[0].start + 2:
            # `a >>> b`: the parser knows `>>` only, and reads the operand here.
            self._advance()
        return super()._parse_term(*args, **kwargs)

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        length = self._wildcard_path() if this is not None else 0
        if not length:
            return super()._parse_column_ops(this)
        start = self._prev.start
        self._advance(length)
        path = VeloPath(this=self.raw(start, self.end_offset()))
        path.meta["span"] = (start, self.end_offset())
        return path

    def _parse_unary(self) -> exp.Expr | None:
        """`**.name`, a path from the row itself; else what Spark has."""
        kinds = [token.token_type for token in self._tokens[self._index : self._index + 3]]
        if kinds != [TokenType.STAR, TokenType.STAR, TokenType.DOT]:
            return super()._parse_unary()
        start = self.offset()
        self._advance(2)
        self._advance(self._wildcard_path(wildcard=True))
        path = VeloPath(this=self.raw(start, self.end_offset()))
        path.meta["span"] = (start, self.end_offset())
        return path

    def _wildcard_path(self, wildcard: bool = False) -> int:
        """How many tokens from here make up a path with a wildcard before its end; 0 if there is none."""
        index, last = self._index, 0
        while True:
            kinds = [token.token_type for token in self._tokens[index : index + 3]]
            if kinds[:3] == [TokenType.DOT, TokenType.STAR, TokenType.STAR]:
                index, wildcard = index + 3, True
            elif kinds[:2] == [TokenType.DOT, TokenType.STAR]:
                if [t.token_type for t in self._tokens[index + 2 : index + 3]] not in (
                    [TokenType.DOT],
                    [TokenType.L_BRACKET],
                ):
                    return last
                index, wildcard = index + 2, True
            elif kinds == [TokenType.L_BRACKET, TokenType.STAR, TokenType.R_BRACKET]:
                index, wildcard = index + 3, True
            elif kinds == [TokenType.L_BRACKET, TokenType.NUMBER, TokenType.R_BRACKET]:
                index += 3
            elif kinds[:1] == [TokenType.DOT] and len(kinds) > 1:
                index += 2
            else:
                return last
            last = index - self._index if wildcard else 0

    def _parse_partition_and_order(self) -> tuple[list[exp.Expr], exp.Expr | None]:
        start = self.offset()
        buffered = self._match_text_seq("ROWS", "WINDOW", "BUFFER")
        if buffered and not (self._match(TokenType.NUMBER) and self._match(TokenType.ROWS)):
            raise self.refuse("E100", "Write ROWS WINDOW BUFFER n ROWS.")
        buffer = (start, self.end_offset()) if buffered else None
        partition, order = super()._parse_partition_and_order()
        if order:
            order.meta["end"] = self.end_offset()
        self._buffer = buffer
        return partition, order

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        window = super()._parse_window(this, alias)
        if isinstance(window, exp.Window) and self._buffer:
            window.meta["buffer"], self._buffer = self._buffer, None
        return window


def _tidy(message: str) -> str:
    """sqlglot's own remark, if a user can read it."""
    return "" if "<" in message or "Invalid expression" in message or "missing for" in message else f" {message}."
