"""Does a table equal a full reload of its SELECT? The promise, asked of one table as it stands.

What was delivered is what the table's positions say: that, and not what the sources hold by now, is loaded once more,
in one go, into a folder of its own, and both are compared: columns, types, and rows as multisets. Where a source no
longer has what it delivered, and no landing keeps it, nobody can tell.

Values are compared exactly, but for DOUBLE and FLOAT columns of a SELECT that combines rows: sums of floats depend on
the order of adding. Two such values are the same if they differ by no more than 1e-9 of the greater of them; or, since
terms that cancel out leave only what was rounded off, by no more than 1e-12 of the greatest magnitude in the column,
or in the columns with a point (DOUBLE, FLOAT, DECIMAL) of what the SELECT reads.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from velo_dagster.engine.columns import comparable_rows
from velo_dagster.engine.exempt import exemptions, joins_once
from velo_dagster.engine.floats import in_either_form
from velo_dagster.engine.inputs import TableInput, first_line, visible
from velo_dagster.engine.landings import table_fingerprint
from velo_dagster.engine.load import Loader, TableLoad
from velo_dagster.engine.missing import MissingInput
from velo_dagster.engine.refresh.rows import key_name
from velo_dagster.engine.refresh.work import Work
from velo_dagster.engine.session import Session
from velo_dagster.engine.source_load import LoadOptions, position_of
from velo_dagster.plan.project import PlannedInput, TablePlan
from velo_dagster.plan.references import missing_of
from velo_dagster.sources.contract import Position, Source
from velo_dagster.sources.errors import SourceError
from velo_dagster.sql.functions import AGGREGATES
from velo_dagster.sql.names import quote
from velo_dagster.sql.validate import called
from velo_dagster.store.record import Record
from velo_dagster.store.table import HIDDEN, Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

EXAMPLES = 3
ROUNDED = 1e-9
CANCELLED = 1e-12
PLACE = "_velo_place"
FOLDER = "_velo_check_"


class CannotTell(Exception):
    """What was delivered is not to be had any more, or changes while it is read."""


@dataclass(frozen=True)
class Comparison:
    """Rows that the table has too many, and too few, with examples. With other columns no row is right."""

    rows: int
    extra: int
    missing: int
    examples: tuple[str, ...]
    same_columns: bool = True

    @property
    def equal(self) -> bool:
        return self.same_columns and not self.extra and not self.missing


def compare_with_reload(loader: Loader, plan: TablePlan, session: Session, sample: int | None) -> Comparison:
    """Load once more what the table has, and compare; `sample`: only so many keys. `CannotTell` if that can't be."""
    table = loader.warehouse.table(plan.name)
    record = table.record()
    if record is None:
        raise CannotTell(f"{plan.name} was never loaded")
    if record.fingerprint != table_fingerprint(plan):
        raise CannotTell("the statement changed since the last load")
    if not record.ready:
        raise CannotTell("its first load is not complete")
    if joins_once(plan, record):
        raise CannotTell(f"exempt by choice ({'; '.join(exemptions(plan, record))})")
    with _scratch(loader.warehouse) as scratch:
        try:
            inputs = _reload(loader, plan, record, session, scratch)
        except SourceError as error:
            # It is no longer what was delivered: rewritten, cut, taken away.
            raise CannotTell(first_line(error).removesuffix(".")) from error
        held = visible(table.snapshot(session.spark, record.version))
        made = visible(scratch.table(plan.name).snapshot(session.spark))
        if _columns(held) != _columns(made):
            told = f"its columns are {_columns(held)}, a full reload gives {_columns(made)}"
            return Comparison(held.count(), held.count(), made.count(), (told,), same_columns=False)
        floats = Floats(_rounded_columns(plan, held), [one.snapshot(session.spark) for one in inputs])
        return _compare(held, made, plan.refresh.keys, sample, floats)


def _columns(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in frame.schema)


