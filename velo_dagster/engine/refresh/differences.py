"""Write what is different between rows as they should be and rows as the table holds them, in one commit.

Tables are bags: equal rows may be there several times, and deleting one of them by its value deletes all. So rows are
counted; where the counts differ, all copies go, and as many come as there should be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from velo_dagster.engine.columns import check_unique, exact_text, holds_floats, orderable, same_value, type_text
from velo_dagster.engine.fetched import FEW, fetched, given
from velo_dagster.engine.refresh.few import only_keys
from velo_dagster.engine.refresh.work import Work, Write
from velo_dagster.sql.names import quote
from velo_dagster.store.few_rows import FewRows, no_rows
from velo_dagster.store.places import Places, placed, still_there
from velo_dagster.store.values import row_values

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OP = "_velo_op"
Computed: TypeAlias = "tuple[DataFrame, pa.Table | None]"
"""A frame that is computed no more than once, and its rows, if they are few."""
NOT_MANY = 100_000
"""So many rows of a large table are still changed sooner here than by Spark, which reads and joins all of it twice."""
REASON = "parts of it that changed"


@dataclass(frozen=True)
class HeldRows:
    """Rows that the table holds. If they can only be taken away by their places: the same with these (`placed`), as
    of a version."""

    frame: DataFrame
    placed: DataFrame | None
    version: int | None

    def fetched(self, work: Work) -> tuple[pa.Table, Places | None] | None:
        """The rows, if they are few, and where they are."""
        if self.placed is None or self.version is None:
            few = fetched(self.frame)
            return None if few is None else (few, None)
        few = fetched(self.placed, NOT_MANY)
        return None if few is None else still_there(few, work.target.path, self.version)


@dataclass(frozen=True)
class How:
    """By which method it is known what rows there should be."""

    method: str = "groups"
    reason: str = REASON


def write_differences(
    work: Work,
    *,
    rows: DataFrame,
    held: HeldRows,
    keys: Sequence[str],
    unique: bool,
    rows_read: int,
    how: How = How(),  # noqa: B008 - it is frozen
) -> Write:
    """`rows` and `held` are all rows of some parts, which `keys` tell apart; `unique`: a part is one row."""
    told = unique and {key.casefold() for key in work.plan.refresh.keys} == {name.casefold() for name in keys}
    if told or not work.plan.refresh.keys:
        few = _of_few(work, rows, held, keys if unique else (), rows_read, how)
        if few is not None:
            return few
    rows.createOrReplaceTempView("velo_should")
    held.frame.createOrReplaceTempView("velo_held")
    bits = not unique and all(orderable(one.dataType) for one in rows.schema)
    if unique:
        changes, on = _of_single_rows(rows, keys), keys
    elif bits:
        changes, on = _of_bags(rows), rows.columns
    else:
        changes, on = _of_whole_parts(rows, keys), keys
    found = work.keep(work.spark.sql(changes))
    if found.isEmpty():
        return write_nothing(work, how.method, rows_read)
    if not told:
        _check_key(work, found, on)
    found.createOrReplaceTempView("velo_changes")
    known = only_keys(found, keys, "t")
    return Write(how.method, how.reason, lambda: work.spark.sql(_merge(work, rows, on, known, bits=bits)), rows_read)


def holding(work: Work, rows: DataFrame, touched: DataFrame, keys: Sequence[str], known: str) -> DataFrame:
    """Those rows whose key was touched; `known`: what is known of all of them, of rows called r."""
    rows.createOrReplaceTempView("velo_all")
    touched.createOrReplaceTempView("velo_touched")
    match = " AND ".join(f"r.{quote(key)} <=> k.{quote(key)}" for key in keys)
    return work.spark.sql(f"SELECT r.* FROM velo_all r LEFT SEMI JOIN velo_touched k ON {match} WHERE {known}")


def held_with(work: Work, keys: Sequence[str], touched: DataFrame, few: pa.Table | None) -> HeldRows:
    """What the table holds of parts whose keys were touched; `few`: the same keys, if they are here."""
    known = only_keys(touched, keys, "r", few)
    everything = work.target.snapshot(work.spark, work.version)
    frame = holding(work, everything, touched, keys, known)
    if not work.target.needs_places(work.small):
        return HeldRows(frame, None, None)
    asked = None if few is None else few.rename_columns(list(keys))
    files = placed(work.spark, work.target.path, work.version, everything.schema, asked)
    return HeldRows(frame, holding(work, files, touched, keys, known), work.version)


def computed(work: Work, frame: DataFrame) -> Computed:
    """The frame, computed once: few rows are here from now on, more are kept by Spark."""
    few = fetched(frame)
    return (work.keep(frame), None) if few is None else (given(frame, few), few)


def _of_few(
    work: Work, rows: DataFrame, held: HeldRows, unique_by: Sequence[str], rows_read: int, how: How
) -> Write | None:
    """The same, with rows that are few and compared here; None if they are not. `unique_by`: a row's own key."""
    should = fetched(rows, NOT_MANY if held.placed is not None else FEW) if work.target.takes_few_rows() else None
    there = held.fetched(work) if should is not None else None
    if should is None or there is None:
        return None
    try:
        few = few_differences(should, *there, unique_by, work.codec)
    except UnicodeDecodeError:
        # Bytes that were cast to text and are none: Spark compares them.
        return None
    if not few.came.num_rows and few.gone is not None and not few.gone.num_rows:
        return write_nothing(work, how.method, rows_read)
    return Write(how.method, how.reason, few, rows_read)


