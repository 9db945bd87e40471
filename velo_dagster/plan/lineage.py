"""Which columns of its inputs a column of a table comes from, through joins, subqueries, WITH and unions.

Only values count, not what rows are kept: a column that stands in WHERE or ON alone is no origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, build_scope

from velo_dagster.sql.marks import VeloPath
from velo_dagster.sql.names import sanitise
from velo_dagster.sql.statements import CreateTableAs
from velo_dagster.sql.time_windows import FIELDS, read_arguments

Origin = tuple[str, str]
"""An input's name, and a column of it."""
Columns = Mapping[str, Sequence[str]]


def column_lineage(
    statement: CreateTableAs, inputs: Columns, names: Sequence[str], times: Mapping[str, str] | None = None
) -> dict[str, list[Origin]]:
    """By column of the table (`names`, in its order) the columns of `inputs` that its values are made of.

    `times`: by input the column that holds its event time, of which a window's start and end are made.
    """
    tree = statement.query.tree.copy()
    for table in tree.find_all(exp.Table):
        if "uri" in table.meta:
            table.set("this", exp.to_identifier(table.meta["input"]))
    for select in tree.find_all(exp.Select):
        _name_window_times(select, times or {})
    scope = build_scope(tree)
    if scope is None:
        return {}
    outputs = _outputs(scope, {name.casefold(): (name, list(columns)) for name, columns in inputs.items()})
    by_name = {sanitise(name).casefold(): origins for name, origins in outputs}
    by_place = len(outputs) == len(names)
    found: dict[str, list[Origin]] = {}
    for number, name in enumerate(names):
        origins = by_name.get(name.casefold())
        if origins is None and by_place:
            origins = outputs[number][1]
        found[name] = sorted(set(origins or ()))
    return found


def _name_window_times(select: exp.Select, times: Mapping[str, str]) -> None:
    """Put the column that holds a time window's time where the select list names the window's start or end."""
    window = select.meta.get("time_window")
    arguments = read_arguments(window) if window is not None else None
    if arguments is None:
        return
    time = exp.maybe_parse(arguments.column, dialect="spark") if arguments.column else _event_time(select, times)
    if time is None:
        return
    for item in select.expressions:
        fields = [one for one in item.find_all(exp.Column) if not one.table and one.name.lower() in FIELDS]
        for one in fields:
            named = exp.alias_(time.copy(), one.name) if one is item else time.copy()
            one.replace(named)


def _event_time(select: exp.Select, times: Mapping[str, str]) -> exp.Column | None:
    from_ = select.args.get("from_")
    table = from_.this if from_ is not None else None
    field = times.get(table.meta.get("input", "")) if isinstance(table, exp.Table) else None
    return exp.column(field.partition(".")[0], table=table.alias_or_name) if field and table is not None else None


Known = Mapping[str, tuple[str, list[str]]]
Output = tuple[str, list[Origin]]


def _outputs(scope: Scope, known: Known) -> list[Output]:
    """The result's columns in order, each with its origins."""
    tree = scope.expression
    if isinstance(tree, exp.SetOperation):
        sides = [_outputs(one, known) for one in scope.set_operation_scopes]
        return [
            (sides[0][number][0], [origin for side in sides if number < len(side) for origin in side[number][1]])
            for number in range(len(sides[0]))
        ]
    if not isinstance(tree, exp.Select):
        return []
    relations = _relations(scope, known)
    found: list[Output] = []
    for item in tree.expressions:
        if item.is_star:
            found += _star(item, relations)
        else:
            found.append((item.alias_or_name, list(_origins(item, scope, relations, known))))
    return found


def _relations(scope: Scope, known: Known) -> dict[str, list[Output]]:
    """By alias in lower case the columns of each relation, with their origins."""
    found: dict[str, list[Output]] = {}
    for alias, (_, source) in scope.selected_sources.items():
        if isinstance(source, Scope):
            found[alias.casefold()] = _outputs(source, known)
        elif isinstance(source, exp.Table):
            name, columns = known.get(source.name.casefold(), (source.name, []))
            found[alias.casefold()] = [(column, [(name, column)]) for column in columns]
    return found


def _star(item: exp.Expr, relations: Mapping[str, list[Output]]) -> list[Output]:
    star = item if isinstance(item, exp.Star) else item.find(exp.Star)
    left_out = {one.name.casefold() for one in (star.args.get("except_") or ())} if star is not None else set()
    table = item.table.casefold() if isinstance(item, exp.Column) else ""
    chosen = [relations.get(table, [])] if table else relations.values()
    return [output for columns in chosen for output in columns if output[0].casefold() not in left_out]


def _origins(item: exp.Expr, scope: Scope, relations: Mapping[str, list[Output]], known: Known) -> Iterator[Origin]:
    subqueries = {id(one.expression): one for one in scope.subquery_scopes}
    for inner in subqueries.values():
        if _within(inner.expression, item):
            for _, origins in _outputs(inner, known):
                yield from origins
    if any(isinstance(path.this, exp.Star) for path in item.find_all(VeloPath)):
        # A path from the row itself may find its values in any column.
        yield from (origin for outputs in relations.values() for _, origins in outputs for origin in origins)
    for column in item.find_all(exp.Column):
        if not any(_within(column, inner.expression) for inner in subqueries.values()):
            yield from _resolved(column, relations)


def _within(node: exp.Expr, outer: exp.Expr) -> bool:
    current: exp.Expr | None = node
    while current is not None:
        if current is outer:
            return True
        current = current.parent
    return False


def _resolved(column: exp.Column, relations: Mapping[str, list[Output]]) -> Iterable[Origin]:
    """The origins of a reference: by its table, else by the only relation that has such a column."""
    parts = [part.name.casefold() for part in column.parts]
    if len(parts) > 1 and parts[0] in relations:
        return _of(relations[parts[0]], parts[1])
    for outputs in relations.values():
        if origins := _of(outputs, parts[0]):
            return origins
    return ()


def _of(outputs: Iterable[Output], name: str) -> list[Origin]:
    return next(
        (origins for column, origins in outputs if sanitise(column).casefold() == sanitise(name).casefold()), []
    )
