"""Row-by-row SELECTs: each row of the table comes from exactly one row of one input.

Such a SELECT needs no history: the rows of an increment are the mapped rows of its input. Whether a SELECT is one is
decided strictly: a clause, or a function, that is not known to look at one row only makes it another kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql import functions, paths
from velo_dagster.sql.functions import words
from velo_dagster.sql.names import quote, sanitise
from velo_dagster.sql.path_values import Nested
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.render import (
    check_supported,
    leave_out,
    shown_name,
    splice_query,
)
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import CreateTableAs, Query

_ROW_CLAUSES = {"expressions", "from_", "where", "hint", "operation_modifiers"}
_CLAUSES = {
    "distinct": "DISTINCT compares rows",
    "joins": "a join reads several inputs",
    "laterals": "LATERAL VIEW makes several rows of one",
    "group": "GROUP BY combines rows",
    "having": "HAVING looks at groups",
    "order": "ORDER BY looks at all rows",
    "sort": "SORT BY looks at all rows",
    "limit": "LIMIT counts rows",
    "offset": "OFFSET counts rows",
    "windows": "a window looks at other rows",
    "qualify": "QUALIFY looks at other rows",
    "with_": "WITH defines another query",
}
_SYNTAX = words(
    """
    ALL AND ANY AS BETWEEN BIGDECIMAL BOTH CASE CHAR DEC DECIMAL DIV ELSE ESCAPE EXCEPT EXISTS FROM ILIKE IN INTERVAL IS
    LIKE LEADING NOT NUMERIC OR REGEXP RLIKE SELECT SOME THEN TRAILING VARCHAR WHEN WHERE
    """
)
_WORDS_WITHOUT_PARENTHESES = functions.OUTSIDE - {"version", "user", "now", "curdate"}


@dataclass(frozen=True)
class RowSelect:
    """A row-by-row SELECT taken apart, all of it Spark SQL over a relation called `alias`."""

    input: str
    alias: str
    items: str
    where: str | None
    keys: tuple[tuple[str, str], ...]


def row_select(statement: CreateTableAs, hidden: Sequence[str] = (), nested: Nested | None = None) -> RowSelect | None:
    """The SELECT taken apart, or None if it is not row by row. `hidden`: columns of the relation that `*` must
    not show: hidden ones, and system columns that it has because the query names them. `nested`: the columns' types."""
    if why_not_by_row(statement) is not None:
        return None
    query, select = statement.query, statement.query.tree
    assert isinstance(select, exp.Select)
    check_supported(query)
    splice = splice_query(query)
    paths.rewrite(splice, query, nested)
    table = select.args["from_"].this
    alias = shown_name(sanitise(relation_alias(table) or table.meta["input"]))
    keys = tuple((key, _key_expression(splice, select, key, alias)) for key in statement.keys)
    items = ", ".join(_item(splice, item, alias, hidden) for item in select.expressions)
    where = select.args.get("where")
    text = None
    if where is not None:
        start, end = next((s, e) for kind, s, e in select.meta["clauses"] if kind == "where")
        text = splice.render((start + len("WHERE"), end)).strip()
    return RowSelect(table.meta["input"], alias, items, text, keys)


def why_not_by_row(statement: CreateTableAs) -> str | None:
    """What forbids to treat the SELECT row by row, in words; None if nothing does."""
    query, select = statement.query, statement.query.tree
    if isinstance(select, exp.SetOperation):
        return f"{select.key.upper()} combines several queries"
    if not isinstance(select, exp.Select) or "table_query" in select.meta:
        return "it is not a plain SELECT"
    if "time_window" in select.meta:
        return "a time window combines rows"
    if any(token.token_type == TokenType.PIPE_GT for token in query.tokens):
        return "steps with |> are not taken apart"
    for clause, value in select.args.items():
        if value and clause not in _ROW_CLAUSES:
            return _CLAUSES.get(clause, f"{clause.upper().strip('_')} is not row by row")
    return _why_not_relation(select) or _why_not_expressions(query, select) or _why_not_keys(statement, select)


def _why_not_relation(select: exp.Select) -> str | None:
    from_ = select.args.get("from_")
    if from_ is None:
        return "it reads no input"
    table = from_.this
    if not isinstance(table, exp.Table) or "input" not in table.meta:
        return "it reads a subquery or function"
    if table.args.get("sample"):
        return "TABLESAMPLE looks at all rows"
    if table.args.get("pivots"):
        return "PIVOT combines rows"
    if table.args.get("joins"):
        return _CLAUSES["joins"]
    alias = table.args.get("alias")
    return "its alias renames the columns" if alias is not None and alias.columns else None


