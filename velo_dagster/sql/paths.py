"""Paths into nested data in a query, rewritten for Spark.

What a path is worth, `path_values` says; here is where paths stand and what becomes of them there. Outside of an
aggregate a path with a wildcard is an array. Inside of one it contributes each of its values: the SELECT reads every
row once per value, by a LATERAL VIEW, and its other aggregates take only the first of these:

    SELECT k, count(*), sum(positions.*.shares) FROM t GROUP BY k

    SELECT k, count(*) FILTER (WHERE coalesce(_velo_n, 0) = 0), sum(_velo_v.v0) FILTER (WHERE _velo_v.v0 IS NOT NULL)
    FROM t LATERAL VIEW OUTER posexplode(<array of struct<v0>>) _velo_values AS _velo_n, _velo_v GROUP BY k

So two paths in one aggregate, as in `sum(positions.*.shares * positions.*.price)`, go side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql import functions
from velo_dagster.sql.functions import words
from velo_dagster.sql.marks import Deep, Each, Name, Span, Step, VeloPath
from velo_dagster.sql.names import quote, sanitise
from velo_dagster.sql.nested import TEXT, Struct, Type
from velo_dagster.sql.path_values import Nested, Place, Values, listed, of_row, one_value, values_of
from velo_dagster.sql.problems import NotSupportedYet, error
from velo_dagster.sql.shapes import (
    Inputs,
    Output,
    all_relations,
    called,
    find_column,
    in_window,
    own_nodes,
    relation_shape,
)
from velo_dagster.sql.splice import Splice
from velo_dagster.sql.statements import Query, place

FIRST = "coalesce(_velo_n, 0) = 0"
_NOT_FILTERED = words("grouping grouping_id")
_OF_ARRAYS = words(
    """
    aggregate array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_size array_sort array_union
    arrays_overlap arrays_zip cardinality element_at exists filter flatten forall get reduce size slice sort_array
    to_json transform try_element_at zip_with
    """
)
"""Functions to which a path gives its array, also inside of an aggregate."""
_OF_FIELDS = words("array coalesce concat concat_ws format_string greatest hash least map printf struct xxhash64")
"""Functions that take any number of values: to them `s.*` gives the fields of a struct, as Spark has it."""


@dataclass(frozen=True)
class _Path:
    """A path where it stands: the names before its first wildcard or index, none from the row; and its steps."""

    node: exp.Expr
    span: Span
    names: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def many(self) -> bool:
        return any(isinstance(step, Each | Deep) for step in self.steps)


def may_read_text(query: Query) -> bool:
    """Whether a path stands in the query that would read JSON, if its column were a text."""
    for node in query.tree.walk():
        if isinstance(node, VeloPath):
            return True
        if isinstance(node, exp.Column) and len(node.parts) > 1 and not isinstance(node.this, exp.Star):
            relation = _is_relation(node, [node.parts[0].name])
            if len(node.parts) > 2 or not relation:
                return True
    return False


def check_paths(query: Query) -> None:
    """Raise for a path where it can't be: what needs no types to be told."""
    for path in query.tree.find_all(VeloPath):
        aggregate = _aggregate(path)
        if path.many and aggregate is not None and in_window(aggregate):
            raise _refused(query, path.meta["span"], "inside an aggregate with OVER", _ONE_BY_ONE)
        if path.many and not isinstance(path.this, exp.Column | exp.Star):
            raise _refused(query, path.meta["span"], "into a lambda's variable", _NO_LAMBDA)


_ONE_BY_ONE = "Make its array one value first, as in sum(array_max(path)) OVER (…), or aggregate in a subquery."
_NO_LAMBDA = "Write the path from the column, or use transform()."
_NO_TYPE = "Put the path where it reads a column of an input, or of a subquery that passes that on as it is."


def _refused(query: Query, span: Span, where: str, *steps: str) -> NotSupportedYet:
    written = query.source[slice(*span)]
    return NotSupportedYet(
        error("E204", f"The path {written} is not supported {where}.", place(query, span[0]), *steps)
    )


def rewrite(splice: Splice, query: Query, nested: Nested | None) -> None:
    """Every path of the query. Without types only what needs none is taken: an index is left to Spark."""
    check_paths(query)
    inputs = _outputs(nested)
    by_select: dict[int, list[tuple[_Path, exp.Expr, list[Values]]]] = {}
    changed: set[int] = set()
    for path in _paths(query, inputs):
        found = _found(query, path, nested, inputs)
        if found is None:
            continue
        changed.add(id(path.node))
        many = path.many or any(one.many for one in found)
        aggregate = _aggregate(path.node) if many else None
        if aggregate is None:
            value = None if path.many else one_value(found)
            splice.replace(path.span, value if value is not None else f"array_compact({listed(found)[0]})")
        else:
            if in_window(aggregate):
                raise _refused(query, path.span, "inside an aggregate with OVER", _ONE_BY_ONE)
            select = aggregate.find_ancestor(exp.Select)
            by_select.setdefault(id(select), []).append((path, aggregate, found))
    for entries in by_select.values():
        changed |= _aggregated(splice, query, entries)
    _name_items(splice, query, changed)


