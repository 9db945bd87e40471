"""What the columns of a SELECT's result are called, and which of them are columns of its only input as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from velo_dagster.sql.names import sanitise
from velo_dagster.sql.rows import why_not_by_row
from velo_dagster.sql.statements import CreateTable, CreateTableAs


def plain_columns(statement: CreateTableAs, declared: Iterable[str]) -> dict[str, str]:
    """By declared output column, the input's column that it is; `*` gives each declared column under its own name."""
    select = statement.query.tree
    if not isinstance(select, exp.Select):
        return {}
    names = {name.casefold(): name for name in declared}
    found: dict[str, str] = {}
    for item in select.expressions:
        value = item.this if isinstance(item, exp.Alias) else item
        if "star_end" in item.meta:
            found |= {name: name for name in names.values() if name not in found}
        elif isinstance(value, exp.Column) and isinstance(value.this, exp.Identifier):
            output = names.get(sanitise(item.output_name).casefold())
            if output is not None:
                found[output] = sanitise(value.name)
    return found


def takes_columns_as_they_are(statement: CreateTableAs) -> bool:
    """Whether declared columns of the table are columns of its only input: each is one, or comes by `*`."""
    if why_not_by_row(statement) is not None:
        return False
    names = [item.output_name for item in statement.query.tree.expressions]
    return len(plain_columns(statement, names)) == len(names)


def own_spelling(keys: Sequence[str], tree: exp.Expr | None, declared: Sequence[str]) -> tuple[str, ...]:
    """The keys as the result's columns are spelled. What comes by `*` is not known here, and stays as written.

    A declared name is the column's name, also where it renames: declared names none of which is in the select list
    count by place.
    """
    names = _item_names(tree)
    spelled = {name.casefold(): name for name in names if name}
    own = {name.casefold(): name for name in declared}
    if len(declared) == len(names) and not own.keys() & spelled.keys():
        spelled = {name.casefold(): new for name, new in zip(names, declared, strict=True) if name}
    return tuple((spelled | own).get(key.casefold(), key) for key in keys)


def property_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The key columns that 'primary.key' names."""
    return tuple(
        sanitise(key.strip().strip("`")) for key in properties.get("primary.key", "").split(",") if key.strip()
    )


def with_properties(
    statement: CreateTableAs | CreateTable, properties: Mapping[str, str]
) -> CreateTableAs | CreateTable:
    """The statement with other properties; its key follows 'primary.key' where the statement marks none itself."""
    tree = statement.query.tree if isinstance(statement, CreateTableAs) else None
    items = tree.expressions if isinstance(tree, exp.Select) else []
    marked = any("key_span" in item.meta for item in items) or any(column.primary_key for column in statement.columns)
    keys = statement.keys
    if not marked:
        keys = own_spelling(property_keys(properties), tree, [column.name for column in statement.columns])
    return replace(statement, properties=properties, keys=keys)


def _item_names(tree: exp.Expr | None) -> list[str | None]:
    """The names of the select list that names the result: the first one of a set operation. None: not one column."""
    while isinstance(tree, (exp.SetOperation, exp.Subquery)):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        return []
    if any(item.is_star for item in tree.expressions):
        return [None, *(sanitise(item.output_name) for item in tree.expressions if not item.is_star)]
    return [sanitise(item.output_name) for item in tree.expressions]