def _why_not_expressions(query: Query, select: exp.Select) -> str | None:
    for node in select.walk():
        if node is not select and isinstance(node, exp.Query):
            return "a subquery reads other rows"
        if isinstance(node, exp.Window):
            return "OVER looks at other rows"
    quantified = {node.meta["quantified"].inside[0] - 1 for node in select.walk() if "quantified" in node.meta}
    tokens, relations = query.tokens, _relation_spans(select)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if any(start <= token.start < end for start, end in relations):
            continue
        if reason := _why_not_word(token, following, quantified):
            return reason
    bare = (star for star in select.find_all(exp.Star) if "star_end" not in (star.meta | (star.parent or star).meta))
    return "* stands inside an expression" if any(bare) else None


def _relation_spans(select: exp.Select) -> list[tuple[int, int]]:
    """Where words are no expressions: the input's name, URI or kafka_topic('t'), and its WITH (…)."""
    table = select.args["from_"].this
    hints = (hint.meta["with_span"] for hint in table.args.get("hints") or () if "with_span" in hint.meta)
    return [table.meta["name_span"], *hints]


def _why_not_word(token: Token, following: Token | None, quantified: set[int]) -> str | None:
    if token.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER, TokenType.HINT):
        return None
    name = token.text.lower()
    if following is None or following.token_type != TokenType.L_PAREN:
        return f"{name} is not the same at every load" if _is_outside(token) else None
    if not (token.text[:1].isalpha() or token.text[:1] == "_"):
        return None
    if name in functions.ROW_FUNCTIONS and name != "unix_timestamp":
        return None
    if token.text.upper() in _SYNTAX and (name not in ("any", "some") or following.start in quantified):
        return None
    return f"{name}() {_kind(name)}"


def outside_word(query: Query) -> str | None:
    """A word without parentheses that stands for something outside the data, such as CURRENT_DATE."""
    tokens = query.tokens
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        called = following is not None and following.token_type == TokenType.L_PAREN
        if not called and token.token_type not in (TokenType.STRING, TokenType.NUMBER) and _is_outside(token):
            return token.text.lower()
    return None


def _is_outside(token: Token) -> bool:
    return token.token_type != TokenType.IDENTIFIER and token.text.lower() in _WORDS_WITHOUT_PARENTHESES


def _kind(name: str) -> str:
    if name in functions.AGGREGATES:
        return "combines rows"
    if name in functions.WINDOW_FUNCTIONS:
        return "looks at other rows"
    if name in functions.GENERATORS:
        return "makes several rows of one"
    if name in functions.RANDOM | functions.OUTSIDE | {"unix_timestamp"}:
        return "is not the same at every load"
    return "is not known to work row by row"


def _item(splice: Splice, item: exp.Expr, alias: str, unseen: Sequence[str]) -> str:
    if "star_end" not in item.meta:
        return splice.render(item.meta["span"])
    star = Splice(splice.text)
    if isinstance(item, exp.Star):
        star.insert(item.meta["span"][0], f"{alias}.")
    if unseen:
        leave_out(star, item, unseen)
    return star.render(item.meta["span"])


def find_item(select: exp.Select, key: str) -> exp.Expr | None:
    for item in select.expressions:
        if "star_end" not in item.meta and sanitise(item.output_name).casefold() == key.casefold():
            return item
    return None


def _key_expression(splice: Splice, select: exp.Select, key: str, alias: str) -> str:
    item = find_item(select, key)
    if item is None:
        return f"{alias}.{quote(key)}"
    start, end = item.meta["span"]
    return splice.render((start, item.meta.get("value_end", end)))


def _why_not_keys(statement: CreateTableAs, select: exp.Select) -> str | None:
    if not any(item.is_star for item in select.expressions):
        for key in statement.keys:
            if find_item(select, key) is None:
                return f"the key {key} is not in the select list"
    computed = any(_names_an_alias(select, key) for key in statement.keys)
    return "the key is computed from another item of the select list" if computed else None


def _names_an_alias(select: exp.Select, key: str) -> bool:
    """Whether the key's expression may name another item's alias, which only the whole select list can resolve."""
    item = find_item(select, key)
    if not isinstance(item, exp.Alias):
        return False
    aliases = {
        other.alias.casefold() for other in select.expressions if isinstance(other, exp.Alias) and other is not item
    }
    return any(not column.table and column.name.casefold() in aliases for column in item.this.find_all(exp.Column))