def _outputs(nested: Nested | None) -> Inputs:
    types = nested.types if nested is not None else {}
    return {
        name: [Output(column, type=type_, origin=(name, column)) for column, type_ in columns.items()]
        for name, columns in types.items()
    }


def _paths(query: Query, inputs: Inputs) -> Iterator[_Path]:
    for node in query.tree.walk():
        if isinstance(node, VeloPath):
            names = tuple(part.name for part in node.this.parts) if isinstance(node.this, exp.Column) else ()
            yield _Path(node, node.meta["span"], names, node.steps)
        elif isinstance(node, exp.Column) and not isinstance(node.parent, VeloPath):
            path = _of_star(query, node, inputs) if isinstance(node.this, exp.Star) else _of_dots(node, inputs)
            if path is not None:
                yield path


def _of_star(query: Query, column: exp.Column, inputs: Inputs) -> _Path | None:
    """`a.*` as an argument or under a name, unless Spark has a meaning for it."""
    call = column.find_ancestor(exp.Anonymous, exp.Query)
    argument = isinstance(call, exp.Anonymous)
    names = tuple(part.name for part in column.parts[:-1])
    found = find_column(column, names, inputs) if argument or isinstance(column.parent, exp.Alias) else None
    if found is None or _is_relation(column, names):
        return None
    fields = isinstance(call, exp.Anonymous) and call.name.lower() in _OF_FIELDS
    if fields and isinstance(found[0].type, Struct):
        return None
    last = column.parts[-2].meta["end"]
    star = next(token for token in query.tokens if token.token_type == TokenType.STAR and token.start > last)
    return _Path(column, (column.parts[0].meta["start"], star.end + 1), names, (Each(),))


def _is_relation(column: exp.Column, names: Sequence[str]) -> bool:
    select = column.find_ancestor(exp.Select)
    relations = all_relations(select) if select is not None else []
    return len(names) == 1 and any((called(one) or "").casefold() == names[0].casefold() for one in relations)


def _of_dots(column: exp.Column, inputs: Inputs) -> _Path | None:
    """`a.b` where `a` is a text: its JSON. Into a struct or map Spark finds its way by itself."""
    parts: list[exp.Expr] = list(column.parts)
    node: exp.Expr = column
    while isinstance(node.parent, exp.Dot) and node.arg_key == "this":
        node = node.parent
        parts.append(node.expression)
    if len(parts) < 2 or not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
        return None
    names = tuple(part.name for part in parts)
    found = find_column(column, names, inputs)
    if found is None or not _leads_to_text(found[0].type, names[found[1] :]):
        return None
    return _Path(column, (parts[0].meta["start"], parts[-1].meta["end"] + 1), names, ())


def _leads_to_text(type_: Type | None, fields: Sequence[str]) -> bool:
    """Whether a text stands before the last of the fields."""
    for name in fields:
        if type_ == TEXT:
            return True
        field = type_.field(name) if isinstance(type_, Struct) else None
        if field is None:
            return False
        type_ = field[1]
    return False


def _found(query: Query, path: _Path, nested: Nested | None, inputs: Inputs) -> list[Values] | None:
    """The path's values; None where it is left to Spark."""
    if nested is not None and not path.names:
        if not isinstance(path.node, VeloPath) or not isinstance(path.node.this, exp.Star):
            return None
        return of_row(_row(query, path, inputs), path.steps[1:], nested.text_values)
    found = find_column(path.node, path.names, inputs) if nested is not None and path.names else None
    if nested is None or found is None or found[0].type is None:
        if path.many:
            raise _refused(query, path.span, "where the type of its column can't be told", _NO_TYPE)
        return None
    column, used = found
    prefix = f"{quote(sanitise(path.names[0]))}." if used == 2 else ""
    origin = column.origin and (column.origin[0], (column.origin[1],))
    start = Place(f"{prefix}{quote(column.name or '')}", column.type, origin)  # type: ignore[arg-type]
    return values_of(start, (*map(Name, path.names[used:]), *path.steps), nested.text_values)


