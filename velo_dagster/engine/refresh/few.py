"""Few keys, as a condition with literals: Delta then reads only the files that can hold them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FEW = 1000
"""More keys than that are not worth being written out."""
_WRITTEN: Mapping[str, str] = {
    "tinyint": "{}Y",
    "smallint": "{}S",
    "int": "{}",
    "bigint": "{}L",
    "boolean": "{}",
    "date": "DATE'{}'",
    "string": "CAST(X'{}' AS STRING)",
    "decimal": "CAST('{}' AS {type})",
}
"""By type, how a value is written whose text is known. Floats are not: some of theirs look different and are equal."""


def only_keys(keys: DataFrame, names: Sequence[str], alias: str, fetched: pa.Table | None = None) -> str:
    """A condition that holds for every row with one of the keys, and perhaps for others; `true` if there is none.

    The keys are the columns `names`, in `keys` as in the rows called `alias`; `fetched`: the rows of `keys`, if they
    are here already.
    """
    types = {name: keys.schema[name].dataType.simpleString() for name in names}
    written = [name for name in names if _kind(types[name]) in _WRITTEN]
    if not written:
        return "true"
    texts = _asked(keys, written, types) if fetched is None else [_texts(fetched[name]) for name in written]
    values = [set(one) for one in texts or ()]
    if texts is None or any(len(one) > FEW for one in values):
        return "true"
    return " AND ".join(
        _one_of(f"{alias}.{quote(name)}", types[name], one) for name, one in zip(written, values, strict=True)
    )


def _asked(keys: DataFrame, written: Sequence[str], types: Mapping[str, str]) -> list[list[str | None]] | None:
    """The keys' texts, column by column, by Spark; None if there are too many."""
    shown = [f"hex({quote(name)})" if types[name] == "string" else f"CAST({quote(name)} AS STRING)" for name in written]
    found = keys.selectExpr(*shown).distinct().limit(FEW + 1).collect()
    return [[row[at] for row in found] for at in range(len(written))] if len(found) <= FEW else None


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """
    >>> import pyarrow as pa
    >>> _texts(pa.chunked_array([["a", None]])), _texts(pa.chunked_array([pa.array([True, None])]))
    (['61', None], ['true', None])
    """
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [None if one is None else one.hex() for one in column.cast(pa.binary()).to_pylist()]
    return column.cast(pa.string()).to_pylist()


def _kind(type_: str) -> str:
    return type_.partition("(")[0]


def _one_of(column: str, type_: str, values: Collection[str | None]) -> str:
    """
    >>> _one_of("t.k", "decimal(5,2)", ["1.50", None])
    "(t.k IN (CAST('1.50' AS decimal(5,2))) OR t.k IS NULL)"
    >>> _one_of("t.k", "int", [])
    'false'
    """
    form = _WRITTEN[_kind(type_)]
    listed = ", ".join(form.format(value, type=type_) for value in sorted(one for one in values if one is not None))
    tests = [f"{column} IN ({listed})"] if listed else []
    if None in values:
        tests.append(f"{column} IS NULL")
    return f"({' OR '.join(tests)})" if tests else "false"
