"""By what a changed row of an input finds the parts of a table that it touches, in words.

The rules are those of `velo_dagster.plan.deltas`: from the place where an input stands in the query up to the query
itself, each block tells which of its rows the changed row is in. Columns are as they are written: one without a prefix,
where several relations are read, may be of any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from velo_dagster.plan.blocks import (
    aggregates,
    driving,
    group_keys,
    has_windows,
    is_aggregate,
    is_one_row,
    partition,
    relations,
)
from velo_dagster.plan.prepared import prepared
from velo_dagster.plan.words import listed, shown, shown_key
from velo_dagster.sql.relations import called

EVERY = "every part"
_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
}


@dataclass(frozen=True)
class _Rows:
    """Rows of a FROM clause that the changed row is in. `subject`: what stands for it there; empty if it does itself.
    `by`: conditions by which it is joined with others; `asks`: by which rows ask a subquery that reads it."""

    subject: str = ""
    by: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Link:
    """A condition between relations."""

    names: frozenset[str]
    words: str


def touched_by(tree: exp.Expr) -> dict[str, str]:
    """By input, what a changed row of it touches. `tree` is computed in parts."""
    found: dict[str, list[str]] = {}
    for table in prepared(tree).find_all(exp.Table):
        if "input" in table.meta:
            words = found.setdefault(table.meta["input"], [])
            touches = _touches(table)
            words += [touches] if touches not in words else []
    return {name: _together(words) for name, words in found.items()}


def _together(words: list[str]) -> str:
    everything = [one for one in words if one.startswith(EVERY)]
    return EVERY if EVERY in words else listed([one for one in words if one not in everything] + everything)


def _touches(table: exp.Table) -> str:
    node: exp.Expr = table
    rows, target = _Rows(), "the rows made of it"
    while (above := _holder(node)) is not None:
        block, relation = above
        if isinstance(block, exp.SetOperation):
            node, target = block, _equal(rows)
            continue
        assert isinstance(block, exp.Select)
        asker = _asker(block)
        if asker is not None:
            asks = _asked(block, asker, relation, rows)
            if isinstance(asks, str):
                return asks
            node, rows = asker, asks
            continue
        words = _target(block, relation, rows, target)
        passed = _passed(block, relation, rows)
        if words is None or passed is None:
            return EVERY
        node, target, rows = block, words, passed
    return target


def _holder(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None] | None:
    """The block in which a relation or a query stands, and the relation of its FROM that it is, if it is one."""
    chain = [node]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
        block = chain[-1]
        if isinstance(block, exp.SetOperation):
            return block, None
        if isinstance(block, exp.Select):
            return block, next((one for one in relations(block) if any(one is other for other in chain)), None)
    return None


def _asker(block: exp.Expr) -> exp.Expr | None:
    """The subquery, of an expression of another block, that the block is all or a side of."""
    while (above := _holder(block)) is not None and isinstance(above[0], exp.SetOperation):
        block = above[0]
    return block if above is not None and above[1] is None else None


# -- from a block to what reads it ------------------------------------------------------------------------------------


def _passed(block: exp.Select, relation: exp.Expr | None, rows: _Rows) -> _Rows | None:
    """What the changed row is in of the block's result; None: in all of it."""
    name = _alias(block)
    of = f"the rows of {name}" if name else "the rows"
    if is_one_row(block):
        return _Rows(f"the row of {name or 'the aggregate'}")
    if aggregates(block) or has_windows(block) or "time_window" in block.meta:
        key = _key(block, relation, rows)
        return _Rows(f"{of} with {key}") if key is not None else None
    if relation is None:
        return _Rows(f"{of} with {listed(rows.asks)}{_for(rows)}") if rows.asks else None
    return _read(block, relation, rows)


def _alias(block: exp.Expr) -> str:
    """What the query calls the block where it stands in a FROM."""
    above = block.parent
    while isinstance(above, exp.Subquery | exp.SetOperation):
        if above.alias_or_name:
            return "" if "split" in above.meta else above.alias_or_name
        above = above.parent
    return ""


def _target(block: exp.Select, relation: exp.Expr | None, rows: _Rows, inner: str) -> str | None:
    """The parts of the block that the changed row touches; None: every one. `inner`: those of the relation it is in."""
    if block.args.get("distinct"):
        return _equal(rows if relation is None else _read(block, relation, rows))
    if is_one_row(block):
        return "the one row"
    if aggregates(block) or has_windows(block) or "time_window" in block.meta:
        key = _key(block, relation, rows)
        return f"the parts with {key}" if key is not None else None
    if relation is None:
        kept = listed([f"the rows of {called(one) or 'its FROM'}" for one in driving(block)])
        return f"{kept} with {listed(rows.asks)}{_for(rows)}" if rows.asks else None
    found: list[str] = []
    for one in driving(block):
        if one is relation:
            found.append(inner)
            continue
        links = _path(block, relation, {_name(one)})
        if links is None:
            return None
        found.append(f"the rows of {called(one)} {_joined(rows, links)}")
    return listed(found)