def few_differences(
    should: pa.Table, there: pa.Table, places: Places | None, unique_by: Sequence[str], codec: str
) -> FewRows:
    """What makes rows that are there the rows that should be. Where a row is there more or less often, all copies go,
    and as many come as there should be. `places`: where rows are that are there.

    >>> import pyarrow as pa
    >>> few = few_differences(pa.table({"x": [1, 2, 2]}), pa.table({"x": [2, 3, 1]}), None, (), "snappy")
    >>> few.came.to_pydict(), few.gone.to_pydict(), few.came_as, few.gone_as
    ({'x': [2, 2]}, {'x': [2, 3]}, ['insert', 'insert'], ['delete', 'delete'])
    >>> one, other = pa.table({"k": [1, 2], "v": [5, 6]}), pa.table({"k": [1, 3], "v": [4, 6]})
    >>> few = few_differences(one, other, None, ("k",), "snappy")
    >>> few.came_as, few.gone_as
    (['update_postimage', 'insert'], ['update_preimage', 'delete'])
    """
    import pyarrow as pa

    there = there.select(should.column_names)
    rows = [list(row_values(one)) for one in (should, there)]
    counts = [Counter(one) for one in rows]
    other = {row for row in {*counts[0], *counts[1]} if counts[0][row] != counts[1][row]}
    taken = [[n for n, row in enumerate(one) if row in other] for one in rows]
    came, gone = (one.take(pa.array(some, pa.int64())) for one, some in zip((should, there), taken, strict=True))
    keys = [set(row_values(one.select(unique_by))) if unique_by else set() for one in (came, gone)]
    came_as, gone_as = (
        [after if key in others else before for key in row_values(one.select(unique_by))]
        for one, others, before, after in (
            (came, keys[1], "insert", "update_postimage"),
            (gone, keys[0], "delete", "update_preimage"),
        )
    )
    at = None if places is None else places.of(taken[1])
    return FewRows(came, gone, came_as, gone_as, codec=codec, places=at)


def types(frame: DataFrame) -> Sequence[tuple[str, str]]:
    return [(one.name, one.dataType.simpleString()) for one in frame.schema]


def _of_single_rows(rows: DataFrame, keys: Sequence[str]) -> str:
    match = " AND ".join(f"n.{quote(key)} <=> h.{quote(key)}" for key in keys)
    same = " AND ".join(same_value(f"n.{quote(one.name)}", f"h.{quote(one.name)}", one.dataType) for one in rows.schema)
    new = ", ".join(f"n.{quote(name)}" for name in rows.columns)
    gone = ", ".join(f"h.{quote(name)}" for name in rows.columns)
    return (
        f"SELECT CASE WHEN h._velo_there IS NULL THEN 'i' ELSE 'u' END AS {OP}, {new} "
        f"FROM velo_should n LEFT JOIN (SELECT *, true AS _velo_there FROM velo_held) h ON {match} "
        f"WHERE h._velo_there IS NULL OR NOT ({same}) UNION ALL "
        f"SELECT 'd' AS {OP}, {gone} FROM velo_held h LEFT ANTI JOIN velo_should n ON {match}"
    )


