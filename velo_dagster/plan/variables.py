"""Variables in what a statement says about its own table: used as soon as the table is planned, so resolved here."""

from __future__ import annotations

from collections.abc import Mapping

from velo_dagster.errors import Span
from velo_dagster.plan.inputs import TABLE_PROPERTIES
from velo_dagster.plan.property_places import find_property, written_properties
from velo_dagster.sql.columns import with_properties
from velo_dagster.sql.problems import Problem, error
from velo_dagster.sql.statements import CreateTable, CreateTableAs, Statement
from velo_dagster.sql.variables import MissingVariable, has_variables, resolve


def resolve_table(statement: Statement, environ: Mapping[str, str]) -> tuple[Statement, list[Problem]]:
    """The statement with the variables of its table's properties replaced; a property that can't be is left out."""
    if not isinstance(statement, (CreateTable, CreateTableAs)):
        return statement, []
    asked = {key for key, value in statement.properties.items() if key in TABLE_PROPERTIES and has_variables(value)}
    if not asked:
        return statement, []
    properties, problems = dict(statement.properties), []
    for key in sorted(asked):
        value = properties.pop(key)
        try:
            properties[key] = resolve(key, value, environ)
        except MissingVariable as missing:
            problems.append(told(missing, statement, key, value))
    return with_properties(statement, properties), problems


def told(
    missing: MissingVariable,
    statement: Statement,
    key: str,
    value: str,
    owner: str | None = None,
    span: Span | None = None,
) -> Problem:
    """The problem at the property that asks for the variable; else, where no statement writes it, at `span`."""
    found = find_property(written_properties(statement), key, value, owner)
    where = found.value_span if found else span or statement.span
    return error(missing.code, missing.what, where, *missing.steps)
