"""Whether a query's result depends on the order of its inputs' columns, not only on their names."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from velo_dagster.sql.statements import Query


def follows_column_order(query: Query) -> bool:
    """Whether `*` (but for `count(*)`), TABLE t, a step with |>, or an alias that renames by place stands in it."""
    if any(token.token_type == TokenType.PIPE_GT for token in query.tokens):
        return True
    return any(_by_order(node) for node in query.tree.walk())


def _by_order(node: exp.Expr) -> bool:
    if isinstance(node, exp.Star):
        return not isinstance(node.parent, exp.Count)
    if isinstance(node, exp.TableAlias):
        return bool(node.columns)
    return "table_query" in node.meta
