"""Which parts of a query's result may have changed, given the changed rows of its inputs: as SQL that Spark runs.

Every input is there at two versions, `old` and `new`, and its changed rows too: those that `old` has (`gone`) and those
that `new` has (`came`). D(n, v) are the rows of a part n of the query at version v that may be absent at the other
version: changed rows of one relation, with all else at the same version v. That is enough: a row of the result that is
there at v only, or with another multiplicity, is made of at least one row of some relation that is there at v only, or
it is a row whose partner in an outer join, or whose answer from a subquery, changed. D may hold more than that, never
less; what is too much is computed once more and found unchanged.

| part | D(part, v) |
|---|---|
| input | its changed rows that v has |
| L JOIN R | D(L, v) JOIN R_v, and L_v JOIN D(R, v) |
| L LEFT JOIN R | D(L, v) LEFT JOIN R_v, and rows of L_v that match D(R, old) or D(R, new), with R_v |
| L FULL JOIN R | as LEFT, and mirrored |
| L SEMI, ANTI JOIN R | D(L, v) with R_v, and rows of L_v that match D(R, old) or D(R, new) |
| EXISTS, IN, a scalar subquery | rows for which a row changed in what it reads; its own aggregate is ignored |
| a block with a key | its rows at v whose key is that of a changed row, at either version |

The SQL is made of a tree in which every column is qualified and every star is written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from sqlglot import exp

from velo_dagster.plan.adding import ONE, Adding, adding, only_adds
from velo_dagster.plan.blocks import (
    ROW_MARK,
    aggregates,
    driving,
    generates,
    group_keys,
    has_sessions,
    has_windows,
    is_aggregate,
    is_global,
    is_one_row,
    own,
    partition,
    relations,
    unwrapped,
)
from velo_dagster.plan.delta_joins import VERSIONS, Joined
from velo_dagster.plan.prepared import prepared
from velo_dagster.plan.written import column_names, sql
from velo_dagster.sql.names import quote

CHANGED = {"old": "gone", "new": "came"}
KEY = "_velo_k"
CHANGE = "_velo_change"
"""Beside what one changed row of an input gives: whether the row is one that `old` or that `new` has."""


@dataclass(frozen=True)
class Parts:
    """A query that is computed in parts: `keys` are columns of `rows` that tell parts apart, `touched` gives those of
    parts that may have changed. `unique`: a part is one row. `by_row`: a part is what one row of an input gives.
    `adding`: how new rows are added to parts, if they can be; `added`: by input, what its new rows alone give, where
    they only add; `exact`: by input, what its changed rows give, where each row of the result is made of one of its
    rows, so that all else stays as it is."""

    keys: tuple[str, ...]
    touched: str
    rows: str
    columns: tuple[str, ...]
    unique: bool
    by_row: bool
    adding: Adding | None
    added: Mapping[str, str]
    exact: Mapping[str, str]


@dataclass(frozen=True)
class _Term:
    """Rows that may have changed: a FROM clause, and conditions."""

    source: str
    where: tuple[str, ...]


@dataclass
class Deltas:
    """`changed`: the views of inputs that have changed rows. Views are called as the query calls its inputs, with the
    version, or `gone` and `came`, or `changed` for both of these, behind an underscore. `hide`: keys are stored beside
    the columns of the result, even if it has them, because those are stored in another type."""

    inputs: frozenset[str]
    changed: frozenset[str]
    hide: bool = False
    _numbers: Iterator[int] = field(default_factory=count)

    def parts(self, tree: exp.Expr) -> Parts:
        """`tree` is qualified, and `why_whole` has nothing against it."""
        root = prepared(tree)
        keys = self._expose(root) if not is_one_row(root) else self._one_key(root)
        adds = adding(root, keys, hide=self.hide)
        touched = self._touched(root, keys)
        listed = ", ".join(quote(key) for key in keys)
        rows = sql(self._at(root, "new"))
        union = " UNION ALL ".join(touched) or f"SELECT {listed} FROM ({rows}) WHERE false"
        block = unwrapped(root)
        single = isinstance(block, exp.Select) and aggregates(block) and not _multiplies(block)
        touched_keys = f"SELECT DISTINCT {listed} FROM ({union})"
        alone = adds.of_rows(root) if adds is not None else root
        added = {
            one: sql(self._at(alone, "new", {one: "came"})) for one in self.changed if adds and only_adds(root, one)
        }
        return Parts(
            keys=keys,
            touched=touched_keys,
            rows=rows,
            columns=tuple(column_names(block)),
            unique=single,
            by_row=_is_plain(block),
            adding=adds,
            added=added,
            exact={one: self._exact(root, one) for one in self.changed if _is_plain(block) and only_adds(root, one)},
        )

    def _exact(self, root: exp.Expr, view: str) -> str:
        told = root.copy()
        block = unwrapped(told)
        assert isinstance(block, exp.Select)
        relation = next(one for one in relations(block) if isinstance(one, exp.Table) and one.name == view)
        change = exp.column(CHANGE, relation.alias_or_name, quoted=True)
        block.append("expressions", exp.alias_(change, CHANGE, quoted=True))
        return sql(self._at(told, "new", {view: "changed"}))

    # -- keys -------------------------------------------------------------------------------------------------------

    def _expose(self, query: exp.Expr) -> tuple[str, ...]:
        """The columns of the query's result that are its key; those that it lacks are added to it, hidden."""
        block = unwrapped(query)
        if isinstance(block, exp.SetOperation) or block.args.get("distinct"):
            return tuple(column_names(block))
        assert isinstance(block, exp.Select)
        if is_global(block):
            return ()
        if has_windows(block):
            return tuple(self._shown(block, one) for one in partition(block))
        if aggregates(block):
            return tuple(self._shown(block, one) for one in group_keys(block))
        return tuple(self._shown(block, one) for relation in driving(block) for one in self._row_of(relation))

    def _one_key(self, query: exp.Expr) -> tuple[str, ...]:
        """A literal, so that there is a row even where there is nothing to read."""
        block = unwrapped(query)
        block.append("expressions", exp.alias_(exp.Literal.number(1), ONE, quoted=True))
        return (ONE,)

    def _row_of(self, relation: exp.Expr) -> list[exp.Expr]:
        alias = relation.alias_or_name
        if isinstance(relation, exp.Subquery):
            names = self._expose(relation)
        elif relation.name in self.inputs:
            names = (ROW_MARK,)
        else:
            names = ()
        return [exp.column(name, alias, quoted=True) for name in names]

    def _shown(self, select: exp.Select, key: exp.Expr) -> str:
        for item in select.expressions:
            if item.unalias() == key and (not self.hide or item.alias_or_name.startswith(KEY)):
                return item.alias_or_name
        name = f"{KEY}{next(self._numbers)}"
        select.append("expressions", exp.alias_(key.copy(), name, quoted=True))
        return name

    def _touched(self, query: exp.Expr, keys: Sequence[str]) -> list[str]:
        """Queries that give the keys of all parts that may have changed."""
        block = unwrapped(query)
        if isinstance(block, exp.Select) and not (block.args.get("distinct") or _is_plain(block)):
            items = {item.alias_or_name: item.unalias() for item in block.expressions}
            return [
                f"SELECT {', '.join(f'{sql(self._at(items[key], v))} AS {quote(key)}' for key in keys)} {_from(term)}"
                for v in VERSIONS
                for term in self._terms(block, v)
            ]
        listed = ", ".join(f"q.{quote(key)}" for key in keys)
        return [f"SELECT {listed} FROM ({rows}) AS q" for v in VERSIONS for rows in self._inner(block, v)]

    def _inner(self, block: exp.Expr, v: str) -> list[str]:
        """Rows of the block that may have changed, before it compares them with each other."""
        if isinstance(block, exp.SetOperation):
            return [rows for side in (block.left, block.right) for rows in self._changed_rows(side, v, named_as=block)]
        assert isinstance(block, exp.Select)
        items = ", ".join(sql(self._at(item, v)) for item in block.expressions)
        return [f"SELECT {items} {_from(term)}" for term in self._terms(block, v)]

    # -- rows -------------------------------------------------------------------------------------------------------

    def _changed_rows(self, query: exp.Expr, v: str, named_as: exp.Expr | None = None) -> list[str]:
        """D(query, v): queries that give the columns of `query`, under the names of those of `named_as`."""
        block = unwrapped(query)
        names = column_names(block)
        if isinstance(block, exp.SetOperation) and not block.args.get("distinct") and isinstance(block, exp.Union):
            found = [rows for side in (block.left, block.right) for rows in self._changed_rows(side, v, block)]
        elif isinstance(block, exp.Select) and is_global(block):
            found = [sql(self._at(block, v))] if any(self._terms(block, one) for one in VERSIONS) else []
        elif _is_plain(block):
            found = self._inner(block, v)
        else:
            found = self._restricted(block, v)
        shown = column_names(unwrapped(named_as)) if named_as is not None else names
        renamed = ", ".join(f"q.{quote(a)} AS {quote(b)}" for a, b in zip(names, shown, strict=True))
        return [f"SELECT {renamed} FROM ({rows}) AS q" for rows in found]

    def _restricted(self, block: exp.Expr, v: str) -> list[str]:
        """Rows at v of the parts that may have changed."""
        keyed = block.copy()
        keys = self._expose(keyed)
        touched = self._touched(keyed, keys)
        rows = sql(self._at(keyed, v))
        if not touched:
            return []
        if not keys:
            return [rows]
        match = " AND ".join(f"q.{quote(key)} <=> k.{quote(key)}" for key in keys)
        return [f"SELECT q.* FROM ({rows}) AS q LEFT SEMI JOIN ({' UNION ALL '.join(touched)}) AS k ON {match}"]

    def _terms(self, select: exp.Select, v: str) -> list[_Term]:
        """What a SELECT reads, as far as it may have changed: by its relations, then by its subqueries."""
        all_of_it, changed = self._joined(select, v)
        laterals = "".join(sql(one) for one in select.args.get("laterals") or ())
        where = tuple(sql(self._at(one, v)) for one in _conjuncts(select))
        found = [_Term(source + laterals, where) for source in changed]
        for subquery in _subqueries(select):
            others = [one for one in _conjuncts(select) if not _holds(one, subquery)]
            kept = tuple(sql(self._at(one, v)) for one in others)
            found += [_Term(all_of_it + laterals, (*kept, asked)) for asked in self._asked(subquery)]
        return found

    def _joined(self, select: exp.Select, v: str) -> tuple[str, list[str]]:
        """All of the FROM clause at a version, and those of its rows that may have changed."""
        first, *_ = relations(select)
        everything = {one: sql(self._at(first, one)) for one in VERSIONS}
        terms = {one: self._leaf(first, one) for one in VERSIONS}
        for join in select.args.get("joins") or ():
            right = {one: sql(self._at(join.this, one)) for one in VERSIONS}
            changed = {one: self._leaf(join.this, one) for one in VERSIONS}
            step = Joined(join, everything, terms, right, changed)
            terms = {one: step.changed_rows(one) for one in VERSIONS}
            everything = {one: step.all_rows(one) for one in VERSIONS}
        return everything[v], terms[v]

    def _leaf(self, relation: exp.Expr, v: str) -> list[str]:
        """D of what stands in FROM alone, under its alias."""
        alias = quote(relation.alias_or_name)
        if isinstance(relation, exp.Subquery):
            return [f"({rows}) AS {alias}" for rows in self._changed_rows(relation, v)]
        if isinstance(relation, exp.Table) and relation.name in self.changed:
            return [f"{quote(f'{relation.name}_{CHANGED[v]}')} AS {alias}"]
        return []

    # -- subqueries -------------------------------------------------------------------------------------------------

    def _asked(self, subquery: exp.Query) -> Iterator[str]:
        """Conditions, one of which holds for each row whose answer from the subquery may have changed."""
        bodies = list(self._bodies(subquery))
        if not bodies:
            return
        looked_up = _looked_up(subquery)
        if looked_up is None and not isinstance(subquery.parent, exp.Exists) and not _is_correlated(subquery):
            values = [f"({sql(self._at(subquery, v))})" for v in VERSIONS]
            yield f"NOT ({values[0]} <=> {values[1]})"
            return
        value = None if looked_up is None or not _is_of_row(looked_up) else sql(looked_up)
        for term, item in bodies:
            body = f"SELECT 1 {_from(term)}"
            if value is None or item is None:
                yield f"EXISTS ({body})"
                continue
            # A row with NULL, or for which NULL is looked up, may change every answer; asked one by one, each is quick.
            word = "AND" if term.where else "WHERE"
            yield f"EXISTS ({body} {word} ({value}) = ({item}))"
            yield f"EXISTS ({body} {word} ({item}) IS NULL)"
            yield f"({value}) IS NULL AND EXISTS ({body})"

    def _bodies(self, query: exp.Expr) -> Iterator[tuple[_Term, str | None]]:
        """What the subquery reads, as far as it may have changed at either version, and the value that it gives."""
        block = unwrapped(query)
        if isinstance(block, exp.SetOperation):
            for side in (block.left, block.right):
                yield from self._bodies(side)
            return
        assert isinstance(block, exp.Select)
        single = len(block.expressions) == 1 and not aggregates(block) and not has_windows(block)
        for v in VERSIONS:
            item = sql(self._at(block.expressions[0].unalias(), v)) if single else None
            for term in self._terms(block, v):
                yield term, item

    def _at(self, node: exp.Expr, v: str, others: Mapping[str, str] | None = None) -> exp.Expr:
        """The node over the inputs as they are at a version; `others` have one of their own."""
        copy = node.copy()
        for table in copy.find_all(exp.Table):
            if table.name in self.inputs:
                alias = table.alias_or_name
                table.set("this", exp.to_identifier(f"{table.name}_{(others or {}).get(table.name, v)}", quoted=True))
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        return copy


