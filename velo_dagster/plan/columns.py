"""Output columns where statements tell them, and the rules about columns that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from velo_dagster.sql.names import HIDDEN_PREFIX, sanitise
from velo_dagster.sql.problems import Problem, error, nearest
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.render import place
from velo_dagster.sql.statements import CreateTable, CreateTableAs, Query

Columns = Mapping[str, tuple[str, ...]]
"""Known columns by table name in lower case."""


def derive_columns(statements: Sequence[CreateTableAs | CreateTable]) -> Columns:
    """The columns of every table whose statements tell them: declared, or named in a list without an unknown `*`."""
    known: dict[str, tuple[str, ...]] = {}
    waiting = list(statements)
    while waiting:
        left = []
        for statement in waiting:
            columns = _columns(statement, known)
            if columns is None:
                left.append(statement)
            else:
                known[statement.name.casefold()] = columns
        if len(left) == len(waiting):
            break
        waiting = left
    return known


def _columns(statement: CreateTableAs | CreateTable, known: Columns) -> tuple[str, ...] | None:
    if isinstance(statement, CreateTable):
        return tuple(column.name for column in statement.columns)
    select = statement.query.tree
    if not isinstance(select, exp.Select) or statement.columns:
        return None
    names: list[str] = []
    for item in select.expressions:
        if item.is_star:
            relations = relations_of(select)
            columns = known.get(relations[0].name.casefold()) if len(relations) == 1 and _plain(relations[0]) else None
            if columns is None or not any(_bare_star(star) for star in item.find_all(exp.Star)):
                return None
            names += columns
        elif isinstance(item, (exp.Alias, exp.Column)) and item.output_name:
            names.append(sanitise(item.output_name))
        else:
            return None
    return tuple(names)


def _bare_star(node: exp.Expr) -> bool:
    """`*` without EXCEPT."""
    return isinstance(node, exp.Star) and not any(node.args.values())


def relations_of(select: exp.Select) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    return ([from_.this] if from_ else []) + [join.this for join in select.args.get("joins") or ()]


def _plain(relation: exp.Expr) -> bool:
    """Whether the relation shows exactly its table's columns."""
    if not isinstance(relation, exp.Table) or "input" not in relation.meta or "uri" in relation.meta:
        return False
    alias = relation.args.get("alias")
    return not relation.args.get("pivots") and not relation.args.get("joins") and not (alias and alias.columns)


def unknown_columns(query: Query, known: Columns) -> Iterator[Problem]:
    """Columns that a table with known columns does not have. Where it cannot be told, the load tells."""
    for select in query.tree.find_all(exp.Select):
        relations = relations_of(select)
        scope = {
            (relation_alias(r) or "").casefold(): known[r.name.casefold()]
            for r in relations
            if isinstance(r, exp.Table) and _plain(r) and r.name.casefold() in known
        }
        if not scope or "|>" in query.text:
            continue
        alone = len(relations) == 1 and not select.args.get("laterals") and select.find_ancestor(exp.Select) is None
        aliases = {item.alias.casefold() for item in select.expressions if isinstance(item, exp.Alias)}
        for column in _own_columns(select):
            problem = _check(query, column, scope, aliases, alone)
            if problem is not None:
                yield problem


def _own_columns(select: exp.Select) -> Iterator[exp.Column]:
    """The column references of this SELECT itself, not of queries inside it, nor the variables of lambdas."""
    for column in select.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is not select or column.is_star:
            continue
        lambda_ = column.find_ancestor(exp.Lambda)
        if lambda_ is None:
            yield column


def _check(
    query: Query, column: exp.Column, scope: Mapping[str, Sequence[str]], aliases: set[str], alone: bool
) -> Problem | None:
    parts = [part.name for part in column.parts]
    first = parts[0].casefold()
    if len(parts) > 1 and first in scope:
        columns, name = scope[first], parts[1]
    elif alone and first not in aliases:
        columns, name = next(iter(scope.values())), parts[0]
        if len(parts) > 1 and name.casefold() not in {c.casefold() for c in columns}:
            return None
    else:
        return None
    clean = sanitise(name).casefold()
    if clean in {c.casefold() for c in columns} or clean.startswith(HIDDEN_PREFIX) or _keyword(name):
        return None
    identifier = column.parts[1] if len(parts) > 1 and first in scope else column.parts[0]
    where = place(query, identifier.meta.get("start", query.start))
    similar = nearest(name, columns)
    steps = [f"Did you mean {' or '.join(similar)}?"] if similar else []
    return error("E114", f"There is no column '{name}'.", where, *steps, f"There are {', '.join(columns)}.")


def _keyword(name: str) -> bool:
    """Words that stand like columns but are functions or fields of a time window."""
    lowered = name.lower()
    return lowered.startswith(("current_", "local", "session_", "window", "_window")) or lowered in ("user", "all")


def star_over_join(statement: CreateTableAs, known: Columns) -> Iterator[Problem]:
    """`SELECT *` over a join whose relations share column names would make two columns of one name."""
    select = statement.query.tree
    if not isinstance(select, exp.Select) or not any(_bare_star(i) for i in select.expressions):
        return
    joins = select.args.get("joins") or ()
    if not joins or any(j.args.get("using") or j.method or j.kind in ("SEMI", "ANTI") for j in joins):
        return
    seen: dict[str, str] = {}
    for relation in relations_of(select):
        if not isinstance(relation, exp.Table) or not _plain(relation):
            continue
        alias = relation_alias(relation) or relation.name
        for name in known.get(relation.name.casefold(), ()):
            other = seen.setdefault(name.casefold(), alias)
            if other != alias:
                star = next(i for i in select.expressions if isinstance(i, exp.Star))
                yield error(
                    "E115",
                    f"SELECT * takes '{name}' from both {other} and {alias}.",
                    place(statement.query, star.meta["span"][0]),
                    f"Leave one out: SELECT {other}.*, {alias}.* EXCEPT ({name}).",
                    f"Or join by it: JOIN … USING ({name}).",
                )
                return
