"""Ties are broken by all columns, so that a recomputation gives the same rows whichever way Spark cut the data.

LIMIT and OFFSET take rows in the order of ORDER BY, and rows that are equal in it in any order: all columns of the
result are added to it, in subqueries and WITH alike. Without ORDER BY they take rows as those come: if a query inside
orders them, columns are added to that order. ROW_NUMBER, NTILE, LAG, LEAD, FIRST_VALUE from the start and frames of
ROWS look at the order within a window: all columns of what the SELECT reads are added to that, or those of its GROUP
BY. RANK, and aggregates over a range, give equal rows equal answers; nothing may be added to theirs. Rows that are
equal in all columns are the same row to everybody. Columns are added by name, so that the order in which a source came
to have them does not matter.

Where all columns can't be told, or adding them would change a frame, the order stays as it is written: W113.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velo_dagster.sql.functions import words
from velo_dagster.sql.names import quote, sanitise
from velo_dagster.sql.relations import called
from velo_dagster.sql.shapes import (
    Inputs,
    Output,
    aggregates,
    order_behind,
    relation_shape,
    relations,
    shape_of,
)
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query

_NUMBERED = words("row_number ntile lag lead")
_FIRST = words("first_value first")
_ORDERS = frozenset({"order", "sort", "cluster", "distribute"})
_RANKS = words("rank dense_rank percent_rank cume_dist")
# Their answer depends on the order of equal rows, and so does their frame: more columns would make it smaller.
_PEERS = _FIRST | words(
    "last_value last nth_value any_value collect_list collect array_agg string_agg listagg group_concat"
)


@dataclass(frozen=True)
class Ties:
    """What can be ordered by: positions (from 1) of the result's columns, and the columns of each input by its name.

    `columns`: by input, all of its columns in their order, where that is more than can be ordered by. `unseen`: by
    input, those that `*` leaves out. `inner`: break ties that only columns of subqueries break, too.
    """

    result: Sequence[int]
    inputs: Mapping[str, Sequence[str]]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unseen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inner: bool = True

    def shapes(self) -> Inputs:
        return {
            name: [
                Output(one, one in sortable, one not in self.unseen.get(name, ()))
                for one in self.columns.get(name, sortable)
            ]
            for name, sortable in self.inputs.items()
        }


@dataclass(frozen=True)
class _Place:
    """A place where order counts: where `text` is to be inserted; no text where ties can't be broken."""

    at: int
    text: str | None


def has_ties(query: Query) -> bool:
    """Whether the query takes rows by an order that may leave some of them equal."""
    return any(_limited(node) is not None for node in _queries(query)) or any(
        _kind(window, uses) == "positional" for window, uses in _windows(query)
    )


def break_ties(splice: Splice, query: Query, ties: Ties) -> None:
    """Add columns wherever order counts."""
    # Several queries may read what one inside of them orders.
    for place in dict.fromkeys(_places(query, ties.shapes(), ties.result, inner=ties.inner)):
        if place.text is not None:
            splice.insert(place.at, place.text)


def unbroken(query: Query) -> Iterator[int]:
    """Where order counts and ties can't be broken, whatever columns the inputs have."""
    inputs = {table.meta["input"]: [Output("any")] for table in query.tree.find_all(exp.Table) if "input" in table.meta}
    yield from sorted({place.at for place in _places(query, inputs, (1,), inner=True) if place.text is None})


def _places(query: Query, inputs: Inputs, result: Sequence[int], *, inner: bool) -> Iterator[_Place]:
    for node in _queries(query):
        yield from _order_rows(query, node, inputs, result, inner=inner)
    for window, uses in _windows(query):
        kind, order = _kind(window, uses), _order(window)
        if kind == "positional" and order is not None:
            if inner or _reads_inputs(window):
                yield from _order_window(window, order.meta["end"], inputs)
        elif kind == "peers":
            yield _Place(window.meta["call_start"], None)