def _of_bags(rows: DataFrame) -> str:
    names = ", ".join(quote(name) for name in rows.columns)
    # Of a group, Spark shows 0.0 where there is -0.0: floats are told apart by their texts, too.
    floats = {one.name: exact_text(quote(one.name), one.dataType) for one in rows.schema if holds_floats(one.dataType)}
    shown = ", ".join(
        f"any_value({quote(name)}) AS {quote(name)}" if name in floats else quote(name) for name in rows.columns
    )
    told_apart = ", ".join([names, *floats.values()])
    counted = (
        f"SELECT {shown}, count(*) - sum(_velo_new) AS _velo_had, sum(_velo_new) AS _velo_has FROM ("
        f"SELECT {names}, 1 AS _velo_new FROM velo_should UNION ALL SELECT {names}, 0 FROM velo_held) "
        f"GROUP BY {told_apart}"
    )
    return (
        f"SELECT {OP}, {names} FROM ({counted}) LATERAL VIEW explode(concat("
        "if(_velo_had > 0, array('d'), array()), array_repeat('i', CAST(_velo_has AS INT)))) o AS "
        f"{OP} WHERE _velo_had <> _velo_has"
    )


def _of_whole_parts(rows: DataFrame, keys: Sequence[str]) -> str:
    """Where rows can't be compared: all of a part goes, and comes again."""
    names = ", ".join(quote(name) for name in rows.columns)
    gone = ", ".join(
        quote(name) if name in keys else f"CAST(NULL AS {type_text(rows.schema[name].dataType)}) AS {quote(name)}"
        for name in rows.columns
    )
    listed = ", ".join(quote(key) for key in keys)
    return (
        f"SELECT 'i' AS {OP}, {names} FROM velo_should UNION ALL "
        f"SELECT 'd' AS {OP}, {gone} FROM (SELECT DISTINCT {listed} FROM velo_held)"
    )


def _merge(work: Work, rows: DataFrame, on: Sequence[str], known: str, *, bits: bool) -> str:
    """`known`: what is known of all rows that go or change, so that Delta can pass over files without them.

    `bits`: rows are told by the bits of all their values. Keys are equal where Spark says so: one that was -0.0 may
    become 0.0.
    """
    names = rows.columns
    match = " AND ".join(
        same_value(f"t.{quote(name)}", f"s.{quote(name)}", rows.schema[name].dataType)
        if bits
        else f"t.{quote(name)} <=> s.{quote(name)}"
        for name in on
    )
    sets = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in names)
    listed = ", ".join(quote(name) for name in names)
    values = ", ".join(f"s.{quote(name)}" for name in names)
    return (
        f"MERGE INTO delta.`{work.target.path}` t USING velo_changes s ON {known} AND s.{OP} <> 'i' AND {match} "
        f"WHEN MATCHED AND s.{OP} = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND s.{OP} = 'i' THEN INSERT ({listed}) VALUES ({values})"
    )


def write_nothing(work: Work, method: str, rows_read: int) -> Write:
    """A commit that says only up to where the inputs were read."""

    def run() -> None:
        empty = work.target.snapshot(work.spark).where("false")
        empty.write.format("delta").mode("append").save(str(work.target.path))

    quick = work.target.takes_few_rows()
    return Write(method, "nothing in it changed", FewRows(no_rows()) if quick else run, rows_read)


def _check_key(work: Work, changes: DataFrame, on: Sequence[str]) -> None:
    """A key that several rows would share fails the load: rows that come, and rows that stay."""
    keys = work.plan.refresh.keys
    if not keys:
        return
    listed = ", ".join(quote(key) for key in keys)
    changes.createOrReplaceTempView("velo_changes")
    work.target.snapshot(work.spark).createOrReplaceTempView("velo_target")
    same_key = " AND ".join(f"t.{quote(key)} <=> c.{quote(key)}" for key in keys)
    same_row = " AND ".join(
        same_value(f"t.{quote(name)}", f"g.{quote(name)}", changes.schema[name].dataType) for name in on
    )
    after = work.spark.sql(
        f"SELECT {listed} FROM velo_changes WHERE {OP} <> 'd' UNION ALL "
        f"SELECT {listed} FROM velo_target t "
        f"LEFT SEMI JOIN (SELECT {listed} FROM velo_changes WHERE {OP} <> 'd') c ON {same_key} "
        f"LEFT ANTI JOIN (SELECT * FROM velo_changes WHERE {OP} <> 'i') g ON {same_row}"
    )
    check_unique(after, work.plan)
