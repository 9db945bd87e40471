"""A query as Spark SQL: the user's own text, rewritten only where it says what Spark does not know.

| in the text | for Spark |
|---|---|
| an input | the temporary view that holds its rows, under the name or alias by which the query calls it |
| PRIMARY KEY, EMIT CHANGES, WITH (…) at a relation | nothing |
| `x op ANY|ALL (…)` | `quantifiers` |
| WINDOW TUMBLING, SLIDING, SESSION | `time_windows` |
| clauses in another order than Spark's | Spark's order |
| a name that Delta refuses | the sanitised name |
| `*` over an input whose system columns the query asks for | the same without them |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.errors import Span
from velo_dagster.sql import quantifiers, time_windows
from velo_dagster.sql.marks import VeloPath
from velo_dagster.sql.names import SOURCE_COLUMNS, is_plain, quote, quote_all, sanitise
from velo_dagster.sql.problems import NotSupportedYet, error
from velo_dagster.sql.relations import input_tables, relation_alias
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query
from velo_dagster.sql.ties import Ties, break_ties

_CLAUSE_ORDER = (
    *("where", "time_window", "group", "having", "qualify", "windows", "order", "cluster", "distribute", "sort"),
    *("limit", "offset", "emit"),
)


def spark_select(
    query: Query,
    views: Mapping[str, str],
    hidden: Sequence[str] = (),
    columns: Mapping[str, Sequence[str]] | None = None,
    event_times: Mapping[str, str] | None = None,
    ties: Ties | None = None,
) -> str:
    """The query as Spark SQL over temporary views.

    `views`: by input name. `hidden`: columns of the views that the query must not see. `columns`: by input name, all
    columns of its view, hidden and system columns included. `event_times`: by input name, its `event.time.field`.
    `ties`: what breaks ties, if they are to be broken.
    """
    check_supported(query)
    splice = splice_query(query)
    for table in input_tables(query.tree):
        _replace_relation(splice, table, views, hidden, columns)
    asked = system_columns(query)
    if asked:
        _leave_out_system_columns(splice, query, asked, columns)
    time_windows.rewrite(splice, query, event_times or {})
    if ties is not None:
        break_ties(splice, query, ties)
    return splice.render((query.start, query.end))


def splice_query(query: Query) -> Splice:
    """The edits that are the same in every rendering: everything but relations and stars."""
    splice = Splice(query.source)
    for node in query.tree.walk():
        if span := node.meta.get("key_span"):
            splice.replace(span)
        if emit := node.meta.get("emit"):
            splice.replace(emit[1:])
        if span := node.meta.get("with_span"):
            splice.replace(span)
        if mark := node.meta.get("quantified"):
            quantifiers.rewrite(splice, mark, node)
        if clauses := node.meta.get("clauses"):
            _reorder(splice, clauses)
    _sanitise_identifiers(splice, query)
    _rename_functions(splice, query)
    return splice


def system_columns(query: Query) -> tuple[str, ...]:
    """The system columns of source rows that the query names."""
    named = {
        column.name.lower() for column in query.tree.find_all(exp.Column) if isinstance(column.this, exp.Identifier)
    }
    return tuple(name for name in SOURCE_COLUMNS if name in named)


def check_supported(query: Query) -> None:
    """Raise for what parses but has no rendering yet."""
    for node in query.tree.walk():
        if isinstance(node, VeloPath):
            raise _later(query, "E204", f"The path {node.this} with a wildcard", node.meta["span"][0])
        if "within" in node.meta:
            raise _later(query, "E202", "JOIN … WITHIN", node.meta["within"][1])
        if "buffer" in node.meta:
            raise _later(query, "E203", "ROWS WINDOW BUFFER", node.meta["buffer"][0])
        if node.meta.get("emit", ("",))[0] == "final":
            raise _later(query, "E207", "EMIT FINAL", node.meta["emit"][1])


def _later(query: Query, code: str, what: str, offset: int) -> NotSupportedYet:
    return NotSupportedYet(error(code, f"{what} is not supported yet.", place(query, offset)))


def place(query: Query, offset: int) -> Span:
    """Where in the user's file an offset of the query's source stands."""
    before = query.source[query.start : offset]
    lines = before.count("\n")
    column = len(before) - before.rfind("\n") if lines else query.span.column + len(before)
    return Span(query.span.file, query.span.line + lines, column)


def _replace_relation(
    splice: Splice,
    table: exp.Table,
    views: Mapping[str, str],
    hidden: Sequence[str],
    columns: Mapping[str, Sequence[str]] | None,
) -> None:
    name = table.meta["input"]
    view = quote(views[name])
    present = hidden if columns is None else [c for c in hidden if c in columns[name]]
    relation = f"(SELECT * EXCEPT ({quote_all(present)}) FROM {view})" if present else view
    alias = relation_alias(table)
    select = table.find_ancestor(exp.Select)
    if select is not None and "table_query" in select.meta:
        span = (select.meta["table_query"], table.meta["name_end"])
        splice.replace(span, f"SELECT * FROM {relation} AS {quote(sanitise(alias or name))}")
        return
    splice.replace(table.meta["name_span"], relation)
    if not table.alias and alias:
        sample = table.args.get("sample")
        at = sample.meta["end"] if sample else table.meta["name_end"]
        splice.insert(at, f" AS {quote(sanitise(alias))}")


def _reorder(splice: Splice, clauses: Sequence[tuple[str, int, int]]) -> None:
    """Put clauses that stand in another order than Spark's into Spark's. Nothing else stands between them."""
    ranked = sorted(clauses, key=lambda clause: _CLAUSE_ORDER.index(clause[0]))
    if _in_order(clauses, ranked):
        return
    parts: list[str | tuple[int, int]] = []
    for _, start, end in ranked:
        parts += [(start, end), " "]
    splice.replace((clauses[0][1], clauses[-1][2]), *parts)


def _in_order(clauses: Sequence[tuple[str, int, int]], ranked: Sequence[tuple[str, int, int]]) -> bool:
    """Spark takes named windows before ORDER BY and after it."""
    if [c for c in clauses if c[0] != "windows"] != [c for c in ranked if c[0] != "windows"]:
        return False
    kinds = [kind for kind, *_ in clauses]
    after = kinds[kinds.index("windows") :] if "windows" in kinds else []
    return not {"where", "time_window", "group", "having", "qualify"} & set(after)


def _sanitise_identifiers(splice: Splice, query: Query) -> None:
    for token in query.tokens:
        if token.token_type == TokenType.IDENTIFIER and sanitise(token.text) != token.text:
            splice.replace((token.start, token.end + 1), quote(sanitise(token.text)))


def _rename_functions(splice: Splice, query: Query) -> None:
    """Aggregates of the language under Spark's names; GROUP_CONCAT separates by a comma if nothing else is given."""
    tokens = query.tokens
    for index, (token, following) in enumerate(pairwise(tokens)):
        name = token.text.upper()
        if name not in ("COLLECT", "GROUP_CONCAT") or following.token_type != TokenType.L_PAREN:
            continue
        splice.replace((token.start, token.end + 1), "collect_list" if name == "COLLECT" else "listagg")
        if name == "GROUP_CONCAT":
            commas, close = _arguments(tokens, index + 1)
            if not commas:
                splice.insert(tokens[close].start, ", ','")


