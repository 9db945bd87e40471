"""Every rule about one statement that needs no data and no other statement. One rule, one function.

Codes are stable. A warning is silenced by a comment: `-- velo: allow=W104` right above or inside a statement counts for
that statement, elsewhere in a file for all of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import pairwise

from sqlglot import exp

from velo_dagster.sql import functions
from velo_dagster.sql.arguments import wrong_arguments
from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.names import is_plain, sanitise
from velo_dagster.sql.problems import Problem, error, warning
from velo_dagster.sql.render import place
from velo_dagster.sql.rows import find_item
from velo_dagster.sql.statements import (
    Comment,
    CreateTable,
    CreateTableAs,
    Insert,
    Query,
    Statement,
    Transaction,
    Upsert,
)
from velo_dagster.sql.ties import unbroken
from velo_dagster.sql.time_windows import WindowArguments, read_arguments

_ALLOW = re.compile(r"^velo:\s*allow\s*=\s*([A-Z0-9, ]+)")
_UNORDERED = functions.words(
    "first first_value last last_value collect_list collect array_agg string_agg listagg group_concat any_value"
)
_RESERVED = re.compile(r"^_velo|__rejected$|__landing_", re.IGNORECASE)
"""Names of folders that the warehouse makes for itself."""
_LONG = parse_duration("30 days")

Rule = Callable[[CreateTableAs], Iterable[Problem]]


def validate_statement(statement: Statement) -> Iterator[Problem]:
    """The problems of one statement, silenced ones left out."""
    if isinstance(statement, Transaction):
        for inner in statement.statements:
            yield from validate_statement(inner)
        return
    silent = silenced((*statement.comments, *statement.inner_comments))
    rules = [rule(statement) for rule in TABLE_RULES] if isinstance(statement, CreateTableAs) else []
    if isinstance(statement, (CreateTableAs, CreateTable)):
        rules.append(table_name(statement))
    if isinstance(statement, (CreateTableAs, Insert, Upsert)):
        rules += [rule(statement.query) for rule in QUERY_RULES]
    yield from (p for problems in rules for p in problems if p.severity == "error" or p.code not in silent)


def silenced(comments: Iterable[Comment]) -> frozenset[str]:
    """
    >>> from velo_dagster.errors import Span
    >>> sorted(silenced([Comment("velo: allow=W104, W106", Span("a.sql", 1, 4))]))
    ['W104', 'W106']
    """
    found = (match[1] for comment in comments if (match := _ALLOW.match(comment.text.strip())))
    return frozenset(code for codes in found for code in re.split(r"[, ]+", codes.strip()) if code)


# -- about the table --------------------------------------------------------------------------------------------------


def table_name(statement: CreateTableAs | CreateTable) -> Iterator[Problem]:
    name = statement.name
    if _RESERVED.search(name):
        message = f"'{name}' cannot name a table: such names belong to what is stored beside tables."
        step = "Choose a name that does not begin with _velo, end in __rejected or hold __landing_."
        yield error("E105", message, statement.span, step)
    elif re.search(r"[/\\:*?\"<>|.]|^\s|\s$", name):
        step = "Use letters, digits and _."
        yield error("E105", f"'{name}' cannot name a table: it becomes a folder's name.", statement.span, step)
    elif not is_plain(name):
        message = f"The table's name '{name}' must be quoted wherever it is used."
        yield warning("W101", message, statement.span, f"Call it {re.sub(r'[^A-Za-z0-9_]+', '_', name)}.")


def output_names(statement: CreateTableAs) -> Iterator[Problem]:
    if not isinstance(statement.query.tree, exp.Select):
        return
    for item in statement.query.tree.expressions:
        name = item.alias if isinstance(item, exp.Alias) else ""
        if name and not is_plain(name):
            where = place(statement.query, item.meta["span"][0])
            clean = sanitise(name)
            told = f"is stored as '{clean}'" if clean != name else "must be quoted wherever it is used"
            yield warning("W101", f"The column '{name}' {told}.", where, "Use letters, digits and _.")


def key_columns(statement: CreateTableAs) -> Iterator[Problem]:
    """The columns of 'primary.key', and declared ones, must be in the result."""
    select = statement.query.tree
    if not isinstance(select, exp.Select) or any(item.is_star for item in select.expressions):
        return
    for key in statement.keys:
        if find_item(select, key) is None and not any(c.name.casefold() == key.casefold() for c in statement.columns):
            names = ", ".join(item.output_name for item in select.expressions if item.output_name)
            yield error("E107", f"The key '{key}' is not a column of the result.", statement.span, f"Columns: {names}.")


def stream_without_key(statement: CreateTableAs) -> Iterator[Problem]:
    if statement.stream and statement.keys:
        step = "Write CREATE TABLE, or leave PRIMARY KEY out."
        yield error("E116", "A stream only ever gets new rows, so it has no PRIMARY KEY.", statement.span, step)


def duplicate_names(statement: CreateTableAs) -> Iterator[Problem]:
    """Two items of one name cannot both be columns of the table."""
    select = statement.query.tree
    if not isinstance(select, exp.Select):
        return
    seen: set[str] = set()
    for item in select.expressions:
        if item.is_star or not isinstance(item, (exp.Alias, exp.Column)):
            continue
        name = sanitise(item.output_name).casefold()
        if name in seen:
            where = place(statement.query, item.meta["span"][0])
            message = f"The column '{item.output_name}' stands twice in the select list."
            yield error("E130", message, where, "Give one of them another name: … AS other_name.")
        seen.add(name)


def final_without_window(statement: CreateTableAs) -> Iterator[Problem]:
    if statement.emit == "final" and not any("time_window" in node.meta for node in statement.query.tree.walk()):
        step = "Add WINDOW TUMBLING(…), or write EMIT CHANGES."
        yield warning("W103", "EMIT FINAL waits for windows to close, and there is no window.", statement.span, step)


def aggregate_without_group(statement: CreateTableAs) -> Iterator[Problem]:
    select = statement.query.tree
    if not isinstance(select, exp.Select) or select.args.get("group") or "time_window" in select.meta:
        return
    spans = [item.meta["span"] for item in select.expressions if "span" in item.meta and item.find(exp.Query) is None]
    for start, name in called(statement.query):
        inside = any(a <= start < b for a, b in spans)
        if inside and name in functions.AGGREGATES and not _has_over(select, start):
            where = place(statement.query, start)
            step = "Add GROUP BY, if more than one row is meant."
            yield warning("W104", f"{name}() without GROUP BY makes one row of all.", where, step)
            return


def long_retention(statement: CreateTableAs) -> Iterator[Problem]:
    text = statement.properties.get("retention")
    length = parse_duration(text) if text else None
    model = statement.properties.get("table_model", "normal").lower()
    if length is not None and _LONG is not None and length > _LONG and model != "compact":
        step = "Add 'table_model' = 'compact'."
        yield warning("W107", f"A retention of {text} keeps much data in the normal model.", statement.span, step)


TABLE_RULES: tuple[Rule, ...] = (
    output_names,
    key_columns,
    stream_without_key,
    duplicate_names,
    final_without_window,
    aggregate_without_group,
    long_retention,
)


# -- about the query --------------------------------------------------------------------------------------------------


def called(query: Query) -> Iterator[tuple[int, str]]:
    """The functions that a query calls, and where."""
    tokens = query.tokens
    for token, following in pairwise(tokens):
        if query.source[following.start] == "(" and (token.text[:1].isalpha() or token.text[:1] == "_"):
            yield token.start, token.text.lower()


def _has_over(select: exp.Expr, start: int) -> bool:
    return any(window.meta.get("call_start") == start for window in select.find_all(exp.Window))


def _starts(node: exp.Expr) -> int | None:
    return min((n.meta["start"] for n in node.walk() if "start" in n.meta), default=None)


def random_functions(query: Query) -> Iterator[Problem]:
    for start, name in called(query):
        if name in functions.RANDOM:
            step = (
                "_file and _line say where a row came from."
                if "file" in name or "id" in name
                else "Compute it at the source."
            )
            message = f"{name}() gives other values at each load, so the table could never be checked or reloaded."
            yield error("E121", message, place(query, start), step)


def functions_of_now(query: Query) -> Iterator[Problem]:
    words = {(token.start, token.text.lower()) for token in query.tokens}
    for start, name in sorted({*called(query), *(w for w in words if w[1] in _BARE)}):
        if name in functions.OUTSIDE:
            message = f"{name} changes from load to load: the table holds its value at its last load."
            yield warning("W108", message, place(query, start), "Use a time that the rows carry.")


_BARE = functions.words("current_date current_timestamp current_time localtimestamp current_user session_user")


def unordered_functions(query: Query) -> Iterator[Problem]:
    """Aggregates whose result depends on an order that the query does not give."""
    ordered = {node.meta.get("call_start") for node in query.tree.find_all(exp.WithinGroup, exp.Window)}
    ordered |= {
        node.parent.meta.get("call_start") for node in query.tree.find_all(exp.Order) if node.parent is not None
    }
    for start, name in called(query):
        if name in _UNORDERED and start not in ordered:
            message = f"{name}() depends on an order that the query does not give."
            step = "Use min_by, max_by, or WITHIN GROUP (ORDER BY …)."
            yield warning("W112", message, place(query, start), step)


def unbroken_ties(query: Query) -> Iterator[Problem]:
    """Places where the rows' order counts, is not fixed by the statement, and can't be fixed for it."""
    for at in unbroken(query):
        message = "This depends on the order of rows, which the statement leaves open for some of them."
        step = "Order by columns that no two rows have alike, in the query itself or in the window's ORDER BY."
        yield warning("W113", message, place(query, at), step)


def samples(query: Query) -> Iterator[Problem]:
    for table in query.tree.find_all(exp.TableSample):
        if "end" in table.meta:
            message = "TABLESAMPLE takes other rows at each load."
            yield warning("W108", message, place(query, table.meta["end"]), "Filter by a column.")


def not_in_subquery(query: Query) -> Iterator[Problem]:
    """`x NOT IN (…)` and `NOT (x IN (…))`, unless the subquery itself shows that it holds no NULL."""
    for node in query.tree.find_all(exp.Not):
        inner = node.this.unnest()
        subquery = inner.args.get("query") if isinstance(inner, exp.In) else None
        if subquery is None or _holds_no_null(subquery.unnest()):
            continue
        start = _starts(inner)
        step = "Add WHERE column IS NOT NULL to the subquery, or use NOT EXISTS."
        yield warning(
            "W105", "NOT IN is never true once the subquery holds a NULL.", place(query, start or query.start), step
        )


def _holds_no_null(subquery: exp.Expr) -> bool:
    """Whether every item is a literal, a count, or asked to be NOT NULL by the subquery's own WHERE."""
    if isinstance(subquery, exp.SetOperation):
        return _holds_no_null(subquery.left.unnest()) and _holds_no_null(subquery.right.unnest())
    if not isinstance(subquery, exp.Select):
        return False
    where = subquery.args.get("where")
    asked = {part.this.this.unnest() for part in _parts(where.this) if _is_not_null(part)} if where else set()
    items = (item.unalias().unnest() for item in subquery.expressions)
    return all(isinstance(item, exp.Literal) or _is_count(item) or item in asked for item in items)


