"""once: each row of the driving input is joined once, with the other inputs as they are at that load, and appended.

Rows that were joined stay as they are, whatever becomes of the other inputs; so they must be of what is still there. A
driving input that was written anew because a type or the order of its columns changed still has its rows, under the
same identities; if rows went or changed, nothing says what is to become of what was made of them, and the load fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from velo_dagster.engine.columns import check_unique, comparable_rows, output, type_text
from velo_dagster.engine.errors import JoinedOnce
from velo_dagster.engine.inputs import GONE, TableInput, visible
from velo_dagster.engine.missing import filled
from velo_dagster.engine.refresh.full import selected
from velo_dagster.engine.refresh.work import Work, Write, replace_all
from velo_dagster.plan.references import driving_of
from velo_dagster.sources.contract import ID
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

METHOD = "once"
REASON = "only new rows, joined with the other tables as they are"


@dataclass(frozen=True)
class NewRows(TableInput):
    """An input of which only some rows count."""

    rows: DataFrame

    def snapshot(self, spark: SparkSession) -> DataFrame:
        return self.rows


def once(work: Work) -> Write:
    if work.restart:
        rows, made_up = _counted(work, _joined(work, work.inputs))
        check_unique(rows, work.plan)
        return replace(replace_all(work, rows, work.restart), filled=made_up)
    driving = _driving(work)
    new = _new_rows(work, driving)
    only = NewRows(**{one.name: getattr(driving, one.name) for one in fields(TableInput) if one.init}, rows=new)
    rows = _joined(work, [only if one is driving else one for one in work.inputs])
    rows, made_up = _counted(work, rows)
    _check_keys(work, rows)
    held = work.target.snapshot(work.spark)
    types = _common_types(held, rows)
    rows = _cast(rows, types)
    remark = _moved(held, rows)
    if remark:
        both = rows.unionByName(_cast(held, types), allowMissingColumns=True)
        return replace(replace_all(work, both, remark), rows_read=new.count(), filled=made_up)

    def run() -> None:
        rows.write.format("delta").mode("append").save(str(work.target.path))

    return Write(METHOD, REASON, run, new.count(), filled=made_up)


def _counted(work: Work, rows: DataFrame) -> tuple[DataFrame, int]:
    """The rows, and how many of them have made-up columns: all, or none."""
    if not filled(work.inputs):
        return rows, 0
    kept = work.keep(rows)
    return kept, kept.count()


def _joined(work: Work, inputs: Sequence[TableInput]) -> DataFrame:
    return output(selected(replace(work, inputs=inputs)).frame, work.plan.statement)


def _driving(work: Work) -> TableInput:
    planned = driving_of(work.plan)
    return next(one for one in work.inputs if planned is not None and one.name == planned.name)


def _new_rows(work: Work, driving: TableInput) -> DataFrame:
    """What came since the last load; by the rows' identities, where the input was written anew."""
    changes = driving.changes(work.spark, work.keep)
    if changes.rows is not None and not changes.removed:
        return changes.rows
    why = changes.obstacle or f"rows of {driving.label} were changed or removed"
    rows = _by_identity(work.spark, driving)
    if rows is None:
        planned = driving_of(work.plan)
        where = planned.span if planned is not None else None
        raise JoinedOnce(work.plan.name, planned.label if planned else driving.name, why, where, "PATH")
    return rows


def _by_identity(spark: SparkSession, driving: TableInput) -> DataFrame | None:
    """Rows whose identity is new, if all others are there as they were."""
    if driving.since is None or driving.since["id"] != driving.table_id:
        return None
    now = driving.snapshot(spark)
    try:
        before = driving.table.snapshot(spark, driving.since["version"])
        if ID not in now.columns or not set(before.columns) <= set(now.columns):
            return None
        types = {name.casefold(): now.schema[name].dataType for name in before.columns}
        there = comparable_rows(now.select(*map(quote, before.columns)))
        if not comparable_rows(_cast(before, types)).exceptAll(there).isEmpty():
            return None
    except Exception as error:
        if GONE.search(str(error)) is None:
            raise
        return None
    return now.join(before.select(ID), ID, "left_anti").select(*map(quote, now.columns))


def _check_keys(work: Work, rows: DataFrame) -> None:
    """A key of a new row that another has, new or old, fails the load."""
    keys = [quote(key) for key in work.plan.refresh.keys]
    if keys:
        held = work.target.snapshot(work.spark).select(*keys)
        check_unique(held.unionByName(rows.select(*keys)), work.plan)


def _moved(held: DataFrame, rows: DataFrame) -> str:
    """Why new rows can't be put beside those that are there: other columns, other places, other types."""
    before, now = visible(held).schema, visible(rows).schema
    if [field.name for field in before] != [field.name for field in now]:
        return "the columns changed"
    return "; ".join(
        f"column {one.name} became {new.dataType.simpleString().upper()} (was {one.dataType.simpleString().upper()})"
        for one, new in zip(before, now, strict=True)
        if one.dataType != new.dataType
    )


def _common_types(held: DataFrame, rows: DataFrame) -> dict[str, DataType]:
    """By name in lower case, the type that holds old and new values, of columns whose types differ.

    A column that holds only NULLs has no type of its own yet.
    """
    from pyspark.sql import functions as f

    before = {field.name.casefold(): field.dataType for field in visible(held).schema}
    now = {field.name.casefold(): field.dataType for field in visible(rows).schema}
    differing = [name for name in now if name in before and before[name] != now[name]]
    if not differing:
        return {}
    valued = held.agg(*(f.count(f.col(quote(name))).alias(name) for name in differing)).collect()[0].asDict()
    spark = held.sparkSession
    return {name: _common(spark, before[name], now[name]) if valued[name] else now[name] for name in differing}


def _cast(frame: DataFrame, types: Mapping[str, DataType]) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.select(
        *(
            f.col(quote(name)).cast(types[name.casefold()]).alias(name)
            if name.casefold() in types
            else f.col(quote(name))
            for name in frame.columns
        )
    )


def _common(spark: SparkSession, one: DataType, other: DataType) -> DataType:
    """The type that holds values of both: text, if either is one, else what Spark widens both to."""
    from pyspark.sql.types import StringType

    if isinstance(one, StringType) or isinstance(other, StringType):
        return StringType()
    pair = ", ".join(f"CAST(NULL AS {type_text(type_)})" for type_ in (one, other))
    return spark.sql(f"SELECT coalesce({pair}) AS both").schema["both"].dataType
