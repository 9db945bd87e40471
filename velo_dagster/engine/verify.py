"""Does a table equal a full reload of its SELECT? The promise, asked of one table as it stands.

What was delivered is what the table's positions say: that, and not what the sources hold by now, is loaded once more,
in one go, into a folder of its own, and both are compared as multisets. Where a source no longer has what it delivered,
and no landing keeps it, nobody can tell.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from velo_dagster.engine.columns import orderable
from velo_dagster.engine.inputs import TableInput, first_line, visible
from velo_dagster.engine.load import Loader, TableLoad
from velo_dagster.engine.refresh.work import Work
from velo_dagster.engine.session import Session
from velo_dagster.engine.source_load import SOURCE, LoadOptions
from velo_dagster.plan.project import TablePlan
from velo_dagster.sources.contract import Position, Source
from velo_dagster.sources.errors import SourceChanged
from velo_dagster.sql.names import quote
from velo_dagster.store.record import Record
from velo_dagster.store.table import Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

EXAMPLES = 3
FOLDER = "_velo_check_"


class CannotTell(Exception):
    """What was delivered is not to be had any more, or changes while it is read."""


@dataclass(frozen=True)
class Comparison:
    """Rows that the table has too many, and too few, with examples."""

    rows: int
    extra: int
    missing: int
    examples: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.extra and not self.missing


def compare_with_reload(loader: Loader, plan: TablePlan, session: Session, sample: int | None) -> Comparison:
    """Load once more what the table has, and compare; `sample`: only so many keys. `CannotTell` if that can't be."""
    table = loader.warehouse.table(plan.name)
    record = table.record()
    if record is None:
        raise CannotTell(f"{plan.name} was never loaded")
    if not record.ready:
        raise CannotTell("its first load is not complete")
    with _scratch(loader.warehouse) as scratch:
        try:
            _reload(loader, plan, record, session, scratch)
        except SourceChanged as changed:
            raise CannotTell(first_line(changed)) from changed
        held = visible(table.snapshot(session.spark, record.version))
        made = visible(scratch.table(plan.name).snapshot(session.spark))
        if held.columns != made.columns:
            raise CannotTell(f"its columns are {', '.join(held.columns)}, a reload gives {', '.join(made.columns)}")
        return _compare(held, made, plan.refresh.keys, sample)


@contextmanager
def _scratch(warehouse: Warehouse) -> Iterator[Warehouse]:
    """A warehouse beside the tables, where whatever engine runs can write."""
    folder = warehouse.root / f"{FOLDER}{uuid.uuid4().hex[:8]}"
    try:
        yield Warehouse(str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reload(loader: Loader, plan: TablePlan, record: Record, session: Session, scratch: Warehouse) -> None:
    load = TableLoad(loader, plan, session, LoadOptions(), [])
    if SOURCE in record.positions:
        job = load.source_load(scratch.table(plan.name), plan.inputs[0], None)
        job = replace(job, rejected=scratch.rejected(plan.name))
        if lost := job.source.lost(record.positions[SOURCE]):
            raise CannotTell(f"{job.source.label} no longer has {', '.join(lost[:EXAMPLES])}")
        _pin(job.source, record.positions[SOURCE])
        job.run(session, LoadOptions())
        return
    inputs = [_at(loader.warehouse, one.name, record.positions) for one in plan.inputs]
    work = Work(plan, scratch.table(plan.name), inputs, session.spark, "a reload to compare with")
    load.write(work).run()


def _pin(source: Source, position: Position) -> None:
    """Let the source end where the table has read to."""

    def end(since: Position | None, max_records: int | None = None, *, wait: bool = True) -> Position:
        return position

    source.end = end  # pyright: ignore[reportAttributeAccessIssue]


def _at(warehouse: Warehouse, name: str, positions: Mapping[str, Any]) -> TableInput:
    """An input as the table has read it."""
    position = positions[name]
    table: Table = warehouse.table(position["table"])
    opened = table.opened()
    if opened is None or str(opened.metadata().id) != position["id"]:
        raise CannotTell(f"{position['table']} is another table than the one that was read")
    return TableInput(name, table, position["load"], position["version"], position["id"], None)


def _compare(held: DataFrame, made: DataFrame, keys: tuple[str, ...], sample: int | None) -> Comparison:
    one, other = _comparable(held), _comparable(made)
    if sample is not None and keys:
        from pyspark.sql import functions as f

        named = [f.col(quote(key)) for key in keys]
        chosen = one.select(*named).union(other.select(*named)).distinct()
        chosen = chosen.orderBy(f.xxhash64(*named)).limit(sample).cache()
        one, other = (side.join(chosen, list(keys), "left_semi") for side in (one, other))
    extra, missing = one.exceptAll(other), other.exceptAll(one)
    examples = [f"too many: {row.asDict()}" for row in extra.limit(EXAMPLES).collect()]
    examples += [f"missing: {row.asDict()}" for row in missing.limit(EXAMPLES).collect()]
    return Comparison(one.count(), extra.count(), missing.count(), tuple(examples))


def _comparable(frame: DataFrame) -> DataFrame:
    """Values that Spark can compare: maps as JSON, and floats to nine digits, since their sums depend on the order."""
    return frame.select(*(_value(frame, field.name, field.dataType) for field in frame.schema))


def _value(frame: DataFrame, name: str, type_: DataType) -> SparkColumn:
    from pyspark.sql import functions as f
    from pyspark.sql.types import DoubleType, FloatType

    column = frame[quote(name)]
    if isinstance(type_, DoubleType | FloatType):
        return f.format_string("%.8e", column).alias(name)
    return column if orderable(type_) else f.to_json(f.struct(column)).alias(name)
