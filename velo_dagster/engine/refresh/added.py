"""merge of groups: what new rows alone give is put together with what the table holds. See `plan.adding`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from velo_dagster.engine.columns import holds_floats, orderable, output, type_text
from velo_dagster.engine.refresh.apart import Apart
from velo_dagster.engine.refresh.differences import Computed, computed
from velo_dagster.engine.refresh.work import Work
from velo_dagster.plan.adding import Adding, State
from velo_dagster.plan.deltas import Parts
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

TIE = "VELO_A_MEAN_BETWEEN_TWO_NUMBERS"
_NOT_SO = (TIE, "ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE")
"""What ends adding: all rows of the groups together may have an answer nevertheless."""


def added(work: Work, parts: Parts, view: str) -> Computed | None:
    """What the new rows of an input alone give; None if it can't be put together with what the table holds."""
    if parts.adding is None or view not in parts.added:
        return None
    frame = work.spark.sql(parts.added[view])
    return _unless_too_large(work, frame) if _can_be_added(frame.schema, parts.adding) else None


def together(work: Work, apart: Apart, parts: Parts, new: DataFrame, held: DataFrame) -> DataFrame | None:
    """The groups that new rows belong to, as they are now. `held`: these groups as the table has them."""
    adding, names = parts.adding, dict(zip(parts.columns, held.columns, strict=True))
    assert adding is not None
    kept = [one for one in parts.columns if one in new.columns]
    states = {one.column: one for one in adding.states}
    same = [one for one in kept if one not in states and one not in parts.keys]
    new.createOrReplaceTempView("velo_added")
    held.createOrReplaceTempView("velo_held")
    past = [
        f"CAST(NULL AS {type_text(new.schema[one].dataType)}) AS {quote(one)}"
        if one in same
        else f"{quote(names[one])} AS {quote(one)}"
        for one in kept
    ]
    both = f"SELECT {_listed(kept)} FROM velo_added UNION ALL SELECT {', '.join(past)} FROM velo_held"
    once = [_grouped(one, states.get(one), new.schema, key=one in parts.keys) for one in kept]
    grouped = f"SELECT {', '.join(once)} FROM ({both}) GROUP BY {_listed(parts.keys)}"
    means = _means(work, grouped, adding.states, new.schema)
    if means is None:
        return None
    whole = f"SELECT {', '.join(means.get(one, quote(one)) for one in kept)} FROM ({grouped})"
    items = {name: text for name, text in adding.items if text is not None}
    shown = ", ".join(f"{items.get(one, f'c.{quote(one)}')} AS {quote(one)}" for one in parts.columns)
    rows = output(apart.named(work.spark.sql(f"SELECT {shown} FROM ({whole}) c")), work.plan.statement)
    made = _unless_too_large(work, rows)
    return None if made is None else made[0]


def _unless_too_large(work: Work, frame: DataFrame) -> Computed | None:
    """The frame, computed; None if some of its numbers have no answer, or none that is certain, so far."""
    try:
        found, few = computed(work, frame)
        if few is None:
            found.count()
    except Exception as error:
        if not any(word in str(error) for word in _NOT_SO):
            raise
        return None
    return found, few


def _grouped(column: str, state: State | None, schema: StructType, *, key: bool) -> str:
    if key:
        return quote(column)
    if state is None or state.rule == "mean":
        return f"first({quote(column)}, true) AS {quote(column)}"
    type_ = type_text(schema[column].dataType)
    return f"CAST({state.rule}({quote(column)}) AS {type_}) AS {quote(column)}"


def _means(work: Work, grouped: str, states: Sequence[State], schema: StructType) -> Mapping[str, str] | None:
    """AVG of decimals, by column: Spark divides with more digits than it keeps, and rounds once more. That is the same
    unless the first rounding ends between two numbers; and None where it keeps less than AVG does."""
    found = {}
    for state in states:
        if state.rule != "mean":
            continue
        total, count = (quote(one) for one in state.of)
        quotient = f"({total} / nullif({count}, 0))"
        kept = schema[state.column].dataType
        divided = work.spark.sql(f"SELECT {quotient} FROM ({grouped})").schema[0].dataType
        if divided.scale < kept.scale:  # pyright: ignore[reportAttributeAccessIssue] - both are decimals
            return None
        rounded = f"CAST({quotient} AS {kept.simpleString()})"
        half = f"CAST('5E-{kept.scale + 1}' AS DECIMAL(38,{kept.scale + 1}))"  # pyright: ignore[reportAttributeAccessIssue]
        tie = f"abs({quotient} - {rounded}) = {half}"
        found[state.column] = f"IF({tie}, raise_error('{TIE}'), {rounded}) AS {quote(state.column)}"
    return found


def _can_be_added(schema: StructType, adding: Adding) -> bool:
    return all(_fits(schema[one.column].dataType, one) for one in adding.states)


def _fits(type_: DataType, state: State) -> bool:
    from pyspark.sql.types import DecimalType, DoubleType, LongType

    if state.rule == "mean":
        return isinstance(type_, DecimalType)
    if state.rule == "sum":
        return isinstance(type_, LongType | DecimalType) or (state.floats and isinstance(type_, DoubleType))
    # Of -0.0 and 0.0, which are equal, MIN and MAX take the one that they meet first.
    return orderable(type_) and not holds_floats(type_)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quote(one) for one in names)