def _row(query: Query, path: _Path, inputs: Inputs) -> list[Place]:
    """The columns of the row that a path starts from."""
    select = path.node.find_ancestor(exp.Select)
    found: list[Place] = []
    for relation in all_relations(select) if select is not None else []:
        name, shape = called(relation), relation_shape(relation, inputs)
        if shape is None or any(column.type is None or column.name is None for column in shape):
            raise _refused(query, path.span, "where the types of all columns can't be told", _NO_TYPE)
        prefix = f"{quote(sanitise(name))}." if name else ""
        found += [
            Place(f"{prefix}{quote(one.name)}", one.type, ("", (one.name,)))
            for one in shape
            if one.type is not None and one.name is not None and one.shown
        ]
    return found


# -- inside of aggregates ---------------------------------------------------------------------------------------------


def _aggregate(path: exp.Expr) -> exp.Anonymous | None:
    """The aggregate to which a path contributes each value."""
    node = path.parent
    while node is not None and not isinstance(node, exp.Query | exp.Window | exp.Lambda):
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if name in functions.AGGREGATES:
                return node
            if name in _OF_ARRAYS:
                return None
        elif node.key in _KEYS_OF_ARRAYS:
            return None
        elif isinstance(node, exp.WithinGroup) and path.find_ancestor(exp.Order) is not None:
            return node.this if isinstance(node.this, exp.Anonymous) else None
        node = node.parent
    return None


_KEYS_OF_ARRAYS = frozenset(name.replace("_", "") for name in _OF_ARRAYS)


def _aggregated(splice: Splice, query: Query, entries: Sequence[tuple[_Path, exp.Expr, list[Values]]]) -> set[int]:
    """Make a SELECT read its rows once per value; returns the ids of the aggregates that changed."""
    select = entries[0][1].find_ancestor(exp.Select)
    assert select is not None
    arrays: dict[str, str] = {}
    uses: dict[int, list[str]] = {}
    for path, aggregate, found in entries:
        value = f"_velo_v.{arrays.setdefault(listed(found)[0], f'v{len(arrays)}')}"
        splice.replace(path.span, value)
        uses.setdefault(id(aggregate), []).append(value)
    splice.insert(select.meta["from_end"], f" {_view(arrays)} ")
    for call in own_nodes(select):
        if not isinstance(call, exp.Anonymous) or call.name.lower() not in functions.AGGREGATES - _NOT_FILTERED:
            continue
        if in_window(call):
            continue
        present = " OR ".join(f"{value} IS NOT NULL" for value in uses.get(id(call), ()))
        _filter(splice, query, call, present or FIRST)
        uses.setdefault(id(call), [])
    return set(uses)


def _view(arrays: Mapping[str, str]) -> str:
    """All arrays side by side, as rows."""
    names = list(arrays.values())
    zipped = f"arrays_zip({', '.join(f'coalesce({array}, array())' for array in arrays)})"
    fields = ", ".join(f"'{name}', _velo_z.`{number}`" for number, name in enumerate(names))
    rows = f"transform({zipped}, _velo_z -> named_struct({fields}))"
    return f"LATERAL VIEW OUTER posexplode({rows}) _velo_values AS _velo_n, _velo_v"


def _filter(splice: Splice, query: Query, call: exp.Anonymous, condition: str) -> None:
    """Let an aggregate take only some rows, beside what its own FILTER says."""
    tokens = query.tokens
    start = _start(call)
    at = _closing(tokens, next(i for i, token in enumerate(tokens) if token.start >= start))
    if [token.text.upper() for token in tokens[at + 1 : at + 3]] == ["WITHIN", "GROUP"]:
        at = _closing(tokens, at + 2)
    following = tokens[at + 1 : at + 4]
    if [token.text.upper() for token in following] == ["FILTER", "(", "WHERE"]:
        close = _closing(tokens, at + 1)
        splice.insert(following[2].end + 1, f" ({condition}) AND (")
        splice.insert(tokens[close].start, ")")
    else:
        splice.insert(tokens[at].end + 1, f" FILTER (WHERE {condition})")


def _start(call: exp.Expr) -> int:
    node: exp.Expr | None = call
    while node is not None and "call_start" not in node.meta:
        node = node.parent
    assert node is not None
    return node.meta["call_start"]


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Where the first parenthesis after a place closes."""
    depth = 0
    for index in range(at, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if kind == TokenType.R_PAREN and depth == 0:
            return index
    return len(tokens) - 1


def _name_items(splice: Splice, query: Query, changed: set[int]) -> None:
    """Items without a name are called as they are written, not as they are rewritten."""
    for select in query.tree.find_all(exp.Select):
        for item in select.expressions:
            if isinstance(item, exp.Alias | exp.Aliases) or "span" not in item.meta or "star_end" in item.meta:
                continue
            if any(id(node) in changed for node in item.walk()):
                start, end = item.meta["span"]
                splice.insert(end, f" AS {quote(sanitise(' '.join(query.source[start:end].split())))}")
