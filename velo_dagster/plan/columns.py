"""Output columns where statements tell them, and the rules about columns that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from velo_dagster.sql.functions import words
from velo_dagster.sql.names import HIDDEN_PREFIX, sanitise
from velo_dagster.sql.problems import Problem, error, nearest
from velo_dagster.sql.relations import relation_alias
from velo_dagster.sql.render import place
from velo_dagster.sql.statements import CreateTable, CreateTableAs, Query

Columns = Mapping[str, tuple[str, ...]]
"""Known columns by table name in lower case."""
_UNITS = words("year quarter month week day dayofyear hour minute second millisecond microsecond")


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
    names = _select_names(select, known) if isinstance(select, exp.Select) else None
    if names is None or not statement.columns:
        return names
    return _declared([column.name for column in statement.columns], names)


def _declared(declared: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Declared columns are found by name; if none is, they count by place, and rename. Else the load tells."""
    given, own = {name.casefold() for name in names}, {name.casefold(): name for name in declared}
    if own.keys() <= given:
        return tuple(own.get(name.casefold(), name) for name in names)
    return tuple(declared) if len(declared) == len(names) and not own.keys() & given else None


def _select_names(select: exp.Select, known: Columns) -> tuple[str, ...] | None:
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
    """Columns that tables with known columns do not have. Where it cannot be told, the load tells."""
    if "|>" in query.text:
        return
    for select in query.tree.find_all(exp.Select):
        visible = _Visible.of(select, known)
        for column in _own_columns(select):
            problem = _check(query, column, visible)
            if problem is not None:
                yield problem


@dataclass(frozen=True)
class _Visible:
    """What a column of a SELECT may be: by relation its columns (None: not known), and names that items have.

    `whole`: nothing else is visible, so that a column which is not in it is not there.
    """

    relations: Mapping[str, Sequence[str] | None]
    aliases: frozenset[str]
    whole: bool

    @staticmethod
    def of(select: exp.Select, known: Columns) -> _Visible:
        relations: dict[str, Sequence[str] | None] = {}
        aliases: set[str] = set()
        whole = True
        for one in reversed([select, *_around(select)]):
            aliases |= {item.alias.casefold() for item in one.expressions if isinstance(item, exp.Alias)}
            whole = whole and not one.args.get("laterals")
            for relation in relations_of(one):
                columns = known.get(relation.name.casefold()) if _plain(relation) else None
                whole = whole and columns is not None
                name = relation_alias(relation) if isinstance(relation, exp.Table) else relation.alias
                relations[(name or "").casefold()] = columns
        return _Visible(relations, frozenset(aliases), whole and bool(relations))

    @property
    def columns(self) -> list[str]:
        """All columns known, each once."""
        found = [name for columns in self.relations.values() for name in columns or ()]
        return list({name.casefold(): name for name in found}.values())


def _around(select: exp.Select) -> Iterator[exp.Select]:
    """The SELECTs around it whose rows it may name; not one that reads it in FROM, or defines it in WITH."""
    node, reads_it = select, False
    while node.parent is not None:
        node = node.parent
        if isinstance(node, (exp.From, exp.Join, exp.CTE)):
            reads_it = True
        elif isinstance(node, exp.Select):
            if not reads_it:
                yield node
            reads_it = False


def _own_columns(select: exp.Select) -> Iterator[exp.Column]:
    """The column references of this SELECT itself, not of queries inside it, nor the variables of lambdas."""
    for column in select.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is not select or column.is_star:
            continue
        if column.find_ancestor(exp.Lambda) is None and not _is_unit(column):
            yield column


def _is_unit(column: exp.Column) -> bool:
    """Whether it is the unit of a function of times: `dateadd(DAY, 1, t)`."""
    call = column.parent
    first = isinstance(call, exp.Func) and next(iter(call.iter_expressions()), None) is column
    return first and len(column.parts) == 1 and column.name.lower() in _UNITS


def _check(query: Query, column: exp.Column, visible: _Visible) -> Problem | None:
    parts = [part.name for part in column.parts]
    first = parts[0].casefold()
    everything = visible.columns
    if len(parts) > 1:
        columns, at = visible.relations.get(first), 1
        if columns is None or first in {c.casefold() for c in everything}:
            return None
    elif visible.whole and first not in visible.aliases:
        columns, at = everything, 0
    else:
        return None
    name = parts[at]
    clean = sanitise(name).casefold()
    if clean in {c.casefold() for c in columns} or clean.startswith(HIDDEN_PREFIX) or _keyword(name):
        return None
    where = place(query, column.parts[at].meta.get("start", query.start))
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
