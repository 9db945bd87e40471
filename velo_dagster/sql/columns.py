"""Which columns of its only input a SELECT takes as they are."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from velo_dagster.sql.names import sanitise
from velo_dagster.sql.statements import CreateTableAs


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