def _queries(query: Query) -> Iterator[exp.Expr]:
    """The query and those inside of it; parts of a set operation stand for themselves only if they have a LIMIT."""
    yield from (node for node in query.tree.walk() if isinstance(node, exp.Query) and not isinstance(node, exp.Table))


def _has_pipes(query: Query) -> bool:
    return any(token.token_type == TokenType.PIPE_GT for token in query.tokens)


def _limited(tree: exp.Expr) -> exp.Expr | None:
    """The query whose clauses hold its LIMIT or OFFSET."""
    return _holder(tree) if tree.args.get("limit") or tree.args.get("offset") else None


def _holder(tree: exp.Expr) -> exp.Expr | None:
    """The query whose clauses hold those of this one; of a set operation they stand in its last part."""
    while isinstance(tree, exp.SetOperation) and "clauses" not in tree.meta:
        tree = tree.expression
    return tree if "clauses" in tree.meta else None


def _spans(holder: exp.Expr | None) -> dict[str, tuple[int, int]]:
    return {} if holder is None else {kind: (start, end) for kind, start, end in holder.meta["clauses"]}


def _order_rows(
    query: Query, node: exp.Expr, inputs: Inputs, result: Sequence[int], *, inner: bool
) -> Iterator[_Place]:
    """Fix the order in which the query takes rows, if it does not take all."""
    spans = _spans(_limited(node))
    first = min((span[0] for kind, span in spans.items() if kind in ("limit", "offset")), default=None)
    if first is None:
        return
    behind = None if _ORDERS & spans.keys() else order_behind(node)
    if behind is not None:
        node, spans = behind, _spans(_holder(behind))
    if node is not query.tree and not inner:
        return
    listed = _listed(query, node, inputs, result)
    if "order" in spans:
        start, end = spans["order"]
        if query.source[start:end].split()[-1].upper() != "ALL" and listed != "":
            yield _Place(first, None) if listed is None else _Place(end, f", {listed}")
    elif behind is not None or listed is None or _ORDERS & spans.keys():
        yield _Place(first, None)
    elif listed:
        yield _Place(first, f"ORDER BY {listed} ")


def _listed(query: Query, node: exp.Expr, inputs: Inputs, result: Sequence[int]) -> str | None:
    """The positions of the query's columns; None if they can't be told."""
    if node is query.tree:
        return ", ".join(map(str, result))
    shape = None if _has_pipes(query) else shape_of(node, inputs)
    return None if shape is None else ", ".join(str(n) for n, column in enumerate(shape, 1) if column.sortable)


def _windows(query: Query) -> Iterator[tuple[exp.Window, Sequence[exp.Window]]]:
    """Windows with an order or frame of their own, and the calls that look through each."""
    for window in query.tree.find_all(exp.Window):
        if window.args.get("over") is None or not window.alias:
            if window.args.get("over") is not None:
                yield window, [window]
            continue
        definition = _definition(window)
        if definition is not None:
            uses = [one for one in query.tree.find_all(exp.Window) if _definition(one) is definition]
            if uses[0] is window:
                definition.meta["call_start"] = window.meta["call_start"]
                yield definition, uses


def _definition(window: exp.Window) -> exp.Window | None:
    """What `OVER w` names."""
    select = window.find_ancestor(exp.Select)
    named = (select.args.get("windows") or ()) if select is not None and window.args.get("over") else ()
    return next((one for one in named if one.name.casefold() == window.alias.casefold()), None)