def _multiplies(select: exp.Select) -> bool:
    """Whether a group may give several rows."""
    return generates(select) or has_windows(select) or has_sessions(select)


def _is_plain(block: exp.Expr) -> bool:
    """Whether each of its rows is made of one row of each relation."""
    return (
        isinstance(block, exp.Select)
        and not block.args.get("distinct")
        and not aggregates(block)
        and not has_windows(block)
    )


def _conjuncts(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    if where is None:
        return []
    return list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]


def _subqueries(select: exp.Select) -> list[exp.Query]:
    """The queries that its expressions ask, not those that stand in FROM."""
    parts = [*select.expressions, select.args.get("where"), select.args.get("having")]
    found: list[exp.Query] = []
    for part in parts:
        for node in own(part) if part is not None else ():
            if isinstance(node, exp.Query) and not isinstance(node, exp.Table):
                block = unwrapped(node)
                assert isinstance(block, exp.Query)
                found.append(block)
    return found


def _looked_up(subquery: exp.Query) -> exp.Expr | None:
    """What is looked for in the subquery by IN."""
    wrapped = subquery.parent
    asks = wrapped.parent if wrapped is not None else None
    return asks.this if isinstance(asks, exp.In) and asks.args.get("query") is wrapped else None


def _is_of_row(value: exp.Expr) -> bool:
    """Whether a row alone has the value, and it is a single one."""
    many = isinstance(value.unnest(), exp.Tuple) or value.find(exp.Query, exp.Window) is not None
    return not many and not any(is_aggregate(node) for node in value.walk())


def _holds(node: exp.Expr, inner: exp.Expr) -> bool:
    return any(one is inner for one in node.walk())


def _is_correlated(query: exp.Query) -> bool:
    """Whether it names a relation that it does not read itself."""
    known = {one.alias_or_name.casefold() for one in query.find_all(exp.Table, exp.Subquery)}
    return any(column.table.casefold() not in known for column in query.find_all(exp.Column) if column.table)


def _from(term: _Term) -> str:
    where = f" WHERE {' AND '.join(f'({one})' for one in term.where)}" if term.where else ""
    return f"FROM {term.source}{where}"
