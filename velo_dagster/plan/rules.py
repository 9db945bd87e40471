"""Rules about a table and what it reads. One rule, one function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from velo_dagster.errors import Span
from velo_dagster.plan.columns import Columns, unknown_columns
from velo_dagster.plan.event_time import KEYS, own_event_properties
from velo_dagster.plan.inputs import (
    ADDED_KINDS,
    REFERENCE_KEYS,
    SCHEMES,
    TABLE_PROPERTIES,
    PlannedInput,
    added_kinds,
    names_reference,
    prefixes,
)
from velo_dagster.plan.property_places import find_property, written_properties
from velo_dagster.plan.references import declared_types, reference_problems
from velo_dagster.sql import uris
from velo_dagster.sql.problems import Problem, error, nearest, warning
from velo_dagster.sql.properties import SOURCES, BadProperty, property_kind, resolve
from velo_dagster.sql.render import place
from velo_dagster.sql.statements import CreateTable, CreateTableAs, Statement
from velo_dagster.sql.variables import has_variables

if TYPE_CHECKING:
    from velo_dagster.plan.project import TablePlan

_Group = tuple[str, Mapping[str, str], str | None, Span]
"""Properties of one kind, whose they are, and where to tell of one that no statement writes."""


_DATABASES = {"postgres", "mysql", "clickhouse"}
"""Kinds that one reader serves: that of databases."""


def known_kinds(plan: TablePlan) -> Iterator[Problem]:
    """A URI names a kind of source that exists. What comes from the environment is looked at in a load."""
    for planned in plan.inputs:
        kind = planned.source_type
        if kind is None or "$" in kind or kind in {*SCHEMES, *SCHEMES.values(), *SOURCES}:
            continue
        if ":" not in (planned.uri or "") and "${" not in (planned.uri or ""):
            message = f"'{planned.label}' is not a URI: it does not begin with a kind of source."
            yield error("E306", message, planned.span, f"For a file, write file://{planned.label}.")
            continue
        added = added_kinds()
        if kind not in added:
            near = nearest(kind, [*SCHEMES, *added])
            hint = f" Did you mean '{near[0]}'?" if near else ""
            step = f"Kinds are {', '.join([*SCHEMES, *added])}; packages add kinds by the entry point group "
            yield error("E306", f"'{kind}' is not a kind of source.{hint}", planned.span, f"{step}'{ADDED_KINDS}'.")


def kinds_of_later(plan: TablePlan) -> Iterator[Problem]:
    """Kinds that the language knows and no source reads yet: better told now than by the first load."""
    for planned in plan.inputs:
        kind = "database" if planned.source_type in _DATABASES else planned.source_type
        if kind == "file" or kind not in {*SCHEMES.values(), *SOURCES}:
            continue
        # Looking for packages that add kinds takes milliseconds: only where there is something to look for.
        readable = ["file", *added_kinds()]
        if kind not in readable:
            kinds = f"'{planned.label}': sources of kind '{kind}'"
            message = f"{kinds} are not supported yet; a load of table '{plan.name}' will end with E306."
            yield warning("W115", message, planned.span, f"This version reads: {', '.join(readable)}.")


def table_and_query(plan: TablePlan) -> Iterator[Problem]:
    """A database source reads a table or a query."""
    for planned in plan.inputs:
        given = {**uris.query_parameters(planned.uri or ""), **planned.properties}
        if planned.kind == "source" and "table" in given and "query" in given:
            message = f"'{planned.label}' is given both a table and a query."
            yield error("E110", message, planned.span, "Keep one of 'table' and 'query'.")


def changes_need_a_key(plan: TablePlan) -> Iterator[Problem]:
    """Changes of a database replace and remove rows: a table of its rows must know which.

    Not concerned are `SELECT *`, which has the database's own key among its columns, and joins and aggregates, which
    keep all of the source's rows; whether the database has a key, or gives whole old rows, is seen by the load.
    """
    if plan.statement.keys or plan.statement.stream or plan.refresh.method != "append":
        return
    if any(item.is_star for item in plan.statement.query.tree.expressions):
        return
    for planned in plan.inputs:
        if reads_changes(planned):
            what = "delivers updates and deletes ('cdc' = 'true'), and no PRIMARY KEY says of which row"
            yield error(
                "E132",
                f"'{planned.label}' {what}.",
                planned.span,
                "Mark the columns that tell rows apart: SELECT id PRIMARY KEY, …",
                "Or leave 'cdc' out: then each load reads the table as it is.",
            )


def reads_changes(planned: PlannedInput) -> bool:
    """Whether the input is a database's log of changes. What comes from the environment is looked at in a load."""
    if planned.kind != "source" or property_kind(planned.source_type) != "database":
        return False
    given = {**uris.query_parameters(planned.uri or ""), **planned.properties}
    return given.get("cdc", "").strip().lower() == "true"


