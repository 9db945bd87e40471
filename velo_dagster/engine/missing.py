"""An input that is not there yet, and that the load does without: no rows at no position, or one made-up row.

What columns it has is known if the table is there, if only not ready; else its statement names them, with the types
that it declares. A column whose type nobody knows is one that holds only NULLs: its type is undecided, as it is for a
column of a file without a value. Where the names are not known either, those that the reading statement names are all
that count. Nothing is guessed: where any of this is not enough, the load says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velo_dagster.engine.columns import type_text
from velo_dagster.engine.errors import UnfitDefault, UnknownColumns
from velo_dagster.engine.inputs import TableInput, visible
from velo_dagster.engine.session import Session
from velo_dagster.plan.columns import derive_columns
from velo_dagster.plan.defaults import defaults_place, unfit
from velo_dagster.plan.project import PlannedInput, Project, TablePlan
from velo_dagster.plan.references import Missing, declared_types, missing_of
from velo_dagster.sql.joins import named_columns
from velo_dagster.store.table import Table, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Columns = Mapping[str, str | None]
"""Names, each with its type if that is known."""


@dataclass(frozen=True)
class MissingInput(TableInput):
    """A reference that is not ready."""

    missing: Missing
    columns: Columns

    @staticmethod
    def at_nothing(
        planned: PlannedInput, table: Table, since: Mapping[str, Any] | None, missing: Missing, columns: Columns
    ) -> MissingInput:
        return MissingInput(planned.name, planned.label, table, 0, -1, "", since, (), missing, columns)

    @property
    def position(self) -> dict[str, Any]:
        """Nothing was read; with the columns that it was taken to have, so that it can be taken so again."""
        return super().position | {"columns": dict(self.columns)}

    @property
    def undecided(self) -> bool:
        return None in self.columns.values()

    def gap(self) -> str:
        return f"{self.label} is missing"

    def snapshot(self, spark: SparkSession) -> DataFrame:
        defaults = {name.casefold(): value for name, value in (self.missing.defaults or {}).items()}
        row = spark.range(1).select(*(_value(name, type_, defaults) for name, type_ in self.columns.items()))
        return row if self.missing.fills else row.where("false")


def _value(name: str, type_: str | None, defaults: Mapping[str, Any]) -> Column:
    from pyspark.sql import functions as f

    value = f.lit(defaults.get(name.casefold()))
    return (value if type_ is None else value.cast(type_)).alias(name)


def filled(inputs: Iterable[TableInput]) -> list[str]:
    """The names of those inputs that have one made-up row."""
    return [one.name for one in inputs if isinstance(one, MissingInput) and one.missing.fills]


def missing_input(
    project: Project,
    warehouse: Warehouse,
    session: Session,
    plan: TablePlan,
    planned: PlannedInput,
    missing: Missing,
    since: Mapping[str, Any] | None,
) -> MissingInput:
    """The input as a load takes it that does not wait for it."""
    assert planned.table is not None
    table = warehouse.table(planned.table)
    columns = _held(table, session) or _told(project, table, plan, planned)
    if columns is None:
        raise UnknownColumns(plan.name, planned.table, "no statement names them", planned.span)
    if missing.fills:
        known = {name.casefold() for name in columns}
        columns |= {name: None for name in missing.defaults or {} if name.casefold() not in known}
    return MissingInput.at_nothing(planned, table, since, missing, columns)


def check_defaults(plan: TablePlan, inputs: Iterable[TableInput], session: Session, *, were_filled: bool) -> None:
    """Defaults are values of the columns that they stand for. `were_filled`: rows of earlier loads have some, too, so
    those of references that are there by now must be of their types as well: else a column would change its type."""
    read = {one.name: one for one in inputs}
    for planned in plan.inputs:
        missing, one = missing_of(planned), read[planned.name]
        if not missing.fills or not missing.defaults:
            continue
        if isinstance(one, MissingInput):
            types = one.columns
        elif were_filled:
            types = {field.name: type_text(field.dataType) for field in visible(one.snapshot(session.spark)).schema}
        else:
            continue
        for why in unfit(missing.defaults, types):
            raise UnfitDefault(plan.name, planned.label, why, defaults_place(plan.statement, planned))


def _held(table: Table, session: Session) -> dict[str, str | None] | None:
    """The columns of a table that is there, if only not ready. Otherwise no Spark is needed to tell."""
    if table.opened() is None:
        return None
    return {field.name: type_text(field.dataType) for field in visible(table.snapshot(session.spark)).schema}


def _told(project: Project, table: Table, plan: TablePlan, planned: PlannedInput) -> dict[str, str | None] | None:
    """The columns that statements name: its own, or else the one that reads it."""
    made = [one for one in project.tables if one.name.casefold() == table.name.casefold()]
    types = {name: type_ for one in made for name, type_ in declared_types(one.statement).items()}
    names = derive_columns([one.statement for one in project.tables]).get(table.name.casefold())
    if names is None:
        names = named_columns(plan.statement.query, planned.name)
    return None if names is None else {name: types.get(name.casefold()) for name in names}
