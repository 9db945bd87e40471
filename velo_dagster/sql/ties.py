"""Ties are broken by all columns, so that a recomputation gives the same rows whichever way Spark cut the data.

LIMIT and OFFSET take rows in the order of ORDER BY, and rows that are equal in it in any order: all columns of the
result are added to it, in subqueries and WITH alike. ROW_NUMBER, NTILE, LAG, LEAD, FIRST_VALUE and frames of ROWS look
at the order within a window: all columns of what the SELECT reads are added to that. RANK, and aggregates over a range,
give equal rows equal answers; nothing may be added to theirs. Rows that are equal in all columns are the same row to
everybody. Columns are added by name, so that the order in which a source came to have them does not matter.

Where all columns can't be told, or adding them would change a frame, the order stays as it is written: W113.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velo_dagster.sql.functions import words
from velo_dagster.sql.names import quote, sanitise
from velo_dagster.sql.shapes import Inputs, Output, called, relation_shape, relations, shape_of
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query

_POSITIONAL = words("row_number ntile lag lead first_value first")
_RANKS = words("rank dense_rank percent_rank cume_dist")
# Their answer depends on the order of equal rows, and so does their frame: more columns would make it smaller.
_PEERS = words("last_value last nth_value any_value collect_list collect array_agg string_agg listagg group_concat")


@dataclass(frozen=True)
class Ties:
    """What can be ordered by: positions (from 1) of the result's columns, and the columns of each input by its name.

    `columns`: by input, all of its columns in their order, where that is more than can be ordered by. `unseen`: those
    that `*` leaves out. `inner`: break ties that only columns of subqueries break, too.
    """

    result: Sequence[int]
    inputs: Mapping[str, Sequence[str]]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unseen: Sequence[str] = ()
    inner: bool = True

    def shapes(self) -> Inputs:
        return {
            name: [Output(one, one in sortable, one not in self.unseen) for one in self.columns.get(name, sortable)]
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
        _kind(window, name) == "positional" for window, name in _windows(query)
    )


def break_ties(splice: Splice, query: Query, ties: Ties) -> None:
    """Add columns wherever order counts."""
    for place in _places(query, ties.shapes(), ties.result, inner=ties.inner):
        if place.text is not None:
            splice.insert(place.at, place.text)


def unbroken(query: Query) -> Iterator[int]:
    """Where order counts and ties can't be broken, whatever columns the inputs have."""
    inputs = {table.meta["input"]: [Output("any")] for table in query.tree.find_all(exp.Table) if "input" in table.meta}
    yield from sorted({place.at for place in _places(query, inputs, (1,), inner=True) if place.text is None})


def _places(query: Query, inputs: Inputs, result: Sequence[int], *, inner: bool) -> Iterator[_Place]:
    for node in _queries(query):
        holder = _limited(node)
        if holder is None or (node is not query.tree and not inner):
            continue
        positions: Sequence[int] | None = result
        if node is not query.tree:
            shape = None if _has_pipes(query) else shape_of(node, inputs)
            positions = None if shape is None else [n for n, column in enumerate(shape, 1) if column.sortable]
        yield from _order_result(query, holder, positions)
    for window, name in _windows(query):
        kind, order = _kind(window, name), _order(window)
        if kind == "positional" and order is not None:
            if inner or _reads_inputs(window):
                yield _order_window(window, order.meta["end"], inputs)
        elif kind == "peers":
            yield _Place(window.meta["call_start"], None)


def _queries(query: Query) -> Iterator[exp.Expr]:
    """The query and those inside of it; parts of a set operation stand for themselves only if they have a LIMIT."""
    yield from (node for node in query.tree.walk() if isinstance(node, exp.Query) and not isinstance(node, exp.Table))


def _has_pipes(query: Query) -> bool:
    return any(token.token_type == TokenType.PIPE_GT for token in query.tokens)


def _limited(tree: exp.Expr) -> exp.Expr | None:
    """The query whose clauses hold its LIMIT or OFFSET; of a set operation they stand in its last part."""
    if not (tree.args.get("limit") or tree.args.get("offset")):
        return None
    while isinstance(tree, exp.SetOperation) and "clauses" not in tree.meta:
        tree = tree.expression
    return tree if "clauses" in tree.meta else None


