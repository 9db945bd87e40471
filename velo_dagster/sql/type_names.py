"""The names of types, in SQL and for Spark."""

from __future__ import annotations

from velo_dagster.sql.problems import nearest

SIMPLE = {
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "VARCHAR": "STRING",
    "CHAR": "STRING",
    "TEXT": "STRING",
    "BOOLEAN": "BOOLEAN",
    "BOOL": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
    "BYTES": "BINARY",
    "BINARY": "BINARY",
}


def spark_type(word: str) -> str | None:
    """Spark's name for a type of one word, if it is one.

    >>> spark_type("integer"), spark_type("amount")
    ('INT', None)
    """
    return SIMPLE.get(word.upper())


def similar_types(word: str) -> tuple[str, ...]:
    """A step that names the type most like a word that is none.

    >>> similar_types("BIGNIT"), similar_types("wombat")
    (('Did you mean BIGINT?',), ())
    """
    near = nearest(word.upper(), [*SIMPLE, "DECIMAL", "NUMERIC", "ARRAY", "MAP", "STRUCT"])
    return (f"Did you mean {near[0]}?",) if near else ()
