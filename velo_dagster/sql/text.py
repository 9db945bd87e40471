"""Statements as text: one normal form of a piece of SQL, comments, and a statement written out again."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token

from velo_dagster.errors import Span
from velo_dagster.sql import statements as st
from velo_dagster.sql.names import is_plain, quote

_LINE_COMMENT = re.compile(r"-- ?([^\r\n]*)")


class Places:
    """Offsets of one file as lines and columns."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._starts = [0, *(match.end() for match in re.finditer(r"\n", text))]

    def span(self, offset: int) -> Span:
        line = bisect_right(self._starts, offset)
        return Span(self._file, line, offset - self._starts[line - 1] + 1)


def normalise(text: str, tokens: Sequence[Token]) -> str:
    """The tokens as written, with one space where there was white space or a comment. Hints are tokens, and stay."""
    parts: list[str] = []
    end = None
    for token in tokens:
        if end is not None and token.start < end:
            continue
        if end is not None and token.start > end:
            parts.append(" ")
        parts.append(text[token.start : token.end + 1])
        end = token.end + 1
    return "".join(parts)


def comments_between(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The `--` comments in a stretch of text that holds nothing but white space and comments, and where they begin."""
    for match in _LINE_COMMENT.finditer(text, start, end):
        yield match.start(1), match[1].rstrip()


def comments_inside(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    for before, after in pairwise(tokens):
        if after.start > before.end + 1:
            yield from comments_between(text, before.end + 1, after.start)


def to_sql(statement: st.Statement) -> str:
    """The statement as SQL that parses to an equal one."""
    return _WRITERS[type(statement)](statement)


def _name(name: str) -> str:
    return name if is_plain(name) else quote(name)


def _string(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _with(properties: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{_string(key)} = {_string(value)}" for key, value in properties.items())
    return f" WITH ({pairs})" if properties else ""


def _columns(columns: Sequence[st.Column]) -> str:
    parts = [f"{_name(c.name)} {c.type}{' PRIMARY KEY' if c.primary_key else ''}" for c in columns]
    return f" ({', '.join(parts)})" if columns else ""


def declaration(s: st.CreateTableAs) -> str:
    """What stands before AS."""
    return f"CREATE {'STREAM' if s.stream else 'TABLE'} {_name(s.name)}{_columns(s.columns)}"


def _create_table_as(s: st.CreateTableAs) -> str:
    into = "" if s.into is None else f" INTO {_string(s.into.uri) if s.into.uri else _name(s.into.name or '')}"
    return f"{declaration(s)} AS {s.query.text}{into}{_with(s.properties)};"


def _create_table(s: st.CreateTable) -> str:
    return f"CREATE TABLE {_name(s.name)}{_columns(s.columns)}{_with(s.properties)};"


def _insert(s: st.Insert) -> str:
    columns = f" ({', '.join(_name(c) for c in s.columns)})" if s.columns else ""
    return f"INSERT INTO {_name(s.table)}{columns} {s.query.text}{_with(s.properties)};"


def _aliased(name: str, alias: str | None) -> str:
    return f"{name} AS {_name(alias)}" if alias else name


def _input(ref: st.InputRef, alias: str | None) -> str:
    return _aliased(_string(ref.uri) if ref.uri else _name(ref.name), alias) + _with(ref.properties)


def _where(where: str | None) -> str:
    return f" WHERE {where}" if where else ""


def _update(s: st.Update) -> str:
    changes = ", ".join(f"{_name(a.column)} = {a.expression}" for a in s.assignments)
    source = f" FROM {_input(s.input, s.input_alias)}" if s.input else ""
    return f"UPDATE {_aliased(_name(s.table), s.alias)} SET {changes}{source}{_where(s.where)};"


def _delete(s: st.Delete) -> str:
    source = f" USING {_input(s.input, s.input_alias)}" if s.input else ""
    return f"DELETE FROM {_aliased(_name(s.table), s.alias)}{source}{_where(s.where)};"


def _upsert(s: st.Upsert) -> str:
    return f"UPSERT INTO {_name(s.table)} {s.query.text} ON {s.on};"


def _transaction(s: st.Transaction) -> str:
    return "\n".join(["BEGIN;", *(to_sql(inner) for inner in s.statements), "COMMIT;"])


_WRITERS = {
    st.CreateTableAs: _create_table_as,
    st.CreateTable: _create_table,
    st.Insert: _insert,
    st.Update: _update,
    st.Delete: _delete,
    st.Upsert: _upsert,
    st.Transaction: _transaction,
}
