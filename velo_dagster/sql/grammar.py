"""The grammar of statements, around the SELECT that the dialect reads. One function per statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velo_dagster.errors import Span
from velo_dagster.sql import statements as st
from velo_dagster.sql.columns import own_spelling, property_keys
from velo_dagster.sql.dialect import VeloParser
from velo_dagster.sql.mistakes import dash_in_name, did_you_mean, left_over, misspelt_key
from velo_dagster.sql.names import sanitise
from velo_dagster.sql.relations import read_inputs
from velo_dagster.sql.text import normalise
from velo_dagster.sql.types import parse_type

Head = dict[str, Any]
"""span, text and comments of the statement being read."""


_LONE = (
    "Write SELECT … FROM table.",
    "Statements that create tables stand in .sql files, and are run by velo-dagster load.",
)


class Grammar:
    """Reads one statement from the parser's tokens."""

    def __init__(self, parser: VeloParser, place: Callable[[int], Span], head: Head) -> None:
        self.p = parser
        self.place = place
        self.head = head

    def statement(self) -> st.Statement:
        readers = {
            "CREATE": self.create,
            "INSERT": self.insert,
            "UPDATE": self.update,
            "DELETE": self.delete,
            "UPSERT": self.upsert,
        }
        word = self.p._curr.text.upper()
        if word not in readers:
            raise self._not_a_statement(word)
        self.p._advance()
        statement = readers[word]()
        self.finish()
        return statement

    def finish(self) -> None:
        """Nothing may remain."""
        if self.p._curr:
            raise left_over(self.p)

    def lone_query(self) -> st.Query:
        """A query that is no part of a statement: it creates nothing, and nothing may follow it."""
        word = self.p._curr.text
        if word.upper() not in ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "("):
            steps = did_you_mean(word, ("SELECT",)) or _LONE
            raise self.p.refuse("E106", f"A query begins with SELECT, not with {word}.", *steps)
        query = self.query()
        if self.p._curr:
            raise left_over(self.p, alone=True)
        return query

    def _not_a_statement(self, word: str) -> Exception:
        if word in ("SELECT", "WITH", "FROM", "VALUES", "("):
            step = "Give its result a name: CREATE TABLE name AS SELECT …"
            return self.p.refuse("E103", "A query alone creates nothing.", step)
        known = "CREATE TABLE, CREATE STREAM, INSERT INTO, UPDATE, DELETE FROM, UPSERT INTO, BEGIN, COMMIT"
        steps = did_you_mean(word, ("SELECT", "CREATE", "INSERT", "UPDATE", "DELETE", "UPSERT", "BEGIN", "COMMIT"))
        return self.p.refuse("E103", f"'{word}' does not begin a statement.", *steps, f"Statements are {known}.")

    # -- parts ------------------------------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        at = self.p.offset()
        if self.p._curr.token_type in (TokenType.ALIAS, TokenType.L_PAREN, TokenType.SENTINEL):
            raise self.p.refuse("E105", f"The {what} needs a name.", at=at)
        found = self.p._parse_id_var(any_token=False, tokens=self.p.ID_VAR_TOKENS) or self._string_name()
        if found is None and self.p._curr.text.isidentifier():
            word = self.p._curr.text
            step = f"Write `{word}` with backticks, here and wherever it is used, or choose another name."
            raise self.p.refuse("E105", f"{word.upper()} is a word of SQL: as a {what}'s name it must be quoted.", step)
        if found is None or not found.name.strip():
            raise self.p.refuse("E105", f"The {what} needs a name.", "Use letters, digits and _.", at=at)
        if self.p._match(TokenType.DOT):
            raise self.p.refuse("E122", f"The {what}'s name has no dots.", "Use letters, digits and _.", at=at)
        if dashed := dash_in_name(self.p, self.p._tokens, self.p._index):
            raise dashed
        return found.name

    def _string_name(self) -> exp.Expr | None:
        return exp.to_identifier(self.p._prev.text) if self.p._match(TokenType.STRING) else None

    def query(self) -> st.Query:
        start, index = self.p.offset(), self.p._index
        if self.p._curr.text.upper() in ("INSERT", "UPDATE", "DELETE", "UPSERT", "CREATE"):
            word = self.p._curr.text.upper()
            raise self.p.refuse("E106", f"A SELECT is needed here, not {word}.", "Write … AS SELECT …")
        tree = self.p._parse_ddl_select()
        if tree is None or not isinstance(tree, (exp.Query, exp.Values)):
            found = next((token.text for token in self.p._tokens if token.start == start), "")
            steps = did_you_mean(found, ("SELECT", "VALUES"))
            message = f"A SELECT is needed here, not {found}." if steps else "A SELECT is needed here."
            raise self.p.refuse("E106", message, *steps, "Write … AS SELECT …", at=start)
        tokens = self.p._tokens[index : self.p._index]
        text = normalise(self.p.sql, tokens)
        inputs = read_inputs(tree, self.place)
        return st.Query(text, self.p.sql, start, self.p.end_offset(), tree, tuple(tokens), inputs, self.place(start))

    def expression(self) -> str:
        index, at = self.p._index, self.p.offset()
        if self.p._parse_disjunction() is None:
            raise self.p.refuse("E100", "An expression is missing here.", at=at)
        return normalise(self.p.sql, self.p._tokens[index : self.p._index])

    def closing_properties(self) -> dict[str, str]:
        if self.p._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False):
            return self.p.parse_properties()
        return {}

    def columns(self) -> tuple[st.Column, ...]:
        columns: list[st.Column] = []
        while True:
            at = self.p.offset()
            name = self.name("column")
            if any(c.name.casefold() == name.casefold() for c in columns):
                raise self.p.refuse("E107", f"The column '{name}' is declared twice.", at=at)
            kind = parse_type(self.p)
            columns.append(st.Column(name, kind, self.p._match(TokenType.PRIMARY_KEY), self.place(at)))
            if misspelt := misspelt_key(self.p, self.p._tokens, self.p._index + 1):
                raise misspelt
            if not self.p._match(TokenType.COMMA):
                break
        self.p._match_r_paren()
        return tuple(columns)

    # -- statements -------------------------------------------------------------------------------------------------

    def create(self) -> st.Statement:
        if self.p._match_text_seq("OR", "REPLACE", advance=False):
            message = "OR REPLACE is not needed: when the statement changes, the next load makes the table anew."
            raise self.p.refuse("E103", message, "Write CREATE TABLE name AS SELECT …")
        if not self.p._match(TokenType.TABLE) and not self.p._match_text_seq("STREAM"):
            steps = (*did_you_mean(self.p._curr.text, ("TABLE", "STREAM")), "Write CREATE TABLE name AS SELECT …")
            raise self.p.refuse("E103", "CREATE makes a TABLE or a STREAM.", *steps)
        stream = self.p._prev.text.upper() == "STREAM"
        if self.p._match_text_seq("IF", "NOT", "EXISTS", advance=False):
            raise self.p.refuse(
                "E100", "IF NOT EXISTS is not needed: the first load creates the table.", "Leave it out."
            )
        name = self.name("stream" if stream else "table")
        columns = self.columns() if self.p._match(TokenType.L_PAREN) else ()
        if self.p._match(TokenType.ALIAS):
            return self._create_as(name, columns, stream)
        if stream or not columns:
            raise self.p.refuse("E106", f"'{name}' needs AS SELECT …", "Write AS SELECT … after the name.")
        properties = self.closing_properties()
        names = [c.name for c in columns]
        keys = tuple(c.name for c in columns if c.primary_key) or own_spelling(property_keys(properties), None, names)
        return st.CreateTable(**self.head, name=name, columns=columns, keys=keys, properties=properties)

    def _create_as(self, name: str, columns: tuple[st.Column, ...], stream: bool) -> st.CreateTableAs:
        query = self.query()
        into = self._sink() if self.p._match(TokenType.INTO) else None
        properties = self.closing_properties()
        declared = tuple(c.name for c in columns if c.primary_key)
        keys = self._keys(query.tree) or declared or property_keys(properties)
        return st.CreateTableAs(
            **self.head,
            name=name,
            columns=columns,
            query=query,
            keys=own_spelling(keys, query.tree, [c.name for c in columns]),
            emit=self._emit(query.tree),
            into=into,
            properties=properties,
            stream=stream,
        )

    def _sink(self) -> st.Sink:
        uri = self.p._parse_uri()
        return st.Sink(None, uri) if uri else st.Sink(self.name("sink"), None)

    def _keys(self, tree: exp.Expr) -> tuple[str, ...]:
        """The names of the items marked PRIMARY KEY; such marks may stand in the outermost select list only."""
        outer = tree.expressions if isinstance(tree, exp.Select) else []
        for node in tree.walk():
            if "key_span" in node.meta and not any(node is item for item in outer):
                at = node.meta["key_span"][0]
                step = "Put it into the statement's own select list, or use WITH ('primary.key' = 'a, b')."
                raise self.p.refuse("E107", "PRIMARY KEY cannot stand in a subquery or set operation.", step, at=at)
        keys: list[str] = []
        for item in outer:
            if "key_span" in item.meta:
                keys.append(self._key_name(item))
        if len({key.casefold() for key in keys}) < len(keys):
            raise self.p.refuse("E107", "The same column is PRIMARY KEY twice.", at=outer[0].meta["span"][0])
        return tuple(keys)

    def _key_name(self, item: exp.Expr) -> str:
        if isinstance(item, (exp.Alias, exp.Column)) and not item.is_star:
            return sanitise(item.output_name)
        step = "Name it: expression AS name PRIMARY KEY."
        raise self.p.refuse("E107", "PRIMARY KEY after an expression needs a name.", step, at=item.meta["span"][0])

    def _emit(self, tree: exp.Expr) -> Any:
        last = tree
        while isinstance(last, exp.SetOperation) and "emit" not in last.meta:
            last = last.expression
        for node in tree.walk():
            if "emit" in node.meta and node is not last:
                at = node.meta["emit"][1]
                raise self.p.refuse("E104", "EMIT belongs to the end of the statement's own SELECT.", at=at)
        return last.meta["emit"][0] if "emit" in last.meta else None

    def insert(self) -> st.Insert:
        if not self.p._match(TokenType.INTO):
            raise self.p.refuse("E100", "INSERT needs INTO and a table.")
        table = self.name("table")
        columns: tuple[str, ...] = ()
        if self.p._match(TokenType.L_PAREN, advance=False) and self.p._next.token_type not in (
            TokenType.SELECT,
            TokenType.WITH,
            TokenType.L_PAREN,
        ):
            self.p._advance()
            columns = tuple(c.name for c in self.p._parse_csv(self.p._parse_id_var))
            self.p._match_r_paren()
        query = self.query()
        return st.Insert(**self.head, table=table, columns=columns, query=query, properties=self.closing_properties())

    def _alias(self) -> str | None:
        alias = self.p._parse_table_alias()
        return alias.name if alias else None

    def _input(self) -> tuple[st.InputRef, str | None]:
        relation = self.p._parse_table()
        if not isinstance(relation, exp.Table) or "name_span" not in relation.meta:
            raise self.p.refuse("E100", "A table or source is needed here.")
        holder = exp.Select(from_=exp.From(this=relation))
        (ref,) = read_inputs(holder, self.place)
        return ref, relation.alias or None

    def _required_where(self, what: str) -> str:
        if not self.p._match(TokenType.WHERE):
            step = "Say which rows: WHERE …; for all rows: WHERE true."
            raise self.p.refuse("E100", f"{what} needs WHERE.", step)
        return self.expression()

    def update(self) -> st.Update:
        table = self.name("table")
        alias = None if self.p._curr.token_type == TokenType.SET else self._alias()
        if not self.p._match(TokenType.SET):
            raise self.p.refuse("E100", "UPDATE needs SET column = expression.")
        assignments = [self._assignment(table, alias)]
        while self.p._match(TokenType.COMMA):
            assignments.append(self._assignment(table, alias))
        ref, ref_alias = self._input() if self.p._match(TokenType.FROM) else (None, None)
        where = self._required_where("UPDATE")
        return st.Update(
            **self.head,
            table=table,
            alias=alias,
            assignments=tuple(assignments),
            input=ref,
            input_alias=ref_alias,
            where=where,
        )

    def _assignment(self, table: str, alias: str | None) -> st.Assignment:
        at = self.p.offset()
        column = self.p._parse_id_var()
        if column and self.p._match(TokenType.DOT):
            if column.name.casefold() not in (table.casefold(), (alias or table).casefold()):
                raise self.p.refuse("E100", f"SET changes columns of '{table}' only.", at=at)
            column = self.p._parse_id_var()
        if column is None or not self.p._match(TokenType.EQ):
            raise self.p.refuse("E100", "SET needs column = expression.", at=at)
        return st.Assignment(column.name, self.expression())

    def delete(self) -> st.Delete:
        if not self.p._match(TokenType.FROM):
            raise self.p.refuse("E100", "DELETE needs FROM and a table.")
        table = self.name("table")
        alias = self._alias()
        given = self.p._match(TokenType.USING) or self.p._match(TokenType.FROM)
        ref, ref_alias = self._input() if given else (None, None)
        where = self._required_where("DELETE")
        return st.Delete(**self.head, table=table, alias=alias, input=ref, input_alias=ref_alias, where=where)

    def upsert(self) -> st.Upsert:
        if not self.p._match(TokenType.INTO):
            raise self.p.refuse("E100", "UPSERT needs INTO and a table.")
        table = self.name("table")
        query = self.query()
        if not self.p._match(TokenType.ON):
            raise self.p.refuse("E100", f"UPSERT needs ON {table}.key = input.key.")
        return st.Upsert(**self.head, table=table, query=query, on=self.expression())
