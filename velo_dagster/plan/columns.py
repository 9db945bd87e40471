"""Output columns where statements tell them, and the rules about columns that follow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from velo_dagster.sql.functions import AGGREGATES, words
from velo_dagster.sql.names import HIDDEN_PREFIX, is_plain, sanitise
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
    piped = "|>" in statement.query.text
    names = _select_names(select, known) if isinstance(select, exp.Select) and not piped else None
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
    """The names of the result's columns; None unless all can be told."""
    names: list[str] = []
    for item in select.expressions:
        if item.is_star:
            columns = _starred(select, item, known)
            if columns is None:
                return None
            names += columns
        elif isinstance(item, exp.Alias) or _is_named(item):
            names.append(sanitise(item.output_name))
        else:
            return None
    return tuple(names)


def _starred(select: exp.Select, item: exp.Expr, known: Columns) -> tuple[str, ...] | None:
    """The columns of `*`, or of `t.*`, over one table; None where a struct is meant, or more than the table is seen."""
    relations = relations_of(select)
    star = item.this if isinstance(item, exp.Column) else item
    if len(relations) != 1 or select.args.get("laterals") or not _bare_star(star):
        return None
    (relation,) = relations
    if not _plain(relation) or (isinstance(item, exp.Column) and not _names_relation(item, [_called(relation)])):
        return None
    return known.get(relation.name.casefold())


def _names_relation(star: exp.Column, relations: Collection[str]) -> bool:
    """Whether `x.*` means a relation; else it is the fields of a struct."""
    return len(star.parts) == 2 and star.table.casefold() in relations


def _is_named(item: exp.Expr) -> bool:
    """Whether it is a column or a field, whose own name its item has."""
    return isinstance(item, exp.Column) and not item.is_star and not _keyword(item.name)


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


def _called(relation: exp.Expr) -> str:
    """What the query calls a plain relation, in lower case."""
    return (relation_alias(relation) or "" if isinstance(relation, exp.Table) else "").casefold()


def unknown_columns(query: Query, known: Columns) -> Iterator[Problem]:
    """Columns that tables with known columns do not have. Where it cannot be told, the load tells."""
    if "|>" in query.text:
        return
    for column in query.tree.find_all(exp.Column):
        if _is_reference(column) and (visible := _visible(column, known)) is not None:
            problem = _check(query, column, visible)
            if problem is not None:
                yield problem


@dataclass(frozen=True)
class _Visible:
    """All that a column may be: by relation its columns, and the names that other items of a select list have.

    A column that is in neither is not there: what can't be told in full is no `_Visible`. `items` holds `_MADE_UP`
    where an item has a name that Spark makes up.
    """

    relations: Mapping[str, Sequence[str]]
    items: frozenset[str]

    @property
    def columns(self) -> list[str]:
        """All columns, each once."""
        found = [name for columns in self.relations.values() for name in columns]
        return list({name.casefold(): name for name in found}.values())


_MADE_UP = ""
_ROWS_ONLY = ("with_", "hint", "from_", "joins", "laterals", "where")
"""Parts of a SELECT that come before its select list, and see none of its names."""


def _visible(column: exp.Column, known: Columns) -> _Visible | None:
    """What is visible where the column stands; None unless all of it is known."""
    relations: dict[str, list[str]] = {}
    items: set[str] = set()
    for select, part in _scopes(column):
        if select.args.get("laterals"):
            return None
        for relation in relations_of(select):
            columns = known.get(relation.name.casefold()) if _plain(relation) else None
            if columns is None:
                return None
            # An outer relation of the same name is hidden only from columns that the inner one has.
            relations.setdefault(_called(relation), []).extend(columns)
        for item in () if part.arg_key in _ROWS_ONLY else select.expressions:
            names = _item_names(item, relations) if item is not part else frozenset()
            if names is None:
                return None
            items |= names
    return _Visible(relations, frozenset(items)) if relations else None


