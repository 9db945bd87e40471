"""From what was seen in files to the columns of the source.

Columns are told apart by their sanitised name without regard to case, as Spark does. A declared column has its declared
type whatever was seen.

Their order, and their spelling, is a function of the files that are there, not of when they came or of which of them
were sampled: walking the files in the source's order, the columns that each one's head (in JSON: its first record)
shows and no file before it did. Fields that no first record has follow: declared ones as declared, others by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from velo_dagster.sources.contract import Field, Schema
from velo_dagster.sources.errors import SchemaRefused
from velo_dagster.sources.evolution import admitted
from velo_dagster.sources.formats import types
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sources.formats.types import Evidence, join_types
from velo_dagster.sql.names import is_hidden, sanitise

Columns = Mapping[str, Evidence | str | None]
"""Per column as the file calls it: evidence, or the type that the file itself declares."""


def column_names(written: Iterable[str]) -> tuple[str, ...]:
    """The columns' names for the names that one file writes, in its order; what would be equal gets a number.

    >>> column_names(["Order ID", "id", "ID", "order_id"])
    ('Order_ID', 'id', 'ID_2', 'order_id_2')
    """
    taken: set[str] = set()
    names: list[str] = []
    for name in written:
        clean = sanitise(name)
        if is_hidden(clean):
            raise SchemaRefused(
                f"The column name '{name}' begins with _velo_, which is kept for hidden columns.",
                steps=["Give the column another name in the file."],
            )
        candidate, number = clean, 2
        while candidate.lower() in taken:
            candidate, number = f"{clean}_{number}", number + 1
        taken.add(candidate.lower())
        names.append(candidate)
    return tuple(names)


def shown_order(lists: Iterable[tuple[Sequence[str], bool]]) -> tuple[str, ...]:
    """The columns that files show, each where it is shown first. Beside each list: does a head name the columns?

    >>> shown_order([(["id", "Order ID"], True), (["ID", "x"], True)])
    ('id', 'Order_ID', 'x')
    """
    found: dict[str, str] = {}
    for written, by_head in lists:
        for name in column_names(written) if by_head else [column_names([one])[0] for one in written]:
            found.setdefault(name.lower(), name)
    return tuple(found.values())


def arranged(fields: Iterable[Field], shown: Sequence[str], declared: Iterable[str]) -> Schema:
    """The columns in the order, and with the spelling, that the files' own order gives them."""
    spelling = {name.lower(): name for name in shown}
    first = {name: place for place, name in enumerate(spelling)}
    second = {name.lower(): place for place, name in enumerate(declared)}

    def place(field: Field) -> tuple[int, int, str]:
        low = field.name.lower()
        if low in first:
            return 0, first[low], ""
        return (1, second[low], "") if low in second else (2, 0, low)

    return tuple(Field(spelling.get(f.name.lower(), f.name), f.type) for f in sorted(fields, key=place))


def join_all(tables: Iterable[Columns]) -> dict[str, Evidence | str | None]:
    """What several files or parts have, joined by column, in the order of their turning up."""
    spelling: dict[str, str] = {}
    joined: dict[str, Evidence | str | None] = {}
    for table in tables:
        for name, seen in table.items():
            known = spelling.setdefault(name.lower(), name)
            joined[known] = join_seen(joined[known], seen) if known in joined else seen
    return joined


def typed_columns(typed: Sequence[tuple[str, str]]) -> Columns:
    """The columns and types that a file itself declares, by column."""
    return dict(zip(column_names(name for name, _ in typed), (type_ for _, type_ in typed), strict=True))


def by_column(found: Columns) -> dict[str, Evidence | str | None]:
    """Fields that records name themselves, by column: what differs only in case or in refused signs is one column."""
    return join_all({column_names([name])[0]: seen} for name, seen in found.items())


def join_seen(a: Evidence | str | None, b: Evidence | str | None) -> Evidence | str | None:
    """What holds both. A file's own type and evidence from text never meet: one pattern has one format."""
    if isinstance(a, Evidence) and isinstance(b, Evidence):
        return a.join(b)
    return join_types(type_of(a), type_of(b))


WIDEST = "DECIMAL(38,18)"


