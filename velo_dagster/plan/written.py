"""SQL out of a tree, as Spark reads it."""

from __future__ import annotations

from sqlglot import exp

from velo_dagster.plan.blocks import unwrapped


def sql(node: exp.Expr) -> str:
    """Every name in quotes, so that none is taken for a word of the grammar."""
    return node.sql(dialect="spark", identify=True)


def column_names(block: exp.Expr) -> list[str]:
    while not isinstance(block, exp.Select):
        block = unwrapped(block.this)
    return [item.alias_or_name for item in block.expressions]