def _scopes(column: exp.Column) -> Iterator[tuple[exp.Select, exp.Expr]]:
    """The SELECTs whose rows the column may name, from the inside out, each with the part of it that holds the column.

    A SELECT shows nothing of itself to what it reads in FROM, but for LATERAL, nor to what it defines in WITH.
    """
    part: exp.Expr = column
    reads_it: bool | None = None
    while (above := part.parent) is not None:
        if reads_it is None and isinstance(above, (exp.From, exp.CTE, exp.Join, exp.Lateral)):
            joined = isinstance(above, exp.Join) and part.arg_key == "this"
            reads_it = joined or isinstance(above, (exp.From, exp.CTE))
        if isinstance(above, exp.Select):
            if not reads_it:
                yield above, part
            reads_it = None
        part = above


def _item_names(item: exp.Expr, relations: Collection[str]) -> frozenset[str] | None:
    """The names that a select item adds to those of its relations; None if they can't be told.

    Calls of generators name several columns, a text is its own name, a cast has that of what it casts, ...: only what
    is sure of its name has one here.
    """
    if isinstance(item, exp.Alias) or _is_named(item):
        return frozenset([sanitise(item.output_name).casefold()])
    if isinstance(item, exp.Star) or (item.is_star and isinstance(item, exp.Column)):
        known = isinstance(item, exp.Star) or _names_relation(item, relations)
        return frozenset() if known else None
    return frozenset([_MADE_UP]) if _is_made_up(item) else None


def _is_made_up(item: exp.Expr) -> bool:
    """Whether its name is one like `sum(x)`, `(a + b)`, `1`, that can only be written in backticks."""
    while isinstance(item, (exp.Filter, exp.WithinGroup)):
        item = item.this
    if isinstance(item, exp.Anonymous):
        return item.name.lower() in AGGREGATES
    number = isinstance(item, exp.Literal) and not item.is_string
    return number or isinstance(item, (exp.Window, exp.Add, exp.Sub, exp.Mul, exp.Div))


def _is_reference(column: exp.Column) -> bool:
    """Whether it is a column of a SELECT: not a lambda's variable, a unit, or part of a hint.

    Not either one in the ORDER BY of a set operation, which names columns of the result.
    """
    if column.is_star or _is_unit(column) or column.find_ancestor(exp.Lambda, exp.Hint) is not None:
        return False
    return isinstance(column.find_ancestor(exp.Query), exp.Select)


def _is_unit(column: exp.Column) -> bool:
    """Whether it is the unit of a function of times: `dateadd(DAY, 1, t)`."""
    call = column.parent
    first = isinstance(call, exp.Func) and next(iter(call.iter_expressions()), None) is column
    return first and len(column.parts) == 1 and column.name.lower() in _UNITS


def _check(query: Query, column: exp.Column, visible: _Visible) -> Problem | None:
    parts = [part.name for part in column.parts]
    first, everything = sanitise(parts[0]).casefold(), visible.columns
    if first in visible.items or first in {c.casefold() for c in everything}:
        return None
    at = 1 if len(parts) > 1 else 0
    columns = visible.relations.get(parts[0].casefold()) if at else everything
    if columns is None:
        return None
    name = parts[at]
    clean = sanitise(name).casefold()
    made_up = not is_plain(name) and _MADE_UP in visible.items
    if clean in {c.casefold() for c in columns} or clean.startswith(HIDDEN_PREFIX) or made_up or _keyword(name):
        return None
    where = place(query, column.parts[at].meta.get("start", query.start))
    similar = nearest(name, columns)
    steps = [f"Did you mean {' or '.join(similar)}?"] if similar else []
    return error("E114", f"There is no column '{name}'.", where, *steps, f"There are {', '.join(columns)}.")


def _keyword(name: str) -> bool:
    """Words that stand like columns but are functions or fields of a time window."""
    lowered = name.lower()
    return lowered.startswith(("current_", "local", "session_", "window", "_window")) or lowered in _LITERALS


_LITERALS = ("user", "all", "grouping__id")


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