def make_schema(
    known: Schema,
    seen: Columns,
    declared: Mapping[str, str],
    evolution: str,
    *,
    shown: Sequence[str],
    add_declared: bool,
) -> Schema:
    """The source's columns: `known` joined with what was seen, under the rules of `schema.evolution`.

    `shown` are the columns that files show first, in order. `add_declared` makes declared columns that were not seen
    columns of the source too.
    """
    fixed = {name.lower(): type_ for name, type_ in declared.items() if not _is_bare(type_)}
    bare = {name.lower() for name in declared} - fixed.keys()
    here = {name.lower(): value for name, value in seen.items()}

    def field(name: str, least: str | None) -> Field:
        low = name.lower()
        return Field(name, fixed.get(low) or (_some_decimal(least) if low in bare else least))

    fields = [field(one.name, _widen(one.type, here.get(one.name.lower()))) for one in known]
    had = {one.name.lower() for one in known}
    new = [field(name, type_of(value)) for name, value in seen.items() if name.lower() not in had]
    if known:
        new = list(admitted(tuple(new), (), evolution))
    have = had | {one.name.lower() for one in new}
    extra = [field(name, None) for name in declared if add_declared and name.lower() not in have]
    return arranged((*fields, *new, *extra), shown, declared)


def held_types(declared: Mapping[str, str], schema: Schema) -> dict[str, str]:
    """The types that values are held against: those declared. A bare DECIMAL is whatever holds the values, so it is one
    of them only where some value is no number at all."""
    widest = {field.name.lower() for field in schema if field.type == WIDEST}
    return {
        name: WIDEST if _is_bare(type_) else type_
        for name, type_ in declared.items()
        if not _is_bare(type_) or name.lower() in widest
    }


def _is_bare(type_: str) -> bool:
    return type_.strip().upper() == "DECIMAL"


def _some_decimal(type_: str | None) -> str | None:
    """The type of a column that is declared as a bare DECIMAL: the least that holds its values, if they are numbers."""
    return type_ if type_ is None or type_ in ("BIGINT", "DOUBLE") or type_.startswith("DECIMAL") else WIDEST


def type_of(seen: Evidence | str | None) -> str | None:
    return _storable(seen.type() if isinstance(seen, Evidence) else seen)


def _storable(type_: str | None) -> str | None:
    """The type, or STRING (the value's JSON) where a field within it has a name that no table can carry."""
    return "STRING" if type_ is not None and "STRUCT" in type_ and _has_refused_name(to_arrow(type_)) else type_


def _has_refused_name(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return any(sanitise(field.name) != field.name or _has_refused_name(field.type) for field in type_)
    if pa.types.is_list(type_):
        return _has_refused_name(type_.value_type)
    return pa.types.is_map(type_) and (_has_refused_name(type_.key_type) or _has_refused_name(type_.item_type))


def _widen(known: str | None, seen: Evidence | str | None) -> str | None:
    """The known type, or the least one that may hold both."""
    if not isinstance(seen, Evidence):
        return _storable(join_types(known, seen))
    return _storable(least_evidence(known).join(seen).type())


def least_evidence(type_: str | None) -> Evidence:
    """The least evidence that has this type. Joined with new evidence it gives the least type that *may* hold all.

    Whether it does is known only by reading everything again, which a load does whenever a type changes.

    >>> least_evidence("BIGINT").join(types.number(2, 2)).type()
    'DECIMAL(18,2)'
    """
    return types.NOTHING if type_ is None else _evidence(to_arrow(type_))


def _evidence(type_: pa.DataType) -> Evidence:
    if pa.types.is_decimal128(type_):
        if type_.scale == 0 and type_.precision == types.MOST_DIGITS:
            return types.integer(20, wide=True)
        return types.number(1 if type_.precision == types.SHORT_DIGITS else 19 - type_.scale, type_.scale)
    if pa.types.is_integer(type_):
        return types.integer(1)
    if pa.types.is_floating(type_):
        return types.DOUBLE
    if pa.types.is_boolean(type_):
        return types.BOOLEAN
    if pa.types.is_date(type_):
        return types.ON_DATE
    if pa.types.is_timestamp(type_):
        return types.AT_TIME
    if pa.types.is_struct(type_):
        return types.record({field.name: _evidence(field.type) for field in type_})
    if pa.types.is_list(type_):
        return types.array([_evidence(type_.value_type)])
    return types.TEXT