def _is_count(item: exp.Expr) -> bool:
    return isinstance(item, exp.Count) or (isinstance(item, exp.Anonymous) and item.name.lower() == "count")


def _parts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that AND connects."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _parts(condition.left)
        yield from _parts(condition.right)
    else:
        yield condition


def _is_not_null(condition: exp.Expr) -> bool:
    """`x IS NOT NULL`, or NOT (x IS NULL), which the tree does not tell apart."""
    inner = condition.this if isinstance(condition, exp.Not) else None
    return isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null)


def like_without_start(query: Query) -> Iterator[Problem]:
    for node in query.tree.find_all(exp.Like, exp.ILike):
        pattern = node.expression
        if isinstance(pattern, exp.Literal) and pattern.is_string and pattern.name.startswith("%"):
            start = _starts(node)
            step = "Filter by a prefix, or by another column as well, if the table is large."
            yield warning(
                "W106", f"LIKE '{pattern.name}' must look at every row.", place(query, start or query.start), step
            )


_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.Is, exp.Between),
)


def texts_like_columns(query: Query) -> Iterator[Problem]:
    """Double quotes where a column is likely meant: to Spark they enclose a text, in standard SQL a column's name."""
    for node in query.tree.find_all(exp.Literal):
        start = node.meta.get("start", 0)
        if not node.is_string or query.source[start : start + 1] != '"' or not _column_expected(node):
            continue
        message = f'"{node.name}" is a text here, as in Spark; a column\'s name goes in backticks.'
        step = f"Write `{node.name}` for the column. If a text is meant, write '{node.name}' in single quotes."
        yield warning("W114", message, place(query, start), step)


