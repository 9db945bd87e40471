"""The Velo dialect: Spark's SELECT, and what Velo adds to it.

The tree is for understanding a query, not for writing it out again: a generator would have to spell every Spark
expression as the user did, and any difference is a changed meaning. So the parser leaves marks in the tree (see
`velo_dagster.sql.marks`), and `velo_dagster.sql.render` rewrites the user's own text at those places only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql.durations import is_unit
from velo_dagster.sql.expressions import ExpressionParser
from velo_dagster.sql.functions import words
from velo_dagster.sql.marks import TimeWindow
from velo_dagster.sql.uris import mask_uris

URI = TokenType.URI_START
"""The token type of a bare URI; Spark's grammar has no other use for it."""

CLAUSES = words("where time_window group having qualify windows order cluster distribute sort limit offset emit")
TIME_WINDOWS = ("TUMBLING", "SLIDING", "HOPPING", "SESSION")


class VeloParser(ExpressionParser):
    """Spark's parser of sqlglot with Velo's additions; see the module's table for what it leaves in the tree."""

    SUPPORTS_TABLE_QUERY = True

    PIPE_SYNTAX_TRANSFORM_PARSERS: ClassVar[dict[str, Any]] = {
        **SparkParser.PIPE_SYNTAX_TRANSFORM_PARSERS,
        "SET": lambda self, query: self._parse_pipe_step(query, self._parse_assigned),
        "DROP": lambda self, query: self._parse_pipe_step(query, self._parse_id_var),
    }

    def __init__(self, dialect: Any = None) -> None:
        super().__init__(dialect=dialect)
        self._clauses: list[list[tuple[str, int, int]]] = []

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
            step = f"For a file, write 'file://{self._curr.text}'."
            raise self.refuse(
                "E100", "A relation in quotes must be a URI such as 'file:///data/a.csv'.", step, at=start
            )
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
        if self._curr.token_type == TokenType.STRING and (":" in self._curr.text or self._curr.text.startswith("${")):
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
        index = self._index
        join = super()._parse_join(*args, **kwargs)
        if join:
            join.meta["end"] = self.end_offset()
        if join and self._match_text_seq("WITHIN"):
            start = self._prev.start
            join.meta["on_start"] = self._after_on(index, start)
            join.meta["within"] = (self._parse_duration(), start, self.end_offset())
        return join

    def _after_on(self, index: int, within: int) -> int:
        """Where the condition of the join begins that was read from this token on."""
        depth = 0
        for token in self._tokens[index : self._index]:
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if not depth and token.token_type == TokenType.ON:
                return token.end + 1
        raise self.refuse("E100", "WITHIN stands behind the ON of a join.", "Write JOIN … ON … WITHIN 5m.", at=within)

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
        alone = first.token_type == TokenType.FROM and isinstance(query, exp.Select) and "span" not in _meta(query, 0)
        if alone and self._curr.token_type != TokenType.PIPE_GT:
            message = "FROM without SELECT is not a query."
            raise self.refuse("E100", message, "Say which columns: SELECT … FROM …", at=first.start)
        return query

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        items: list[exp.Expr] = []
        while True:
            index, start = self._index, self.offset()
            item = self._parse_expression()
            if item is None:
                step = "Remove the comma, or add a column." if items else "Name the columns, or write * for all."
                raise self.refuse("E100", "A column or expression is missing here.", step)
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
        this.meta.setdefault("from_end", clauses[0][1] if clauses else self.end_offset())
        if clauses:
            self._check_clauses(clauses)
            this.meta["clauses"] = (*this.meta.get("clauses", ()), *clauses)
        return this

    def _check_clauses(self, clauses: list[tuple[str, int, int]]) -> None:
        """Joins stand before the clauses: between two clauses stands nothing."""
        for kind, *_ in clauses:
            if kind not in CLAUSES:
                raise self.refuse("E100", f"{kind.upper()} is not a clause of a SELECT here.", at=clauses[0][1])
        for (_, _, end), (_, start, _) in pairwise(clauses):
            between = next((t for t in self._tokens if end <= t.start < start), None)
            if between is not None:
                message = f"'{self._shown(between)}' must stand before WHERE, GROUP BY and the other clauses."
                raise self.refuse("E100", message, at=between.start)

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

    def _parse_pipe_step(self, query: exp.Query, part: Callable[[], exp.Expr | None]) -> exp.Query:
        """A step of `|>` that sqlglot does not know; what it names is kept for the analysis."""
        self._advance()
        for node in self._parse_csv(part):
            query.append("expressions", node)
        return query

    def _parse_assigned(self) -> exp.Expr | None:
        """The expression of `column = expression`."""
        self._parse_id_var()
        return self._parse_disjunction() if self._match(TokenType.EQ) else None


def _meta(query: exp.Select, index: int) -> dict[str, Any]:
    return query.expressions[index].meta if query.expressions else {}


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


_PLAIN_WORDS = words(
    """
    ALTER ASOF CREATE DROP FETCH GLOB GRANT INSERT ISNULL KILL LOCK NOTNULL OVERLAPS PARTITIONED_BY RETURNING REVOKE
    ROLLBACK SERDEPROPERTIES STRAIGHT_JOIN UNCACHE XOR
    """
)
"""Words that sqlglot keeps for other languages; in a SELECT of Spark they may name things."""


class Velo(Spark):
    """Spark's dialect with bare URIs as tokens and Velo's parser."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word not in _PLAIN_WORDS
        }

    Parser = VeloParser

    def tokenize(self, sql: str, **options: Any) -> list[Token]:
        masked, uris = mask_uris(sql)
        tokens = super().tokenize(masked, **options)
        for token in tokens:
            if token.start in uris:
                token.token_type, token.text = URI, uris[token.start]
        for at, token in enumerate(tokens):
            if token.token_type == TokenType.WINDOW and not _begins_window_clause(tokens[at + 1 : at + 3]):
                token.token_type = TokenType.VAR
        return tokens


def _begins_window_clause(following: Sequence[Token]) -> bool:
    """Whether a name follows WINDOW, as in the clause; behind the function or a column stands something else."""
    if not following:
        return False
    first = following[0]
    if first.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        return first.text.upper() != "EMIT"
    named = len(following) > 1 and following[1].token_type == TokenType.ALIAS
    return named or first.text.upper() in TIME_WINDOWS
