"""`schema.evolution`: what becomes of columns that were not there before."""

from __future__ import annotations

from collections.abc import Collection

from velo_dagster.sources.contract import Schema
from velo_dagster.sources.errors import SchemaRefused


def admitted(schema: Schema, known: Collection[str], evolution: str) -> Schema:
    """Those columns that may be in the table, given the names, in lower case, of those that are."""
    new = [field.name for field in schema if field.name.lower() not in known]
    if evolution == "strict" and new:
        raise SchemaRefused(
            f"New columns turned up, and schema.evolution is strict: {', '.join(new)}.",
            steps=[
                'Take them in: WITH ("schema.evolution" = "evolve").',
                'Or leave them out: WITH ("schema.evolution" = "ignore").',
            ],
        )
    return tuple(field for field in schema if field.name not in new) if evolution == "ignore" else schema
