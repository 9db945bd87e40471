"""Which relations of a query are inputs, and what they are called.

A relation is an input unless a WITH clause in whose reach it stands defines its name, or it is a function, VALUES or a
subquery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from velo_dagster.errors import Span
from velo_dagster.sql import uris
from velo_dagster.sql.marks import Refusal
from velo_dagster.sql.statements import InputRef

OLDER = "To look at an older version of a table, open it with a Delta reader; it is a folder of the warehouse."


def input_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """The relations that read an input, in the order of the text. What a hint names is none."""
    tables = [
        table
        for table in tree.find_all(exp.Table)
        if "name_span" in table.meta
        and ("uri" in table.meta or not _is_common_table(table))
        and table.find_ancestor(exp.Hint) is None
    ]
    return iter(sorted(tables, key=lambda table: table.meta["name_span"]))


def relation_alias(table: exp.Table) -> str | None:
    """What the query calls the relation."""
    if table.alias:
        return table.alias
    return uris.relation_name(table.meta["uri"]) if "uri" in table.meta else table.name


def read_by(select: exp.Select) -> list[exp.Expr]:
    """The relations that a SELECT reads."""
    from_ = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    return ([from_.this] if from_ else []) + joined + list(select.args.get("laterals") or ())


def called(relation: exp.Expr) -> str | None:
    """What the query calls a relation of any kind."""
    if isinstance(relation, exp.Table) and "input" in relation.meta:
        return relation_alias(relation)
    return relation.alias_or_name or None


def may_be_of_input(column: exp.Column) -> bool:
    """Whether a column may be one of an input: not if it is one of a subquery, or another item of the SELECT has its
    name for an alias."""
    child: exp.Expr = column
    selects = 0
    while child.parent is not None:
        select, below = child.parent, child
        child = select
        if not isinstance(select, exp.Select):
            continue
        selects += 1
        named = [one for one in read_by(select) if (called(one) or "").casefold() == column.table.casefold()]
        if column.table and named:
            return not all(map(_is_derived, named))
        if not column.table and not all(map(_is_derived, read_by(select))):
            return not (selects == 1 and _is_alias(column, select, below))
    return not selects


def _is_derived(relation: exp.Expr) -> bool:
    """Whether its columns are those of a query inside of this one."""
    if isinstance(relation, exp.Table):
        return "input" not in relation.meta
    return isinstance(relation, exp.Subquery) and isinstance(relation.this, (exp.Select, exp.SetOperation))


def _is_alias(column: exp.Column, select: exp.Select, part: exp.Expr) -> bool:
    """Whether a column in this part of a SELECT is an alias of it: in the list, one that stands before."""
    items = select.expressions
    if part in items:
        items = items[: next(number for number, item in enumerate(items) if item is part)]
    elif part.arg_key not in ("group", "having", "order"):
        return False
    return any(isinstance(item, exp.Alias) and item.alias.casefold() == column.name.casefold() for item in items)


def _is_common_table(table: exp.Table) -> bool:
    """Whether a WITH clause defines the name: an earlier part of the same, an outer query's, or, RECURSIVE, itself."""
    if table.args.get("db"):
        return False
    name = table.name.casefold()
    child: exp.Expr = table
    inside: exp.CTE | None = None
    while child.parent is not None:
        if isinstance(child, exp.CTE):
            inside = child
        parent = child.parent
        clause = parent.args.get("with_")
        if clause is not None:
            visible = clause.expressions
            if child is clause and inside is not None:
                at = next(i for i, cte in enumerate(visible) if cte is inside)
                visible = visible[: at + 1] if clause.args.get("recursive") else visible[:at]
            if any(cte.alias.casefold() == name for cte in visible):
                return True
        child = parent
    return False


def read_inputs(tree: exp.Expr, place: Callable[[int], Span]) -> tuple[InputRef, ...]:
    """The inputs of a query; marks each relation with its input's name (`meta["input"]`)."""
    refuse_dynamic_names(tree)
    named: dict[str, InputRef] = {}
    by_uri: dict[tuple[str, tuple[tuple[str, str], ...]], InputRef] = {}
    for table in input_tables(tree):
        start, properties = table.meta["name_span"][0], _properties(table)
        uri = table.meta.get("uri")
        if uri is not None:
            key = (uri, tuple(sorted(properties.items())))
            ref = by_uri.setdefault(key, InputRef(f"_input_{len(by_uri)}", uri, properties, place(start)))
        else:
            _check_name(table, start)
            ref = InputRef(table.name, None, properties, place(start))
            ref = _merge(named.get(table.name.casefold(), ref), properties, start)
            named[table.name.casefold()] = ref
        table.meta["input"] = ref.name
    return tuple(sorted([*named.values(), *by_uri.values()], key=lambda ref: ref.span))


def refuse_dynamic_names(tree: exp.Expr) -> None:
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Anonymous) and table.this.name.upper() == "IDENTIFIER":
            at = table.this.meta.get("start", 0)
            raise Refusal("E122", "IDENTIFIER(…) hides which table is read.", at, ["Name the table itself."])


def _merge(ref: InputRef, properties: dict[str, str], start: int) -> InputRef:
    """A name is one input: its properties may stand at any one of its relations, and must not contradict."""
    if ref.properties and properties and dict(ref.properties) != properties:
        raise Refusal(
            "E127",
            f"'{ref.name}' is read twice with different properties.",
            start,
            ["Give the properties once, or close the statement with WITH (…), which counts for all."],
        )
    return InputRef(ref.name, ref.uri, ref.properties or properties, ref.span)


def _properties(table: exp.Table) -> dict[str, str]:
    return dict(
        next((hint.meta["properties"] for hint in table.args.get("hints") or () if hint.meta.get("properties")), {})
    )


def _check_name(table: exp.Table, start: int) -> None:
    if table.args.get("db"):
        full = ".".join(part.name for part in table.parts)
        if uris.is_file_name(full):
            # Spark's own way to name a file: csv.`data/a.csv`.
            file = table.name if uris.is_file_name(table.name) else full
            raise Refusal("E122", f"'{full}' is no table.", start, [f"For a file, write 'file://{file}'."])
        raise Refusal(
            "E122",
            f"'{full}' has more than one part; tables have a name without dots.",
            start,
            ["Name the table alone.", "Name a file by its URI: FROM file:///data/a.parquet"],
        )
    if table.args.get("version") or table.args.get("when"):
        steps = ["Leave AS OF out: a table is made of its inputs as they are.", OLDER]
        raise Refusal("E208", "Reading an older version of an input is not supported yet.", start, steps)
