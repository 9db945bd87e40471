"""A query as Spark SQL: the user's own text, rewritten only where it says what Spark does not know.

| in the text | for Spark |
|---|---|
| an input | the temporary view that holds its rows, under the name or alias by which the query calls it |
| PRIMARY KEY, EMIT, WITH (…) at a relation | nothing |
| `x op ANY|ALL (…)` | `quantifiers` |
| the ON of a join with a reference whose columns are filled | `joins` |
| WINDOW TUMBLING, SLIDING, SESSION; EMIT FINAL | `time_windows` |
| JOIN … ON … WITHIN | `within` |
| aggregates that compute in DOUBLE | `floats`, where asked for |
| paths into nested data | `paths` |
| functions under other names, ROWS WINDOW BUFFER | `calls` |
| clauses in another order than Spark's | Spark's order |
| a name that Delta refuses | the sanitised name |
| `*` over an input with system columns that the query asks for | the same without them |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velo_dagster.sql import calls, paths, quantifiers, time_windows, within
from velo_dagster.sql.event_time import Times
from velo_dagster.sql.floats import Edits
from velo_dagster.sql.joins import joined_anyway
from velo_dagster.sql.names import SOURCE_COLUMNS, is_plain, quote, quote_all, sanitise
from velo_dagster.sql.path_values import Nested
from velo_dagster.sql.problems import NotSupportedYet, error
from velo_dagster.sql.relations import called, input_tables, may_be_of_input, read_by, relation_alias
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query, place
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
    event_times: Times | None = None,
    ties: Ties | None = None,
    filled: Collection[str] = (),
    floats: Edits | None = None,
    nested: Nested | None = None,
    system: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The query as Spark SQL over temporary views.

    `views`: by input name. `hidden`: columns of the views that the query must not see. `columns`: by input name, all
    columns of its view, hidden and system columns included. `system`: by input name, which of them are system columns,
    and so not part of `*`. `event_times`: the inputs' event times, and which windows
    to show. `ties`: what breaks ties, if they are to be broken. `filled`: inputs whose one row every other row is
    joined with. `floats`: what is to be done to float aggregates. `nested`: the columns' types, by which paths are
    followed.
    """
    check_supported(query)
    splice = splice_query(query)
    for table in input_tables(query.tree):
        _replace_relation(splice, table, views, hidden, columns)
    if system:
        _leave_out_system_columns(splice, query, system)
    paths.rewrite(splice, query, nested)
    time_windows.rewrite(splice, query, event_times or Times())
    within.rewrite(splice, query, event_times or Times())
    if ties is not None:
        break_ties(splice, query, ties)
    calls.frame(splice, query)
    joined_anyway(splice, query, filled)
    if floats is not None:
        floats.edit(splice)
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
    calls.rename(splice, query)
    return splice


def system_columns(query: Query) -> tuple[str, ...]:
    """The system columns that the query may ask its inputs for: those that it names, and has no other column for."""
    named = {
        column.name.lower()
        for column in query.tree.find_all(exp.Column)
        if isinstance(column.this, exp.Identifier) and column.name.lower() in SOURCE_COLUMNS and may_be_of_input(column)
    }
    return tuple(name for name in SOURCE_COLUMNS if name in named)


def check_supported(query: Query) -> None:
    """Raise for what parses but has no rendering yet."""
    for node in query.tree.walk():
        if isinstance(node, exp.Window) and (why := calls.why_no_buffer(node)):
            raise _no_buffer(query, *why, node.meta["buffer"][0])
    paths.check_paths(query)


def _no_buffer(query: Query, why: str, step: str, offset: int) -> NotSupportedYet:
    what = f"ROWS WINDOW BUFFER {why} is not supported yet."
    return NotSupportedYet(error("E203", what, place(query, offset), step))


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
    """Names of columns as they are stored; the path into a VARIANT names what is inside a value, and stays."""
    paths = [node.meta["variant_path"] for node in query.tree.walk() if "variant_path" in node.meta]
    for token in query.tokens:
        odd = token.token_type in (TokenType.IDENTIFIER, TokenType.VAR) and sanitise(token.text) != token.text
        if odd and not any(start <= token.start < end for start, end in paths):
            splice.replace((token.start, token.end + 1), quote(sanitise(token.text)))


def _leave_out_system_columns(splice: Splice, query: Query, system: Mapping[str, Sequence[str]]) -> None:
    for select in query.tree.find_all(exp.Select):
        relations = read_by(select)
        for item in select.expressions:
            if "star_end" not in item.meta:
                continue
            prefix = item.table if isinstance(item, exp.Column) else None
            over = [r for r in relations if prefix is None or (called(r) or "").casefold() == prefix.casefold()]
            left_out = {id(r): system.get(r.meta.get("input", ""), ()) for r in over}
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
    if not plain or "except_at" in item.meta or not all(called(r) for r in over):
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
        star = f"{quote(sanitise(called(relation) or ''))}.*"
        parts.append(f"{star} EXCEPT ({quote_all(names)})" if names else star)
    splice.replace(item.meta["span"], ", ".join(parts))


def shown_name(name: str) -> str:
    return name if is_plain(name) else quote(name)