def _arguments(tokens: Sequence[Token], opening: int) -> tuple[int, int]:
    """How many commas stand between a parenthesis and its closing one, and where that is."""
    depth = commas = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        commas += kind == TokenType.COMMA and depth == 1
        if depth == 0:
            return commas, index
    return commas, len(tokens) - 1


def _leave_out_system_columns(
    splice: Splice, query: Query, asked: Sequence[str], columns: Mapping[str, Sequence[str]] | None
) -> None:
    for select in query.tree.find_all(exp.Select):
        relations = _relations(select)
        for item in select.expressions:
            if "star_end" not in item.meta:
                continue
            prefix = item.table if isinstance(item, exp.Column) else None
            over = [r for r in relations if prefix is None or (_alias(r) or "").casefold() == prefix.casefold()]
            left_out = {id(r): _present(r, asked, columns) for r in over}
            if not any(left_out.values()):
                continue
            if len(over) == 1:
                leave_out(splice, item, left_out[id(over[0])])
            else:
                _expand_star(splice, query, item, select, over, left_out)


def leave_out(splice: Splice, item: exp.Expr, names: Sequence[str]) -> None:
    """Add names to the EXCEPT of a star."""
    if "except_at" in item.meta:
        splice.insert(item.meta["except_at"], quote_all(names) + ", ")
    else:
        splice.insert(item.meta["star_end"], f" EXCEPT ({quote_all(names)})")


def _relations(select: exp.Select) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    return ([from_.this] if from_ else []) + joined + list(select.args.get("laterals") or ())


def _alias(relation: exp.Expr) -> str | None:
    return (
        relation_alias(relation)
        if isinstance(relation, exp.Table) and "input" in relation.meta
        else relation.alias_or_name
    )


def _present(relation: exp.Expr, asked: Sequence[str], columns: Mapping[str, Sequence[str]] | None) -> list[str]:
    name = relation.meta.get("input")
    if name is None:
        return []
    return list(asked) if columns is None else [c for c in asked if c in columns[name]]


def _expand_star(
    splice: Splice,
    query: Query,
    item: exp.Expr,
    select: exp.Select,
    over: Sequence[exp.Expr],
    left_out: Mapping[int, Sequence[str]],
) -> None:
    """`*` over a join, one relation after the other; not where the join itself changes what `*` holds."""
    joins = select.args.get("joins") or ()
    plain = all(not (j.args.get("using") or j.method or j.kind in ("SEMI", "ANTI")) for j in joins)
    if not plain or "except_at" in item.meta or not all(_alias(r) for r in over):
        raise NotSupportedYet(
            error(
                "E209",
                "SELECT * together with system columns is not supported over this join.",
                place(query, item.meta["span"][0]),
                "Name the columns you need.",
            )
        )
    parts = []
    for relation in over:
        names = left_out[id(relation)]
        star = f"{quote(sanitise(_alias(relation) or ''))}.*"
        parts.append(f"{star} EXCEPT ({quote_all(names)})" if names else star)
    splice.replace(item.meta["span"], ", ".join(parts))


def shown_name(name: str) -> str:
    return name if is_plain(name) else quote(name)