def _call(window: exp.Window) -> exp.Expr:
    call = window.this
    while isinstance(call, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        call = call.this
    return call


def _skips_rows(window: exp.Window) -> bool:
    """Whether the function does not look at all rows: IGNORE NULLS, FILTER, or the flag that means IGNORE NULLS."""
    return isinstance(window.this, (exp.IgnoreNulls, exp.Filter)) or len(_call(window).expressions) > 1


def _order(window: exp.Window) -> exp.Order | None:
    order = window.args.get("order")
    return order if order is not None and "end" in order.meta else None


def _kind(window: exp.Window, uses: Sequence[exp.Window]) -> str:
    """positional: more columns in its order break ties. peers: they would change answers. Else order does not count."""
    frame = window.args.get("spec")
    if frame is None and "buffer" in window.meta:
        frame = exp.WindowSpec(kind="ROWS", start=exp.Literal.number(window.meta["buffer"][2] - 1), end="CURRENT ROW")
    start, end = (frame.args.get("start"), frame.args.get("end")) if frame is not None else ("UNBOUNDED", None)
    whole = (start, end) == ("UNBOUNDED", "UNBOUNDED")
    by_rows = whole or (frame is not None and str(frame.args.get("kind")).upper() == "ROWS")
    # More columns end such a frame earlier, but its first row stays; frames measured in values take only one column.
    from_start = start == "UNBOUNDED" and end in (None, "CURRENT ROW")

    def counts(use: exp.Window) -> bool:
        name = _call(use).name.lower()
        if by_rows:
            return name in _NUMBERED or (name not in _RANKS and (not whole or name in _PEERS))
        return name in _NUMBERED or (name in _FIRST and from_start and not _skips_rows(use))

    names = {_call(use).name.lower() for use in uses}
    if not any(map(counts, uses)):
        return "peers" if names & _PEERS else ""
    sure = not names & _RANKS and (by_rows or all(map(counts, uses)))
    return "positional" if sure and _order(window) is not None else "peers"


def _reads_inputs(window: exp.Window) -> bool:
    """Whether only inputs stand behind the FROM of the window's SELECT."""
    select = window.find_ancestor(exp.Select)
    return select is not None and all("input" in relation.meta for relation in relations(select))


def _order_window(window: exp.Window, at: int, inputs: Inputs) -> Iterator[_Place]:
    select = window.find_ancestor(exp.Select)
    grouped = select is not None and select.args.get("group")
    if select is not None and aggregates(select) and not grouped:
        return  # it is one row
    columns = None if select is None else _group_columns(select) if grouped else _read(select, inputs)
    if columns is None:
        yield _Place(window.meta["call_start"], None)
    else:
        yield _Place(at, "".join(f", {column}" for column in columns))


def _group_columns(select: exp.Select) -> list[str] | None:
    """What tells the rows of a GROUP BY apart; None where it is more than columns."""
    group = select.args["group"]
    spans = {kind for kind, *_ in select.meta.get("clauses", ())}
    others = any(value for key, value in group.args.items() if key != "expressions")
    if others or "group" not in spans or not all(_is_read(e, select) for e in group.expressions):
        return None
    return [".".join(quote(sanitise(part.name)) for part in e.parts) for e in group.expressions]


def _is_read(grouped: exp.Expr, select: exp.Select) -> bool:
    """Whether it is a column of what the SELECT reads, not a name that the SELECT gives: windows do not see those."""
    if not isinstance(grouped, exp.Column):
        return False
    name = grouped.name.casefold()
    given = [item for item in select.expressions if isinstance(item, exp.Alias) and item.alias.casefold() == name]
    used = any(column.name.casefold() == name for item in given for column in item.this.find_all(exp.Column))
    return bool(grouped.table) or not given or used


def _read(select: exp.Select, inputs: Inputs) -> list[str] | None:
    """All columns of what the SELECT reads, by name; None if some can't be told or named."""
    if select.args.get("laterals") or "time_window" in select.meta:
        return None
    found: list[str] = []
    for relation in relations(select):
        shape, name = relation_shape(relation, inputs), called(relation)
        names = [column.name or "" for column in shape or () if column.sortable]
        if not names or "" in names or len({one.lower() for one in names}) < len(names):
            return None
        prefix = f"{quote(sanitise(name))}." if name else ""
        found += [f"{prefix}{quote(one)}" for one in sorted(names, key=str.lower)]
    return found
