"""The Velo dialect: Spark's SELECT, and what Velo adds to it.

The tree is for understanding a query, not for writing it out again: a generator would have to spell every Spark expression as
the user did, and any difference is a changed meaning. So the parser leaves marks in the nodes' `meta`, offsets into the text it
parsed, and `velo_dagster.sql.render` rewrites the user's own text at those places only. The marks:

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
| comparison | `quantified` | Quantified: `x op ANY|SOME|ALL (...)` |
| Join | `within` | (duration text, start, end) |
| Window | `buffer` | (start, end) of ROWS WINDOW BUFFER n ROWS |
| VeloPath | `span` | where the path stands |
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from velo_dagster.sql.durations import is_unit
from velo_dagster.sql.uris import mask_uris

URI = TokenType.URI_START
"""The token type of a bare URI; Spark's grammar has no other use for it."""

TIME_WINDOWS = ("TUMBLING", "SLIDING", "HOPPING", "SESSION")

_QUANTIFIERS = (TokenType.ANY, TokenType.SOME, TokenType.ALL)
_LITERALS = (TokenType.NUMBER, TokenType.STRING, TokenType.NULL, TokenType.DASH)

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
    """`left op ANY|SOME|ALL (...)`: where the whole, the left operand, and what is in the parentheses stand."""

    whole: Span
    left: Span
    operator: str
    word: str
    inside: Span
    subquery: bool
    items: tuple[Span, ...]


class VeloPath(exp.Expression):
    """A path with a wildcard into nested data, as written."""

    arg_types = {"this": True}


