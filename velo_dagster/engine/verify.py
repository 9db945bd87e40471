"""Does a table equal a full reload of its SELECT? The promise, asked of one table as it stands.

What was delivered is what the table's positions say: that, and not what the sources hold by now, is loaded once more,
in one go, into a folder of its own, and both are compared: columns, types, and rows as multisets. Where a source no
longer has what it delivered, and no landing keeps it, nobody can tell.

Values are compared exactly, but for the sign of a zero: sums of floats do not depend on the order of rows here
(`engine.floats`).
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
from velo_dagster.engine.inputs import TableInput, first_line, system_of, visible
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
from velo_dagster.sql.names import quote
from velo_dagster.store.record import Record
from velo_dagster.store.table import Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES = 3
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
        raise CannotTell(f"exempt by choice ({'; '.join(exemptions(loader.warehouse, plan, record))})")
    with _scratch(loader.warehouse) as scratch:
        try:
            _reload(loader, plan, record, session, scratch)
        except SourceError as error:
            # It is no longer what was delivered: rewritten, cut, taken away.
            raise CannotTell(first_line(error).removesuffix(".")) from error
        held = visible(table.snapshot(session.spark, record.version))
        made = visible(scratch.table(plan.name).snapshot(session.spark))
        if _columns(held) != _columns(made):
            told = f"its columns are {_columns(held)}, a full reload gives {_columns(made)}"
            return Comparison(held.count(), held.count(), made.count(), (told,), same_columns=False)
        return _compare(held, made, plan.refresh.keys, sample)


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


def _reload(loader: Loader, plan: TablePlan, record: Record, session: Session, scratch: Warehouse) -> None:
    """Load what the record says into the scratch warehouse."""
    load = TableLoad(loader, plan, session, LoadOptions(), [])
    position = position_of(record)
    if position is not None:
        job = load.source_load(scratch.table(plan.name), plan.inputs[0], None)
        job = replace(job, rejected=scratch.rejected(plan.name))
        if lost := job.source.lost(position):
            raise CannotTell(f"{job.source.label} no longer has {', '.join(lost[:EXAMPLES])}")
        _pin(job.source, position)
        job.run(session, LoadOptions())
        return
    inputs = [_at(loader.warehouse, one, record.positions) for one in plan.inputs]
    work = Work(plan, scratch.table(plan.name), inputs, session.spark, "a reload to compare with")
    in_either_form(lambda wide: work.target.commit(work.spark, record, load.write(replace(work, wide=wide)).run))


def _pin(source: Source, position: Position) -> None:
    """Let the source end where the table has read to."""

    def end(since: Position | None, max_records: int | None = None, *, wait: bool = True) -> Position:
        return position

    source.end = end  # pyright: ignore[reportAttributeAccessIssue]


def _at(warehouse: Warehouse, planned: PlannedInput, positions: Mapping[str, Any]) -> TableInput:
    """An input as the table has read it."""
    position = positions[planned.name]
    table: Table = warehouse.table(position["table"])
    if not position["id"]:
        return MissingInput.at_nothing(planned, table, None, missing_of(planned), position["columns"])
    opened = table.opened()
    if opened is None or str(opened.metadata().id) != position["id"]:
        if planned.kind == "source":
            raise CannotTell(f"what was read from {planned.label} is no longer there")
        raise CannotTell(f"{planned.label} is another table than the one that was read")
    load, version, system = position["load"], position["version"], system_of(planned, table.record())
    return TableInput(planned.name, planned.label, table, load, version, position["id"], None, system)


def _compare(held: DataFrame, made: DataFrame, keys: tuple[str, ...], sample: int | None) -> Comparison:
    one, other = comparable_rows(held), comparable_rows(made)
    if sample is not None and keys:
        one, other = _sampled(one, other, keys, sample)
    extra, missing = one.exceptAll(other), other.exceptAll(one)
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