def _read(block: exp.Select, relation: exp.Expr, rows: _Rows) -> _Rows:
    """The rows with all that the block joins to them."""
    return _Rows(rows.subject, (*rows.by, *(_path(block, relation, None) or ())))


def _equal(rows: _Rows) -> str:
    """Parts that all columns tell apart."""
    if rows.asks:
        return f"the rows equal to those made of rows with {listed(rows.asks)}{_for(rows)}"
    if rows.subject and not rows.by:
        return f"the rows equal to {rows.subject.replace('the rows', 'those', 1)}"
    if rows.subject:
        return f"the rows equal to those made of {rows.subject}, joined by {listed(rows.by)}"
    return "the rows equal to those it gives" + (f", joined by {listed(rows.by)}" if rows.by else "")


def _joined(rows: _Rows, links: list[str]) -> str:
    by = [*rows.by, *(one for one in links if one not in rows.by)]
    if rows.subject:
        return f"joined{f' by {listed(by)}' if by else ''} to {rows.subject}"
    return "it joins" + (f" by {listed(by)}" if by else "")


def _for(rows: _Rows) -> str:
    return f" for {rows.subject}" if rows.subject else ""


# -- keys -------------------------------------------------------------------------------------------------------------


def _key(block: exp.Select, relation: exp.Expr | None, rows: _Rows) -> str | None:
    """The block's key, as the changed row has it; None if every row has it."""
    words, owners = _keys(block)
    if relation is None:
        return f"the {words} of the rows with {listed(rows.asks)}{_for(rows)}" if rows.asks else None
    mine = owners is not None and owners <= {_name(relation)}
    if (mine or len(relations(block)) == 1) and not rows.by and not _may_lack(block, relation):
        return f"the {words} of {rows.subject}" if rows.subject else f"its {words}"
    links = _path(block, relation, None if mine else owners)
    return f"the {words} of the rows {_joined(rows, links)}" if links is not None else None


def _keys(block: exp.Select) -> tuple[str, set[str] | None]:
    """By what the block's parts are told apart, and the relations whose columns these are, if that can be told."""
    window = block.meta.get("time_window")
    keys = partition(block) if has_windows(block) else group_keys(block)
    words = [shown_key(block, one) for one in keys]
    if window is not None and window.kind == "SESSION":
        return listed(words or [window.arguments[-1]]), None
    if window is not None:
        return listed([*words, "window" if window.kind == "TUMBLING" else "windows"]), None
    names = [_owner(block, column) for one in keys for column in one.find_all(exp.Column)]
    return listed(words), None if None in names else {name for name in names if name}


def _owner(block: exp.Select, column: exp.Column) -> str | None:
    """The relation that a column's prefix names."""
    first = column.parts[0].name.casefold() if len(column.parts) > 1 else ""
    return first if first in {_name(one) for one in relations(block)} else None


def _may_lack(block: exp.Select, relation: exp.Expr) -> bool:
    """Whether a join shows rows without one of the relation: then it also touches what they were shown with."""
    lacks = False
    for one in block.args.get("joins") or ():
        if one.this is relation:
            lacks = one.side in ("LEFT", "FULL") and one.kind not in ("SEMI", "ANTI")
        elif one.side in ("RIGHT", "FULL"):
            lacks = True
    return lacks


# -- joins ------------------------------------------------------------------------------------------------------------


def _path(block: exp.Select, start: exp.Expr, ends: Collection[str] | None) -> list[str] | None:
    """The conditions by which rows of a relation are joined with those of others (None: of all); None if by none."""
    links = list(_links(block))
    first = _name(start)
    wanted = {_name(one) for one in relations(block)} - {first} if ends is None else set(ends) - {first}
    came: dict[str, tuple[str, int] | None] = {first: None}
    waiting = [first]
    while waiting:
        here = waiting.pop(0)
        for number, link in enumerate(links):
            for name in sorted(link.names - came.keys()) if here in link.names else ():
                came[name] = (here, number)
                waiting.append(name)
    used: set[int] = set()
    for name in wanted & came.keys():
        step = came[name]
        while step is not None:
            used |= {n for n, link in enumerate(links) if {name, step[0]} <= link.names}
            name, step = step[0], came[step[0]]
    if wanted and not wanted & came.keys() and (ends is None or first not in ends):
        return None if ends is not None else []
    return list(dict.fromkeys(links[number].words for number in sorted(used)))


