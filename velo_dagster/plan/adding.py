"""Groups that rows are added to: COUNT, SUM, MIN, MAX and AVG of all rows follow from those of some and of the others.

So while rows only come, a group is not computed anew: what the new rows alone give is put together with what the table
holds. For that the answer of every such function is a column of the result, hidden where the user did not ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from velo_dagster.plan.blocks import (
    generates,
    group_keys,
    has_sessions,
    has_windows,
    is_aggregate,
    is_one_row,
    own,
    relations,
    unwrapped,
)
from velo_dagster.plan.prepared import prepared
from velo_dagster.plan.written import sql
from velo_dagster.sql.floats import FINISH
from velo_dagster.sql.marks import VeloPath

STATE = "_velo_a"
ONE = "_velo_one"
"""The key of one row over everything: the same for all, so that nothing the row holds tells it apart."""
MOST = 64
"""So many hidden columns are worth having."""
_RULES = {"count": "sum", "sum": "sum", "min": "min", "max": "max", "avg": "mean", "mean": "mean"}
_GROUP = "c"


@dataclass(frozen=True)
class State:
    """A column that holds the answer of a function, and how two of them become one: `sum`, `min` or `max` of both, or
    the `mean`, from the columns with the sum and the count. `floats`: it may be a float, because it only ever is an
    infinity or NaN."""

    column: str
    rule: str
    of: tuple[str, ...] = ()
    floats: bool = False


@dataclass(frozen=True)
class Adding:
    """How to put groups together. `items`: the user's columns, as expressions over the states and the keys of a row
    called `c`; None for one that is the same for all rows of a group."""

    states: tuple[State, ...]
    items: tuple[tuple[str, str | None], ...]

    def of_rows(self, query: exp.Expr) -> exp.Expr:
        """The query with what some rows alone can tell: what is the same for all of a group, and the states."""
        copy = query.copy()
        select = unwrapped(copy)
        states = {one.column for one in self.states}
        left = {name for name, text in self.items if text is not None} - states
        select.set("expressions", [one for one in select.expressions if one.alias_or_name not in left])
        return copy


@dataclass
class _Finder:
    select: exp.Select
    keys: Mapping[str, exp.Expr]
    hide: bool
    states: dict[str, State] = field(default_factory=dict)
    hidden: list[exp.Expr] = field(default_factory=list)

    def item(self, item: exp.Expr) -> str | None:
        """The item over states and keys; raises `_No` where it can't be."""
        expression = item.unalias()
        if not any(is_aggregate(node) for node in own(expression)):
            return None
        if _unit(expression) is not None and not self.hide:
            return sql(self._state(expression, item.alias_or_name))
        return sql(self._over_states(expression.copy()))

    def _over_states(self, node: exp.Expr) -> exp.Expr:
        key = next((name for name, one in self.keys.items() if one == node), None)
        if key is not None:
            return _column(key)
        if _unit(node) is not None:
            return self._state(node, None)
        if isinstance(node, exp.Column | exp.Query) or is_aggregate(node):
            raise _No
        for child in list(node.iter_expressions()):
            found = self._over_states(child)
            if found is not child:
                child.replace(found)
        return node

    def _state(self, unit: exp.Expr, shown: str | None) -> exp.Expr:
        text = sql(unit)
        if text not in self.states:
            rule = _RULES[str(_unit(unit))]
            column = shown or self._hide(unit)
            parts = self._halves(unit) if rule == "mean" else ()
            self.states[text] = State(column, rule, parts, _finishes(unit))
        return _column(self.states[text].column)

    def _halves(self, mean: exp.Expr) -> tuple[str, ...]:
        """The columns with the sum and the count of what a mean is of."""
        found = []
        for name in ("sum", "count"):
            half = mean.copy()
            _function(half).set("this", name)
            found.append(self._state(half, None).name)
        return tuple(found)

    def _hide(self, unit: exp.Expr) -> str:
        name = f"{STATE}{len(self.hidden)}"
        self.hidden.append(exp.alias_(unit.copy(), name, quoted=True))
        return name


class _No(Exception):
    """It can't be put together."""


def adding(query: exp.Expr, keys: Sequence[str], *, hide: bool) -> Adding | None:
    """How groups of the query are put together; the states that it lacks are added to it, hidden. None if they can't.

    `keys`: the columns by which its groups are told apart. `hide`: its columns are stored in another form.
    """
    select = unwrapped(query)
    if not isinstance(select, exp.Select) or not keys or not (select.args.get("group") or is_one_row(select)):
        return None
    if any(select.args.get(one) for one in ("having", "distinct", "qualify")):
        return None
    if has_windows(select) or has_sessions(select) or generates(select):
        return None
    shown = [item for item in select.expressions if item.alias_or_name not in keys or not _is_hidden(item)]
    # The key of one row over everything is none of its expressions.
    by = {} if is_one_row(select) else dict(zip(keys, group_keys(select), strict=True))
    finder = _Finder(select, by, hide)
    try:
        items = tuple((item.alias_or_name, finder.item(item)) for item in shown)
    except _No:
        return None
    if len(finder.hidden) > MOST:
        return None
    select.set("expressions", [*select.expressions, *finder.hidden])
    return Adding(tuple(finder.states.values()), items)


def adds_up(query: exp.Expr) -> bool:
    """Whether the query is one row over everything, to which new rows of some input can be added."""
    whole = prepared(query)
    for table in whole.find_all(exp.Table):
        # In a statement as it is written, all sources have the same name.
        if "input" in table.meta:
            table.set("this", exp.to_identifier(table.meta["input"]))
    select = unwrapped(whole)
    if not isinstance(select, exp.Select) or whole.find(VeloPath) is not None:
        return False
    read = [one.name for one in relations(select) if isinstance(one, exp.Table)]
    return adding(whole, (ONE,), hide=False) is not None and any(only_adds(whole, one) for one in read)


def only_adds(query: exp.Expr, view: str) -> bool:
    """Whether rows that come in an input only ever add rows to what the query groups: it is read once, and no join
    asks whether it has a row."""
    select = unwrapped(query)
    if not isinstance(select, exp.Select) or sum(one.name == view for one in query.find_all(exp.Table)) != 1:
        return False
    first, *_ = relations(select)
    here = isinstance(first, exp.Table) and first.name == view
    for join in select.args.get("joins") or ():
        if isinstance(join.this, exp.Table) and join.this.name == view:
            if join.side in ("LEFT", "FULL") or join.kind in ("SEMI", "ANTI"):
                return False
            here = True
        elif here and join.side in ("RIGHT", "FULL"):
            return False
    return here


def _function(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Filter) else node


def _unit(node: exp.Expr) -> str | None:
    """The function's name, if the node is a call of one that can be added, with FILTER or without."""
    function = _function(node)
    if not isinstance(function, exp.Anonymous) or not is_aggregate(function):
        return None
    name = function.name.lower()
    plain = len(function.expressions) == 1 and not isinstance(function.expressions[0], exp.Distinct)
    return name if name in _RULES and plain else None


def _finishes(node: exp.Expr) -> bool:
    """Whether it stands in a call that puts digits of floats together."""
    return any(isinstance(one, exp.Anonymous) and one.name.lower() == FINISH for one in _above(node))


def _above(node: exp.Expr) -> Sequence[exp.Expr]:
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def _column(name: str) -> exp.Expr:
    return exp.column(name, _GROUP, quoted=True)


def _is_hidden(item: exp.Expr) -> bool:
    return item.alias_or_name.startswith("_velo_")