@contextmanager
def _scratch(warehouse: Warehouse) -> Iterator[Warehouse]:
    """A warehouse beside the tables, where whatever engine runs can write."""
    folder = warehouse.root / f"{FOLDER}{uuid.uuid4().hex[:8]}"
    try:
        yield Warehouse(str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reload(
    loader: Loader, plan: TablePlan, record: Record, session: Session, scratch: Warehouse
) -> Sequence[TableInput]:
    """Load what the record says into the scratch warehouse; what was read, where that was tables or landings."""
    load = TableLoad(loader, plan, session, LoadOptions(), [])
    position = position_of(record)
    if position is not None:
        job = load.source_load(scratch.table(plan.name), plan.inputs[0], None)
        job = replace(job, rejected=scratch.rejected(plan.name))
        if lost := job.source.lost(position):
            raise CannotTell(f"{job.source.label} no longer has {', '.join(lost[:EXAMPLES])}")
        _pin(job.source, position)
        job.run(session, LoadOptions())
        return ()
    inputs = [_at(loader.warehouse, one, record.positions) for one in plan.inputs]
    work = Work(plan, scratch.table(plan.name), inputs, session.spark, "a reload to compare with")
    in_either_form(lambda wide: load.write(replace(work, wide=wide)).run())
    return inputs


def _pin(source: Source, position: Position) -> None:
    """Let the source end where the table has read to."""

    def end(since: Position | None, max_records: int | None = None, *, wait: bool = True) -> Position:
        return position

    source.end = end  # pyright: ignore[reportAttributeAccessIssue]


def _at(warehouse: Warehouse, planned: PlannedInput, positions: Mapping[str, Any]) -> TableInput:
    """An input as the table has read it."""
    name, position = planned.name, positions[planned.name]
    table: Table = warehouse.table(position["table"])
    if not position["id"]:
        return MissingInput.at_nothing(name, table, None, missing_of(planned), position["columns"])
    opened = table.opened()
    if opened is None or str(opened.metadata().id) != position["id"]:
        raise CannotTell(f"{position['table']} is another table than the one that was read")
    return TableInput(name, table, position["load"], position["version"], position["id"], None)


def _compare(held: DataFrame, made: DataFrame, keys: tuple[str, ...], sample: int | None, floats: Floats) -> Comparison:
    one, other = comparable_rows(held), comparable_rows(made)
    if sample is not None and keys:
        one, other = _sampled(one, other, keys, sample)
    extra, missing = one.exceptAll(other), other.exceptAll(one)
    if floats.columns:
        extra, missing = floats.apart(extra.cache(), missing.cache())
    examples = [f"too many: {row.asDict()}" for row in extra.limit(EXAMPLES).collect()]
    examples += [f"missing: {row.asDict()}" for row in missing.limit(EXAMPLES).collect()]
    return Comparison(one.count(), extra.count(), missing.count(), tuple(examples))


def _sampled(one: DataFrame, other: DataFrame, keys: Sequence[str], count: int) -> tuple[DataFrame, DataFrame]:
    """The rows of as many keys of either side. A key may be NULL, in whole or in part."""
    from pyspark.sql import functions as f

    named = [f.col(quote(key)) for key in keys]
    chosen = one.select(*named).union(other.select(*named)).distinct()
    chosen = chosen.orderBy(f.xxhash64(*named)).limit(count).toDF(*map(key_name, range(len(keys)))).cache()

    def within(side: DataFrame) -> DataFrame:
        match = [side[quote(key)].eqNullSafe(chosen[key_name(n)]) for n, key in enumerate(keys)]
        return side.join(chosen, reduce(and_, match), "left_semi")

    return within(one), within(other)


def _rounded_columns(plan: TablePlan, frame: DataFrame) -> tuple[str, ...]:
    """Columns whose values may depend on the order of adding; none where values are only copied from row to row."""
    from pyspark.sql.types import DoubleType, FloatType

    by_row = plan.refresh.method in ("append", "merge")
    if by_row or AGGREGATES.isdisjoint(name for _, name in called(plan.statement.query)):
        return ()
    return tuple(field.name for field in frame.schema if isinstance(field.dataType, DoubleType | FloatType))


@dataclass(frozen=True)
class Floats:
    """Columns in which values may differ by what adding in another order rounds off, and what they were made of."""

    columns: Sequence[str]
    inputs: Sequence[DataFrame]

    def apart(self, extra: DataFrame, missing: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Those rows of either side that have no partner on the other which differs by rounding alone.

        Rows that agree in all other columns are paired in the order of their floats.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        exact = [name for name in extra.columns if name not in self.columns]
        order = Window.partitionBy(*(f.col(quote(name)) for name in exact)).orderBy(
            *(f.col(quote(name)) for name in self.columns)
        )
        one, other = (side.withColumn(PLACE, f.row_number().over(order)) for side in (extra, missing))
        names = {name: f"{HIDDEN}other_{n}" for n, name in enumerate(one.columns)}
        limits = self._limits(extra, missing)

        def unpaired(left: DataFrame, right: DataFrame) -> DataFrame:
            right = right.toDF(*names.values())
            same = [left[quote(name)].eqNullSafe(right[names[name]]) for name in (*exact, PLACE)]
            near = [_near(left[quote(name)], right[names[name]], limits[name]) for name in self.columns]
            return left.join(right, reduce(and_, [*same, *near]), "left_anti").drop(PLACE)

        return unpaired(one, other), unpaired(other, one)

    def _limits(self, extra: DataFrame, missing: DataFrame) -> Mapping[str, float]:
        """By how much values of each column may differ, however small they are."""
        read = max((_magnitude(frame, _with_point(frame)) for frame in self.inputs), default=0.0)
        return {
            name: CANCELLED * max(read, _magnitude(extra, [name]), _magnitude(missing, [name])) for name in self.columns
        }


def _near(one: SparkColumn, other: SparkColumn, limit: float) -> SparkColumn:
    """NaN and the infinities are only what they are."""
    from pyspark.sql import functions as f

    greater = f.greatest(f.abs(one), f.abs(other))
    close = f.abs(one - other) <= f.greatest(greater * ROUNDED, f.lit(limit))
    return one.eqNullSafe(other) | ((greater < f.lit(float("inf"))) & close)


def _with_point(frame: DataFrame) -> list[str]:
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    return [one.name for one in frame.schema if isinstance(one.dataType, DecimalType | DoubleType | FloatType)]


def _magnitude(frame: DataFrame, names: Sequence[str]) -> float:
    """The greatest finite magnitude in these columns."""
    from pyspark.sql import functions as f

    if not names:
        return 0.0
    sizes = (f.abs(f.col(quote(name)).cast("double")) for name in names)
    finite = [f.max(f.when(size < f.lit(float("inf")), size)) for size in sizes]
    return max((found for found in frame.agg(*finite).collect()[0] if found is not None), default=0.0)