def _column_expected(node: exp.Literal) -> bool:
    """Whether a text makes little sense here: as a whole item, in GROUP BY, ORDER BY, PARTITION BY, left of `=`."""
    parent, key = node.parent, node.arg_key
    if isinstance(parent, exp.Alias):
        return isinstance(parent.parent, exp.Select) and parent.arg_key == "expressions"
    if isinstance(parent, exp.Anonymous):
        return parent.name.lower() in functions.AGGREGATES and node.index == 0
    lists = isinstance(parent, (exp.Select, exp.Group)) and key == "expressions"
    return lists or isinstance(parent, exp.Ordered) or key == "partition_by" or _is_left(parent, key)


def _is_left(parent: exp.Expr | None, key: str | None) -> bool:
    return isinstance(parent, _COMPARISONS) and key == "this"


def window_form(query: Query) -> Iterator[Problem]:
    for node in query.tree.walk():
        window = node.meta.get("time_window")
        arguments = read_arguments(window) if window is not None else None
        if window is not None and arguments is not None and list(arguments.durations) != _descending(arguments):
            message = "Windows that follow each other at more than their size leave rows out."
            step = f"Write the size first, then the advance: {window.kind}(5m, 1m)."
            yield error("E112", message, place(query, window.start), step)
        if window is not None and arguments is None:
            forms = {"SESSION": "SESSION([column,] gap [, key])", "TUMBLING": "TUMBLING([column,] size)"}
            form = forms.get(window.kind, f"{window.kind}([column,] size, advance)")
            yield error(
                "E112", f"{window.kind} needs positive durations.", place(query, window.start), f"Write {form}."
            )


def _descending(arguments: WindowArguments) -> list[Decimal]:
    return sorted(arguments.durations, reverse=True)


def within_form(query: Query) -> Iterator[Problem]:
    for join in query.tree.find_all(exp.Join):
        within = join.meta.get("within")
        if within is not None and parse_duration(within[0]) is None:
            message = f"'{within[0]}' is not a duration."
            yield error("E108", message, place(query, within[1]), "Write WITHIN 5m, or WITHIN '10 seconds'.")


QUERY_RULES: tuple[Callable[[Query], Iterable[Problem]], ...] = (
    random_functions,
    functions_of_now,
    unordered_functions,
    unbroken_ties,
    samples,
    not_in_subquery,
    like_without_start,
    texts_like_columns,
    window_form,
    within_form,
    wrong_arguments,
)