def _links(block: exp.Select) -> Iterator[_Link]:
    before = {_name(relations(block)[0])} if relations(block) else set()
    for join in block.args.get("joins") or ():
        name = _name(join.this)
        everything = frozenset({*before, name})
        for one in _conjuncts(join.args.get("on")):
            yield from _link(block, one, everything)
        for one in join.args.get("using") or ():
            yield _Link(everything, shown(one))
        if "within" in join.meta:
            yield _Link(everything, f"WITHIN {join.meta['within'][0]}")
        before.add(name)
    where = block.args.get("where")
    for one in _conjuncts(where.this if where is not None else None):
        if not one.find(exp.Query):
            yield from _link(block, one, frozenset())


def _link(block: exp.Select, condition: exp.Expr, otherwise: frozenset[str]) -> Iterator[_Link]:
    """`otherwise`: the relations that it is about if its columns do not tell."""
    names = [_owner(block, column) for column in condition.find_all(exp.Column)]
    known = otherwise if None in names else frozenset(name for name in names if name)
    if len(known) > 1:
        yield _Link(known, shown(condition))


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def _name(relation: exp.Expr) -> str:
    return (called(relation) or "").casefold()


# -- subqueries -------------------------------------------------------------------------------------------------------


def _asked(block: exp.Select, query: exp.Expr, relation: exp.Expr | None, rows: _Rows) -> _Rows | str:
    """By what rows ask the subquery `query`, which `block` is all or a side of; or that each of them may."""
    inside = {_name(one) for one in query.find_all(exp.Table, exp.Subquery)}
    where = block.args.get("where")
    conditions = [one for one in _conjuncts(where.this if where is not None else None) if not one.find(exp.Query)]
    outer = [one for one in conditions if any(_is_outer(column, inside) for column in one.find_all(exp.Column))]
    compared = _compared(block, query, relation, rows)
    if not outer and compared is None:
        scalar = not isinstance(_asks(query), exp.Exists | exp.In | exp.Any | exp.All)
        alone = not any(_is_outer(column, inside) for column in query.find_all(exp.Column))
        return f"{EVERY}, if the value of the subquery changed" if scalar and alone else EVERY
    asking = outer if compared is None else [*outer, block.expressions[0]]
    columns = [column for one in asking for column in one.find_all(exp.Column)]
    ends = {name for column in columns if (name := _owner(block, column))}
    links = (_path(block, relation, ends) or []) if relation is not None and ends else []
    asks = [*rows.asks, *rows.by, *links, *map(shown, outer), *([compared] if compared else [])]
    return _Rows(rows.subject, (), tuple(dict.fromkeys(asks)))


def _is_outer(column: exp.Column, inside: Collection[str]) -> bool:
    return bool(column.table) and column.parts[0].name.casefold() not in inside


def _asks(query: exp.Expr) -> exp.Expr | None:
    """What the subquery is an operand of."""
    above = query.parent
    while isinstance(above, exp.Subquery):
        above = above.parent
    return above


def _compared(block: exp.Select, query: exp.Expr, relation: exp.Expr | None, rows: _Rows) -> str | None:
    """How a value is compared with what the subquery gives, if that is one column of the rows that it reads."""
    if len(block.expressions) != 1 or aggregates(block) or has_windows(block):
        return None
    asks = _asks(query)
    compares = asks if isinstance(asks, exp.In) else asks.parent if isinstance(asks, exp.Any | exp.All) else None
    if compares is None or not _is_of_row(compares.this):
        return None
    alone = relation is not None and len(relations(block)) == 1 and not rows.subject and not rows.by
    theirs = f"{'its ' if alone else ''}{shown(block.expressions[0].unalias())}"
    sign = "=" if isinstance(asks, exp.In) else _SIGNS.get(type(compares))
    if sign is None:
        return None
    test = f"{shown(compares.this)} {sign} {theirs}"
    return f"NOT {test}, or NULL on either side" if isinstance(asks, exp.All) else f"{test}, or NULL on either side"


def _is_of_row(value: exp.Expr) -> bool:
    """Whether a row alone has the value, and it is a single one."""
    many = isinstance(value.unnest(), exp.Tuple) or value.find(exp.Query, exp.Window) is not None
    return not many and not any(is_aggregate(node) for node in value.walk())