def property_forms(plan: TablePlan) -> Iterator[Problem]:
    """Values have their property's form, and keys are known. What comes from the environment is looked at in a load."""
    sources = [i for i in plan.inputs if i.kind == "source"]
    tables = [i for i in plan.inputs if i.kind == "table"]
    # Those of event times are looked at with the inputs that they speak of.
    own = {key: value for key, value in _own_properties(plan.statement).items() if key not in KEYS}
    own = {key: own[key] for key in own if not any(names_reference(key, table.name) for table in tables)}
    if sources or len(plan.inputs) < len(plan.statement.inputs):
        # Other keys speak to the sources, and are looked at with theirs; or to an input that nothing describes.
        own = {key: value for key, value in own.items() if key in TABLE_PROPERTIES or key.endswith(REFERENCE_KEYS)}
    groups: list[_Group] = [("table", own, None, plan.statement.span)]
    for table in tables:
        given = {key: value for key, value in table.properties.items() if key not in KEYS}
        groups.append(("table", given, table.name, table.span))
    groups += [(property_kind(i.source_type), i.properties, i.name, i.span) for i in sources]
    names = {table.name for table in tables}
    for ref in (one for one in plan.statement.inputs if one.name in names):
        # Of a table's properties only these say something; all kinds of sources have them in the same form.
        groups.append(("file", own_event_properties(ref, plan.statement.properties), ref.name, ref.span))
    yield from _forms(plan.statement, groups)


def own_property_forms(statement: CreateTable) -> Iterator[Problem]:
    """The same for a table that only statements change."""
    yield from _forms(statement, [("table", statement.properties, None, statement.span)])


def _own_properties(statement: CreateTableAs) -> dict[str, str]:
    described = prefixes(statement.properties.items())
    return {k: v for k, v in statement.properties.items() if k.partition(".")[0] not in described}


def _forms(statement: Statement, groups: Iterable[_Group]) -> Iterator[Problem]:
    said: set[tuple[str, str]] = set()
    for kind, given, owner, span in groups:
        for key, value in given.items():
            if has_variables(value) or (key, value) in said:
                continue
            said.add((key, value))
            yield from _property_problems(statement, kind, (key, value), owner, span)


def _property_problems(
    statement: Statement, kind: str, given: tuple[str, str], owner: str | None, span: Span
) -> Iterator[Problem]:
    """What is wrong with one property, told where it is written; one of velo.yaml, where it is used (`span`)."""
    key, value = given
    try:
        warnings, wrong = resolve(kind, {key: value}).warnings, None
    except BadProperty as bad:
        warnings, wrong = (), bad
    if not warnings and wrong is None:
        return
    found = find_property(written_properties(statement), key, value, owner)
    if wrong is not None:
        yield error(wrong.code, wrong.what, found.value_span if found else span, *wrong.steps)
    yield from (warning("W110", text, found.key_span if found else span) for text in warnings)