class Refusal(ParseError):
    """The text cannot be read as a statement: a stable code, the sentence, the offset, what helps."""

    def __init__(self, code: str, message: str, offset: int, steps: Collection[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.steps = tuple(steps)


class VeloParser(SparkParser):
    """Spark's parser of sqlglot with Velo's additions; see the module's table for what it leaves in the tree."""

    SUPPORTS_TABLE_QUERY = True

    PIPE_SYNTAX_TRANSFORM_PARSERS = {
        **SparkParser.PIPE_SYNTAX_TRANSFORM_PARSERS,
        "SET": lambda self, query: self._parse_csv(self._parse_assignment_step) and query,
        "DROP": lambda self, query: self._parse_csv(self._parse_id_var) and query,
    }

    def __init__(self, dialect: Any = None) -> None:
        super().__init__(dialect=dialect)
        self._clauses: list[list[tuple[str, int, int]]] = []

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

    def raise_error(self, message: str, token: Token = Token.string("")) -> None:
        at = token if token.text else self._curr
        if not at:
            raise self.refuse("E100", "The statement ends too early.", "Complete it; see what is missing at its end.")
        raise self.refuse("E100", f"Cannot read the statement at '{self._shown(at)}'.{_tidy(message)}", *_QUOTE, at=at.start)

    def _shown(self, token: Token) -> str:
        return self.raw(token.start, token.end + 1).split("\n")[0][:60]

    # -- relations --------------------------------------------------------------------------------------------------

    def _parse_table_parts(
        self, schema: bool = False, is_db_reference: bool = False, wildcard: bool = False, fast: bool = False
    ) -> exp.Table | exp.Dot | None:
        index, first = self._index, self._curr
        if not schema and (first.token_type in (URI, TokenType.STRING) or self._at_kafka_topic()):
            return None if fast else self._parse_uri_relation()
        table = super()._parse_table_parts(schema, is_db_reference, wildcard, fast)
        if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
            last = index
            while last + 2 < self._tokens_size and self._tokens[last + 1].token_type == TokenType.DOT:
                last += 2
            end = self._tokens[last].end + 1
            table.meta.update(name_span=(first.start, end), name_end=end)
        return table

    def _at_kafka_topic(self) -> bool:
        return self._curr.text.upper() == "KAFKA_TOPIC" and self._next.token_type == TokenType.L_PAREN

    def _parse_uri_relation(self) -> exp.Table:
        start = self.offset()
        uri = self._parse_uri()
        if uri is None:
            raise self.refuse("E100", "A relation in quotes must be a URI such as 'file:///data/a.csv'.", at=start)
        table = exp.Table(this=exp.Identifier(this="_uri"))
        table.meta.update(name_span=(start, self.end_offset()), name_end=self.end_offset(), uri=uri)
        return table

    def _parse_uri(self) -> str | None:
        """A URI, bare or quoted, or kafka_topic('t')."""
        if self._at_kafka_topic():
            self._advance(2)
            if not self._match(TokenType.STRING):
                raise self.refuse("E100", "kafka_topic takes the topic's name in quotes: kafka_topic('orders').")
            topic = self._prev.text
            self._match_r_paren()
            return f"kafka://{topic}"
        if self._match(URI):
            return self._prev.text
        if self._curr.token_type == TokenType.STRING and ":" in self._curr.text:
            self._advance()
            return self._prev.text
        return None

    def _parse_table_sample(self, as_modifier: bool = False) -> exp.TableSample | None:
        sample = super()._parse_table_sample(as_modifier)
        if sample:
            sample.meta["end"] = self.end_offset()
        return sample

    def _parse_table_hints(self) -> list[exp.Expr] | None:
        if self._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False) and not self.at_closing_with():
            start = self.offset()
            properties = self.parse_properties()
            hint = exp.WithTableHint()
            hint.meta.update(with_span=(start, self.end_offset()), properties=properties)
            return [hint]
        return None

    def at_closing_with(self) -> bool:
        """Whether the WITH here is the last thing of the statement, and so the statement's own."""
        depth = 0
        for index in range(self._index + 1, self._tokens_size):
            kind = self._tokens[index].token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            if depth == 0:
                return index + 1 == self._tokens_size
        return False

    def parse_properties(self) -> dict[str, str]:
        """`WITH ('key' = 'value', ...)`."""
        self._match_pair(TokenType.WITH, TokenType.L_PAREN)
        properties: dict[str, str] = {}
        while not self._match(TokenType.R_PAREN):
            at = self.offset()
            key = self._property_part("name")
            if not self._match(TokenType.EQ):
                raise self.refuse("E100", f"The property '{key}' needs = and a value.")
            if key in properties:
                raise self.refuse("E109", f"The property '{key}' is given twice.", at=at)
            properties[key] = self._property_part("value")
            if not self._match(TokenType.COMMA) and self._curr.token_type != TokenType.R_PAREN:
                raise self.refuse("E100", "Properties are separated by commas and closed by ).")
        return properties

    def _property_part(self, what: str) -> str:
        if self._match_set((TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)):
            return self._prev.text
        start, words = self.offset(), 0
        stops = (TokenType.EQ, TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN)
        while self._curr and self._curr.token_type not in stops:
            self._advance()
            words += 1
        if not words:
            raise self.refuse("E100", f"Expected the {what} of a property, in quotes.", "Write WITH ('key' = 'value').")
        return self.raw(start, self.end_offset())

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        return None if self._at_emit() else super()._parse_table_alias(alias_tokens)

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        join = super()._parse_join(*args, **kwargs)
        if join and self._match_text_seq("WITHIN"):
            start = self._prev.start
            join.meta["within"] = (self._parse_duration(), start, self.end_offset())
        return join

    def _parse_duration(self) -> str:
        start = self.offset()
        if not self._curr:
            raise self.refuse("E108", "WITHIN needs a duration such as 5m or '10 seconds'.")
        self._match(TokenType.INTERVAL)
        at, quoted = self._curr.start, self._curr.token_type == TokenType.STRING
        text = self._curr.text
        while self._curr and self._curr.start == at:
            self._advance()
        if self._curr and is_unit(self._curr.text):
            self._advance()
            quoted = False
        return text if quoted else self.raw(start, self.end_offset())

    # -- select -----------------------------------------------------------------------------------------------------

    def _parse_select_query(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        first = self._curr
        query = super()._parse_select_query(*args, **kwargs)
        if first.token_type == TokenType.TABLE and isinstance(query, exp.Query):
            next(query.find_all(exp.Select)).meta.setdefault("table_query", first.start)
        if first.token_type == TokenType.FROM and isinstance(query, exp.Select) and "span" not in _meta(query, 0):
            if self._curr.token_type != TokenType.PIPE_GT:
                message = "FROM without SELECT is not a query."
                raise self.refuse("E100", message, "Say which columns: SELECT … FROM …", at=first.start)
        return query

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        items: list[exp.Expr] = []
        while True:
            index, start = self._index, self.offset()
            item = self._parse_expression()
            if item is None:
                raise self.refuse("E100", "A column or expression is missing here.")
            item.meta["span"] = (start, self.end_offset())
            self._mark_star(item, index)
            if self._match(TokenType.PRIMARY_KEY):
                item.meta["key_span"] = (self._prev.start, self._prev.end + 1)
            items.append(item)
            if not self._match(TokenType.COMMA):
                return items, None

    def _mark_star(self, item: exp.Expr, index: int) -> None:
        if not item.is_star or not isinstance(item, (exp.Star, exp.Column)):
            return
        tokens = self._tokens[index : self._index]
        star = next(i for i, token in enumerate(tokens) if token.token_type == TokenType.STAR)
        item.meta["star_end"] = tokens[star].end + 1
        if star + 2 < len(tokens) and tokens[star + 1].text.upper() in ("EXCEPT", "EXCLUDE"):
            item.meta["except_at"] = tokens[star + 2].end + 1

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        end = self.end_offset()
        aliased = super()._parse_alias(this, explicit)
        if aliased is not None and aliased is not this:
            aliased.meta["value_end"] = end
        return aliased

    def _parse_query_modifiers(self, this: Any) -> Any:
        if not isinstance(this, self.MODIFIABLES):
            return super()._parse_query_modifiers(this)
        self._clauses.append([])
        try:
            index = -1
            while index != self._index:
                index = self._index
                this = super()._parse_query_modifiers(this)
                self._parse_time_window(this)
                self._parse_emit(this)
        finally:
            clauses = self._clauses.pop()
        if clauses:
            this.meta["clauses"] = (*this.meta.get("clauses", ()), *clauses)
        return this

    def _parse_time_window(self, this: exp.Expr) -> None:
        if not (self._curr.token_type == TokenType.WINDOW and self._next.text.upper() in TIME_WINDOWS):
            return
        start = self.offset()
        if "time_window" in this.meta:
            raise self.refuse("E100", "A SELECT has one WINDOW TUMBLING, SLIDING or SESSION.")
        self._advance(2)
        kind = self._prev.text.upper()
        if not self._match(TokenType.L_PAREN):
            raise self.refuse("E100", f"{kind} needs its size in parentheses: {kind}(5m).")
        arguments: list[str] = []
        at, depth = self.offset(), 0
        while self._curr and (depth or self._curr.token_type != TokenType.R_PAREN):
            depth += (self._curr.token_type == TokenType.L_PAREN) - (self._curr.token_type == TokenType.R_PAREN)
            if not depth and self._curr.token_type == TokenType.COMMA:
                arguments.append(self.raw(at, self._curr.start).strip())
                at = self._curr.end + 1
            self._advance()
        arguments.append(self.raw(at, self.offset()).strip())
        self._match_r_paren()
        this.meta["time_window"] = TimeWindow(kind, tuple(arguments), start, self.end_offset())
        self._clauses[-1].append(("time_window", start, self.end_offset()))

    def _at_emit(self) -> bool:
        words = (TokenType.VAR, TokenType.FINAL)
        return (
            self._curr.text.upper() == "EMIT"
            and self._curr.token_type == TokenType.VAR
            and self._next.token_type in words
        )

    def _parse_emit(self, this: exp.Expr) -> None:
        if not self._at_emit():
            return
        start = self.offset()
        self._advance(2)
        word = self._prev.text.upper()
        if word not in ("CHANGES", "FINAL"):
            step = "Write EMIT CHANGES or EMIT FINAL, or leave it out."
            raise self.refuse("E104", f"EMIT {word} does not exist.", step, at=self._prev.start)
        if "emit" in this.meta:
            raise self.refuse("E100", "EMIT stands twice.", at=start)
        this.meta["emit"] = (word.lower(), start, self.end_offset())
        self._clauses[-1].append(("emit", start, self.end_offset()))

    def _parse_assignment_step(self) -> exp.Expr | None:
        """`column = expression` of the pipe step SET."""
        column = self._parse_id_var()
        return column if column and self._match(TokenType.EQ) and self._parse_disjunction() else None

    # -- expressions ------------------------------------------------------------------------------------------------

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
        if type(node) in operators.values() and "quantified" not in node.meta:
            if mark := self._find_quantified(start):
                node.meta["quantified"] = mark
        return node

    def _find_quantified(self, start: int) -> Quantified | None:
        """The mark for `left op ANY (...)` if that is what was just read.

        `any(x)` and `some(x)` are also aggregates of Spark, so one item in the parentheses is a list only if it is a literal.
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

    def _wildcard_path(self) -> int:
        """How many tokens from here make up a path with a wildcard before its end; 0 if there is none."""
        index, wildcard, last = self._index, False, 0
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
        if buffered:
            if not self._match(TokenType.NUMBER) or not self._match(TokenType.ROWS):
                raise self.refuse("E100", "Write ROWS WINDOW BUFFER n ROWS.")
        buffer = (start, self.end_offset()) if buffered else None
        partition, order = super()._parse_partition_and_order()
        if order:
            order.meta["end"] = self.end_offset()
        self._buffer = buffer
        return partition, order

    _buffer: Span | None = None

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        window = super()._parse_window(this, alias)
        if isinstance(window, exp.Window) and self._buffer:
            window.meta["buffer"], self._buffer = self._buffer, None
        return window


_QUOTE = ("If a word here is a name, quote it: `name`.",)


def _meta(query: exp.Select, index: int) -> dict[str, Any]:
    return query.expressions[index].meta if query.expressions else {}


def _tidy(message: str) -> str:
    """sqlglot's own remark, if a user can read it."""
    return "" if "<" in message or "Invalid expression" in message or "missing for" in message else f" {message}."


def _clause(kind: TokenType) -> Callable[[VeloParser], tuple[str, Any]]:
    read = SparkParser.QUERY_MODIFIER_PARSERS[kind]

    def parse(parser: VeloParser) -> tuple[str, Any]:
        if kind == TokenType.WINDOW and parser._next.text.upper() in TIME_WINDOWS:
            return "windows", None
        start = parser.offset()
        key, clause = read(parser)
        if clause:
            parser._clauses[-1].append((key, start, parser.end_offset()))
        return key, clause

    return parse


VeloParser.QUERY_MODIFIER_PARSERS = {kind: _clause(kind) for kind in SparkParser.QUERY_MODIFIER_PARSERS}


_PLAIN_WORDS = frozenset(
    """
    ALTER ASOF CREATE DROP FETCH GLOB GRANT INSERT ISNULL KILL LOCK NOTNULL OVERLAPS PARTITIONED_BY RETURNING REVOKE ROLLBACK
    SERDEPROPERTIES STRAIGHT_JOIN UNCACHE XOR
    """.split()
)
"""Words that sqlglot keeps for other languages; in a SELECT of Spark they may name things."""


class Velo(Spark):
    """Spark's dialect with bare URIs as tokens and Velo's parser."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word not in _PLAIN_WORDS}

    Parser = VeloParser

    def tokenize(self, sql: str, **options: Any) -> list[Token]:
        masked, uris = mask_uris(sql)
        tokens = super().tokenize(masked, **options)
        for token, following in zip(tokens, [*tokens[1:], None], strict=True):
            if token.start in uris:
                token.token_type, token.text = URI, uris[token.start]
            elif token.token_type == TokenType.WINDOW and following and following.token_type == TokenType.L_PAREN:
                # The function; the clause is followed by a name.
                token.token_type = TokenType.VAR
        return tokens
