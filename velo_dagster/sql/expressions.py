"""Expressions of the Velo dialect: comparisons with ANY and ALL, wildcard paths, row buffers; places in the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql.marks import Deep, Each, Index, Name, Quantified, Refusal, Span, Step, VeloPath
from velo_dagster.sql.type_names import similar_types

_QUANTIFIERS = (TokenType.ANY, TokenType.SOME, TokenType.ALL)
_LITERALS = (TokenType.NUMBER, TokenType.STRING, TokenType.NULL, TokenType.DASH)
_NO_TYPE = "Expected TYPE after CAST"
_QUOTE = "If a word here is a name, quote it: `name`."
_NONE = Token.string("")
_DOT_STAR = 2
_MOST_PARTS = 4
"""As many names as sqlglot takes for one column."""


class ExpressionParser(SparkParser):
    """Spark's parser of sqlglot with Velo's expressions."""

    # A call stays the call the user wrote: what other languages make of `map(…)` or `date_add(…)` is of no interest.
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parse
        for name, parse in SparkParser.FUNCTION_PARSERS.items()
        if name not in ("GROUP_CONCAT", "LISTAGG", "STRING_AGG")
    }

    # `v:a.b[0]` takes a value out of a VARIANT; of `v:a:b`, the second colon out of what the first one took.
    COLON_IS_VARIANT_EXTRACT = True
    COLON_CHAIN_IS_SINGLE_EXTRACT = False

    _buffer: tuple[int, int, int] | None = None

    def __init__(self, dialect: Any = None) -> None:
        super().__init__(dialect=dialect)
        self._ranges: list[int] = []
        self._bounds: list[Span] = []

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
        plain = isinstance(this, exp.Column) and this.this.meta.get("start") == self._prev.start
        steps, length = self._path_steps() if plain else ((), 0)
        if length:
            this = self._parse_path(self._prev.start, [self._prev], steps, length)
        return super()._parse_column_ops(this)

    def _parse_path(self, start: int, names: list[Token], steps: tuple[Step, ...], length: int) -> VeloPath:
        """The path whose steps were seen ahead; the first of them may belong to the name of its column."""
        tokens = self._tokens[self._index : self._index + length]
        while 0 < len(names) < _MOST_PARTS and isinstance(steps[0], Name):
            dot, name = tokens[2 * len(names) - 2 : 2 * len(names)]
            if dot.token_type != TokenType.DOT:
                break
            names.append(name)
            steps = steps[1:]
        parts = [exp.Identifier(this=name.text).update_positions(name) for name in names]
        self._advance(length)
        keys = ("this", "table", "db", "catalog")
        column = exp.Column(**dict(zip(keys, reversed(parts), strict=False))) if parts else exp.Star()
        path = VeloPath(this=column)
        path.meta.update(span=(start, self.end_offset()), steps=steps)
        return path

    def _parse_colon_as_variant_extract(self, this: exp.Expr | None) -> exp.Expr | None:
        start = self.offset()
        value = super()._parse_colon_as_variant_extract(this)
        if value is not None and value is not this:
            value.meta["variant_path"] = (start, self.end_offset())
        return value

    def _parse_unary(self) -> exp.Expr | None:
        """`**.name`, a path from the row itself; else what Spark has."""
        if not (self._stars(self._index) and self._kinds(self._index + 2, 1) == [TokenType.DOT]):
            return super()._parse_unary()
        start = self.offset()
        self._advance(2)
        steps, length = self._path_steps((Deep(),))
        return super()._parse_column_ops(self._parse_path(start, [], steps, length))

    def _kinds(self, index: int, count: int) -> list[TokenType]:
        return [token.token_type for token in self._tokens[index : index + count]]

    def _stars(self, index: int) -> bool:
        """Whether `**` stands there, in one piece."""
        both = self._kinds(index, 2) == [TokenType.STAR, TokenType.STAR]
        return both and self._tokens[index + 1].start == self._tokens[index].end + 1

    def _path_steps(self, steps: tuple[Step, ...] = ()) -> tuple[tuple[Step, ...], int]:
        """The steps of a path that begins here, and how many tokens they are; none without a wildcard or an index.

        A star at the end is none, if only names and dots stand before it: `t.*` means columns.
        """
        begun = self._index
        index, found, end = begun, list(steps), begun
        dotted = not steps
        while True:
            step, length = self._path_step(index)
            if step is None:
                break
            columns = isinstance(step, Each) and dotted and length == _DOT_STAR
            dotted &= isinstance(step, Name) and self._tokens[index].token_type == TokenType.DOT
            index += length
            found.append(step)
            if not columns and any(not isinstance(one, Name) for one in found):
                end, steps = index, tuple(found)
        return steps, end - begun

    def _path_step(self, index: int) -> tuple[Step | None, int]:
        """The step that stands there, and how many tokens it is."""
        kinds = self._kinds(index, 3)
        following = self._tokens[index + 1] if len(kinds) > 1 else _NONE
        if kinds[:1] == [TokenType.DOT]:
            if self._stars(index + 1):
                return Deep(), 3
            if following.token_type == TokenType.STAR:
                return Each(), 2
            called = kinds[2:] == [TokenType.L_PAREN]
            return (None, 0) if called or not following.text else (Name(following.text), 2)
        if kinds == [TokenType.L_BRACKET, TokenType.STAR, TokenType.R_BRACKET]:
            return Each(), 3
        if kinds == [TokenType.L_BRACKET, TokenType.NUMBER, TokenType.R_BRACKET] and following.text.isdigit():
            return Index(int(following.text)), 3
        if kinds == [TokenType.L_BRACKET, TokenType.STRING, TokenType.R_BRACKET]:
            return Name(following.text), 3
        return None, 0

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        argument = super()._parse_lambda(alias)
        if (
            argument is not None
            and self._curr.text.upper() == "SEPARATOR"
            and self._next.token_type == TokenType.STRING
        ):
            self._advance(2)  # the last argument of GROUP_CONCAT, as MySQL has it: see `velo_dagster.sql.calls`
        return argument

    def _parse_partition_and_order(self) -> tuple[list[exp.Expr], exp.Expr | None]:
        start, rows = self.offset(), 0
        buffered = self._match_text_seq("ROWS", "WINDOW", "BUFFER")
        if buffered:
            at = self.offset()
            rows = int(self._curr.text) if self._curr.text.isdigit() else 0
            if not (self._match(TokenType.NUMBER) and self._match(TokenType.ROWS)):
                raise self.refuse("E100", "Write ROWS WINDOW BUFFER n ROWS.")
            if rows < 1:
                raise self.refuse("E138", "ROWS WINDOW BUFFER holds at least one row.", "Write a whole number.", at=at)
        buffer = (start, self.end_offset(), rows) if buffered else None
        partition, order = super()._parse_partition_and_order()
        if order:
            order.meta["end"] = self.end_offset()
        self._buffer, self._bounds = buffer, []
        return partition, order

    def _parse_window_spec(self) -> dict[str, str | exp.Expr | None]:
        start = self.offset()
        bound = super()._parse_window_spec()
        self._bounds.append((start, self.end_offset()))
        return bound

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        window = super()._parse_window(this, alias)
        if isinstance(window, exp.Window) and self._buffer:
            window.meta["buffer"] = self._buffer
            window.meta["bounds"] = tuple(self._bounds)
            self._buffer, self._bounds = None, []
        return window


def _tidy(message: str) -> str:
    """sqlglot's own remark, if a user can read it."""
    return "" if "<" in message or "Invalid expression" in message or "missing for" in message else f" {message}."