def table_property_at_relation(plan: TablePlan) -> Iterator[Problem]:
    tables = {planned.name for planned in plan.inputs if planned.kind == "table"}
    for ref in plan.statement.inputs:
        own = set(REFERENCE_KEYS) if ref.name in tables else set()
        for key in sorted(TABLE_PROPERTIES & set(ref.properties) - own):
            message = f"'{key}' is a property of the table, not of '{ref.label}'."
            yield error("E125", message, ref.span, f"Close the statement with WITH ('{key}' = …).")


def insert_only(plan: TablePlan, plans: Mapping[str, TablePlan]) -> bool:
    """Whether the table only ever gets new rows: row by row, without a key, from inputs of the same sort."""
    if plan.refresh.method != "append":
        return False
    if any(reads_changes(i) for i in plan.inputs):
        return False
    upstream = [plans.get((i.table or "").casefold()) for i in plan.inputs if i.kind == "table"]
    return all(u is not None and u is not plan and insert_only(u, plans) for u in upstream)


def stream_is_insert_only(plan: TablePlan, plans: Mapping[str, TablePlan], circular: bool) -> Iterator[Problem]:
    if not plan.statement.stream or plan.statement.keys or circular or insert_only(plan, plans):
        return
    why = plan.refresh.reason if plan.refresh.method != "append" else "an input of it replaces or removes rows"
    message = f"A stream only ever gets new rows, but here {why}."
    yield error("E116", message, plan.statement.span, "Write CREATE TABLE.")


def _is_stream(planned: PlannedInput, plans: Mapping[str, TablePlan]) -> bool:
    if planned.kind == "source":
        return planned.source_type == "kafka"
    upstream = plans.get((planned.table or "").casefold())
    return upstream is not None and upstream.statement.stream


def join_of_streams(plan: TablePlan, plans: Mapping[str, TablePlan]) -> Iterator[Problem]:
    """Two streams joined without a bound in time keep all of their history."""
    streams = {i.name for i in plan.inputs if _is_stream(i, plans)}
    query = plan.statement.query
    for select in query.tree.find_all(exp.Select):
        joins: Sequence[exp.Join] = select.args.get("joins") or ()
        from_ = select.args.get("from_")
        if from_ is None or "time_window" in select.meta:
            continue
        before = from_.this.meta.get("input") in streams
        for join in joins:
            is_stream = join.this.meta.get("input") in streams
            if before and is_stream and "within" not in join.meta:
                where = place(query, join.this.meta["name_span"][0])
                message = "Two streams are joined without a bound in time: all of both is kept."
                yield warning("W102", message, where, "Add WITHIN 5m after the ON condition, or a WINDOW.")
            before = before or is_stream


def references(plan: TablePlan, plans: Mapping[str, TablePlan]) -> Iterator[Problem]:
    """What a statement says about tables that may be missing, and about when rows are joined, can be done."""
    names = {(one.table or "").casefold() for one in plan.inputs} & plans.keys()
    declared = {name: declared_types(plans[name].statement) for name in names}
    yield from reference_problems(plan, sum(_is_stream(one, plans) for one in plan.inputs) > 1, declared)


def checks_read_tables(plan: TablePlan, names: Sequence[str]) -> Iterator[Problem]:
    """A check reads tables of the project, or the rejected rows of one."""
    known = {name.casefold() for name in names}
    for check in plan.annotations.checks:
        for ref in check.query.inputs:
            if ref.name.casefold().removesuffix("__rejected") not in known:
                near = nearest(ref.name, names)
                hint = [f"Did you mean {' or '.join(near)}?"] if near else []
                message = f"There is no table '{ref.name}', which the check '{check.name}' reads."
                yield error("E113", message, ref.span, *hint, f"Tables are {', '.join(sorted(names))}.")


def check_columns(plan: TablePlan, columns: Columns) -> Iterator[Problem]:
    """What a check names is there: it would fail at each of its runs."""
    for check in plan.annotations.checks:
        yield from unknown_columns(check.query, columns)
