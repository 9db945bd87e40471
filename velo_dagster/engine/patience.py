"""How long a load waits for tables that its statement reads, as the closing WITH says; not at all by default."""

from __future__ import annotations

import os

from velo_dagster.sources.retry import RetryPolicy, policy_of
from velo_dagster.sql.properties import resolve
from velo_dagster.sql.statements import CreateTableAs
from velo_dagster.sql.variables import resolve_all

_KEYS = ("wait.timeout", "retry.")


def patience_of(statement: CreateTableAs) -> RetryPolicy:
    """The policy of `wait.timeout` and `retry.*`."""
    asked = {k: v for k, v in statement.properties.items() if k.startswith(_KEYS)}
    given = resolve_all(asked, os.environ, statement.span)
    # They are the same for every kind of source.
    policy, _ = policy_of(resolve("file", given, where=statement.span).values)
    return policy