def _order_result(query: Query, holder: exp.Expr, positions: Sequence[int] | None) -> Iterator[_Place]:
    spans = {kind: (start, end) for kind, start, end in holder.meta["clauses"]}
    first = min((span[0] for kind, span in spans.items() if kind in ("limit", "offset")), default=None)
    if first is None:
        return
    listed = None if positions is None else ", ".join(str(position) for position in positions)
    if "order" in spans:
        start, end = spans["order"]
        if query.source[start:end].split()[-1].upper() != "ALL" and listed != "":
            yield _Place(first, None) if listed is None else _Place(end, f", {listed}")
    elif {"sort", "cluster", "distribute"} & spans.keys() or listed is None:
        yield _Place(first, None)
    elif listed:
        yield _Place(first, f"ORDER BY {listed} ")


def _windows(query: Query) -> Iterator[tuple[exp.Window, Sequence[str]]]:
    """Windows with an order or frame of their own, and the functions that look through each."""
    for window in query.tree.find_all(exp.Window):
        if window.args.get("over") is None or not window.alias:
            if window.args.get("over") is not None:
                yield window, [_function(window)]
            continue
        definition = _definition(window)
        if definition is not None:
            uses = [one for one in query.tree.find_all(exp.Window) if _definition(one) is definition]
            if uses[0] is window:
                definition.meta["call_start"] = window.meta["call_start"]
                yield definition, [_function(use) for use in uses]


def _definition(window: exp.Window) -> exp.Window | None:
    """What `OVER w` names."""
    select = window.find_ancestor(exp.Select)
    named = (select.args.get("windows") or ()) if select is not None and window.args.get("over") else ()
    return next((one for one in named if one.name.casefold() == window.alias.casefold()), None)


def _function(window: exp.Window) -> str:
    call = window.this.this if isinstance(window.this, (exp.IgnoreNulls, exp.RespectNulls)) else window.this
    return call.name.lower()


def _order(window: exp.Window) -> exp.Order | None:
    order = window.args.get("order")
    return order if order is not None and "end" in order.meta else None


def _kind(window: exp.Window, functions: Sequence[str]) -> str:
    """positional: more columns in its order break ties. peers: they would change answers. Else order does not count."""
    frame = window.args.get("spec")
    by_rows = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
    whole = frame is not None and (frame.args.get("start"), frame.args.get("end")) == ("UNBOUNDED", "UNBOUNDED")
    counts = [
        name in _POSITIONAL or (by_rows and name not in _RANKS and (not whole or name in _PEERS)) for name in functions
    ]
    if not any(counts):
        return "peers" if any(name in _PEERS for name in functions) else ""
    ranked = any(name in _RANKS for name in functions)
    return "positional" if _order(window) is not None and not ranked and (by_rows or all(counts)) else "peers"


def _reads_inputs(window: exp.Window) -> bool:
    """Whether only inputs stand behind the FROM of the window's SELECT."""
    select = window.find_ancestor(exp.Select)
    return select is not None and all("input" in relation.meta for relation in relations(select))


def _order_window(window: exp.Window, at: int, inputs: Inputs) -> _Place:
    select = window.find_ancestor(exp.Select)
    columns = None if select is None else _group_columns(select) if select.args.get("group") else _read(select, inputs)
    if columns is None:
        return _Place(window.meta["call_start"], None)
    return _Place(at, "".join(f", {column}" for column in columns))


def _group_columns(select: exp.Select) -> list[str] | None:
    """What tells the rows of a GROUP BY apart; None where it is more than columns."""
    group = select.args["group"]
    spans = {kind for kind, *_ in select.meta.get("clauses", ())}
    others = any(value for key, value in group.args.items() if key != "expressions")
    if others or "group" not in spans or not all(isinstance(e, exp.Column) for e in group.expressions):
        return None
    return [".".join(quote(sanitise(part.name)) for part in e.parts) for e in group.expressions]


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
