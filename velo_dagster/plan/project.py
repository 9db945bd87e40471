"""A folder of .sql files (and velo.yaml) → Project: tables in dependency order, or all that is wrong at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from velo_dagster.errors import Span, Terminal, VeloError
from velo_dagster.plan import changing, event_time, rules
from velo_dagster.plan.annotations import Annotations, read_annotations
from velo_dagster.plan.columns import Columns, derive_columns, star_over_join, unknown_columns
from velo_dagster.plan.graph import dependency_order
from velo_dagster.plan.inputs import (
    PlannedInput,
    describe,
    fingerprint,
    own_properties,
    prefixes,
    resolved_fingerprint,
    row_properties,
)
from velo_dagster.plan.references import once_refresh, reference_properties
from velo_dagster.plan.refresh import Refresh, plan_refresh
from velo_dagster.plan.settings import FILE, Settings, read_config, read_settings
from velo_dagster.plan.sound import blocked_tables, errors_in, unreadable_tables
from velo_dagster.plan.stray_comments import stray_annotations, stray_in
from velo_dagster.plan.variables import resolve_table, told
from velo_dagster.sql.names import sanitise
from velo_dagster.sql.parse import loose_comments, parse
from velo_dagster.sql.problems import Problem, error, nearest, sort_problems
from velo_dagster.sql.spark import system_columns
from velo_dagster.sql.statements import CreateTable, CreateTableAs, InputRef, Statement
from velo_dagster.sql.text import declaration
from velo_dagster.sql.uris import is_file_name
from velo_dagster.sql.validate import silenced, validate_statement
from velo_dagster.sql.variables import MissingVariable, resolve


class UnknownTable(Terminal, VeloError):
    """A table was asked for that no statement creates."""

    code = "E113"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        similar = nearest(name, known)
        steps = [f"Did you mean {' or '.join(similar)}?"] if similar else []
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"No statement creates a table '{name}'.", steps=[*steps, f"Tables of this project: {listed}."]
        )


class NoProject(Terminal, VeloError):
    """The path holds no SQL."""

    code = "E142"


@dataclass(frozen=True)
class TablePlan:
    """One table: its statement, its inputs, how it is kept up to date, what its rows depend on, what Dagster shows."""

    name: str
    statement: CreateTableAs
    inputs: tuple[PlannedInput, ...]
    refresh: Refresh
    fingerprint: str
    annotations: Annotations


def resolved_table_fingerprint(plan: TablePlan, environ: Mapping[str, str]) -> str:
    """What the table's rows depend on, what variables stand for included."""
    return " ".join([plan.fingerprint, *(resolved_fingerprint(one, environ) for one in plan.inputs)])


@dataclass(frozen=True)
class Project:
    """All of a project: tables in dependency order, statements that change tables, problems, settings.

    `path` is as the user gave it. `blocked` says by table why it can't be loaded: its statement has an error or can't
    be read (then it is not among `tables`), or that of a table that it needs. `statements`: how many there are, those
    that can't be read included.
    """

    path: Path
    root: Path
    tables: tuple[TablePlan, ...]
    others: tuple[Statement, ...]
    problems: tuple[Problem, ...]
    settings: Settings
    blocked: Mapping[str, str]
    statements: int

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == "error")

    def table(self, name: str) -> TablePlan:
        for table in self.tables:
            if table.name.casefold() == name.casefold():
                return table
        raise UnknownTable(name, [t.name for t in self.tables])

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Tables whose statements can't be read, so that nothing is known of them but the name."""
        planned = {table.name for table in self.tables}
        return tuple(name for name in self.blocked if name not in planned)

    def select(self, names: Iterable[str]) -> tuple[TablePlan, ...]:
        """The named tables in dependency order, but for those whose statements can't be read."""
        unreadable = {name.casefold() for name in self.unreadable}
        chosen = {self.table(name).name for name in names if name.casefold() not in unreadable}
        return tuple(table for table in self.tables if table.name in chosen)


def load_project(path: str | Path, environ: Mapping[str, str] = os.environ) -> Project:
    """Read a folder of any depth, or one file. Raises only if there is nothing to read; all else is in `problems`."""
    path = Path(path)
    files, root = _files(path)
    settings, problems = read_settings(root)
    settings = settings.resolved(environ)
    statements: list[Statement] = []
    found: list[Problem] = list(problems)
    unreadable: list[str] = []
    refused = 0
    allowed: dict[str, frozenset[str]] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as failure:
            message = f"The file is not UTF-8 text (byte {failure.start})."
            found.append(error("E101", message, Span(str(file), 1, 1), "Save it as UTF-8."))
            continue
        except OSError as failure:
            message = f"The file can't be read: {failure.strerror}."
            found.append(error("E101", message, Span(str(file), 1, 1), f"Get the right to read it: chmod u+r {file}"))
            continue
        parsed, wrong = parse(text, str(file))
        found += wrong
        refused += len(wrong)
        for statement in parsed:
            resolved, missing = resolve_table(statement, environ)
            statements.append(resolved)
            found += missing
        unreadable += unreadable_tables(text, str(file), wrong)
        if "--" in text:
            loose = loose_comments(text, str(file))
            allowed[str(file)] = silenced(loose)
            found += stray_annotations(loose)
    if not statements and not any(p.severity == "error" for p in found):
        step = "Write one: CREATE TABLE name AS SELECT …"
        found.append(
            error("E142", "There is no statement, so there is nothing to load.", Span(str(files[0]), 1, 1), step)
        )
    project = _plan(path, root, statements, found, settings, allowed, unreadable, environ)
    return replace(project, statements=len(statements) + refused)


def _files(path: Path) -> tuple[list[Path], Path]:
    if path.is_file():
        if path.suffix.lower() != ".sql":
            raise _not_sql(path)
        return [path], path.parent
    if not path.is_dir():
        raise NoProject(
            f"'{path}' is neither a file nor a folder.", steps=["Give the folder that holds your .sql files."]
        )
    files = sorted(file for file in path.rglob("*.sql") if not _is_private(file.relative_to(path)))
    if not files:
        raise NoProject(f"'{path}' holds no .sql file.", steps=["Write one: CREATE TABLE name AS SELECT …"])
    return files, path


def _not_sql(path: Path) -> NoProject:
    name = sanitise(path.stem) or "name"
    return NoProject(
        f"'{path}' is not a .sql file.",
        steps=[
            "Give the folder that holds your .sql files, or one of them.",
            f"To load this file, write a statement that reads it, into {path.with_suffix('.sql').name}: "
            f"CREATE TABLE {name} AS SELECT * FROM 'file://{path.name}';",
        ],
    )


def _is_private(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _plan(
    path: Path,
    root: Path,
    statements: Sequence[Statement],
    found: list[Problem],
    settings: Settings,
    allowed: Mapping[str, frozenset[str]],
    unreadable: Sequence[str],
    environ: Mapping[str, str],
) -> Project:
    creating = [s for s in statements if isinstance(s, (CreateTableAs, CreateTable))]
    names, twice = _unique(creating, settings)
    found += twice
    missing = {name.casefold(): name for name in unreadable if name.casefold() not in names}
    known = {**missing, **{key: statement.name for key, statement in names.items()}}
    tables: list[TablePlan] = []
    for statement in names.values():
        if isinstance(statement, CreateTableAs):
            inputs, wrong = _inputs(statement, known, settings, root, environ)
            found += wrong
            refresh = once_refresh(statement) or plan_refresh(statement)
            fingerprint = _fingerprint(statement, inputs)
            annotations, wrong = read_annotations(statement)
            found += wrong
            tables.append(TablePlan(statement.name, statement, inputs, refresh, fingerprint, annotations))
            found += rules.checks_read_tables(tables[-1], list(known.values()))
    for statement in statements:
        found += validate_statement(statement)
        found += stray_in(statement)
        if isinstance(statement, CreateTable):
            found += rules.own_property_forms(statement)
    found += _change_problems(statements, list(known.values()), settings, environ)
    reads = {t.name: [i.table for i in t.inputs if i.table] for t in tables}
    order, circles = dependency_order(reads)
    tables = tables if circles else event_time.passed_on(tables, order)
    # What a table is made of decides about it, so one that reads what can't be read is not judged.
    judged = [t for t in tables if not any(name.casefold() in missing for name in reads[t.name])]
    columns = derive_columns(list(names.values()))
    found += _table_problems(tables, judged, columns, settings, circular=bool(circles))
    spans = {t.name: t.statement.span for t in tables}
    found += [_circle(circle, spans[circle[0]]) for circle in circles]
    ordered = sorted(tables, key=lambda t: order.index(t.name))
    others = tuple(s for s in statements if not isinstance(s, CreateTableAs))
    kept = sort_problems(p for p in found if p.severity == "error" or p.code not in allowed.get(p.span.file, ()))
    blocked = blocked_tables(_own_errors(creating, tables, kept, root), reads, missing.values())
    return Project(path, root, tuple(ordered), others, kept, settings, blocked, len(statements))


def _own_errors(
    creating: Sequence[CreateTableAs | CreateTable],
    tables: Sequence[TablePlan],
    problems: Sequence[Problem],
    root: Path,
) -> dict[str, list[Problem]]:
    """By table the errors of the statements that create it; those of velo.yaml count for all."""
    errors = [p for p in problems if p.severity == "error"]
    settings = [p for p in errors if p.span.file == str(root / FILE)]
    return {
        table.name: [
            *settings,
            *(p for s in creating if s.name.casefold() == table.name.casefold() for p in errors_in(s, errors)),
        ]
        for table in tables
    }


def _table_problems(
    tables: Sequence[TablePlan], judged: Sequence[TablePlan], columns: Columns, settings: Settings, *, circular: bool
) -> Iterator[Problem]:
    """What is wrong between a table and what it reads, silenced ones left out."""
    plans = {table.name.casefold(): table for table in tables}
    for table in judged:
        silent = silenced((*table.statement.comments, *table.statement.inner_comments))
        found = [
            *rules.known_kinds(table),
            *rules.kinds_of_later(table),
            *rules.table_and_query(table),
            *rules.changes_need_a_key(table),
            *rules.property_forms(table),
            *rules.table_property_at_relation(table),
            *event_time.window_without_time(table),
            *(() if circular else event_time.final_can_be_kept(table, plans)),
            *event_time.retention_has_a_time(table),
            *event_time.within_has_times(table),
            *event_time.known_time_columns(table, columns),
            *rules.stream_is_insert_only(table, plans, circular),
            *rules.join_of_streams(table, plans),
            *rules.references(table, plans),
            *changing.unknown_sink(table.statement, settings.sources),
            *unknown_columns(table.statement.query, columns),
            *rules.check_columns(table, columns),
            *star_over_join(table.statement, columns),
        ]
        yield from (p for p in found if p.severity == "error" or p.code not in silent)


def _unique(
    creating: Sequence[CreateTableAs | CreateTable], settings: Settings
) -> tuple[dict[str, CreateTableAs | CreateTable], list[Problem]]:
    names: dict[str, CreateTableAs | CreateTable] = {}
    problems: list[Problem] = []
    sources = {name.casefold() for name in settings.sources}
    for statement in creating:
        key = statement.name.casefold()
        if key in names:
            message = f"The table '{statement.name}' is created twice; first at {names[key].span}."
            problems.append(error("E118", message, statement.span, "Give one of them another name."))
        elif key in sources:
            message = f"'{statement.name}' is also a source in velo.yaml."
            problems.append(error("E118", message, statement.span, "Give one of them another name."))
        names.setdefault(key, statement)
    return names, problems


def _inputs(
    statement: CreateTableAs,
    names: Mapping[str, str],
    settings: Settings,
    root: Path,
    environ: Mapping[str, str],
) -> tuple[tuple[PlannedInput, ...], list[Problem]]:
    """What the statement reads; `names`: the project's tables, by name in lower case."""
    planned: list[PlannedInput] = []
    problems: list[Problem] = []
    asked = system_columns(statement.query)
    for ref in statement.inputs:
        table = None if ref.uri else names.get(ref.name.casefold())
        if table is not None:
            given = {
                **event_time.own_event_properties(ref, statement.properties),
                **reference_properties(ref, statement),
            }
            planned.append(PlannedInput(ref.name, "table", table, None, None, given, ref.name, ref.span, (), table))
            continue
        config, wrong = _config(ref, statement, root, environ)
        problems += wrong
        source = describe(ref, statement.properties, settings.sources, settings.defaults, asked, config, environ)
        if source is not None:
            planned.append(event_time.with_places(source, statement))
        else:
            problems.append(_unknown(ref, list(names.values()), settings))
    return tuple(planned), problems


def _config(
    ref: InputRef, statement: CreateTableAs, root: Path, environ: Mapping[str, str]
) -> tuple[dict[str, str], list[Problem]]:
    written = own_properties(ref, statement.properties).get("config_file")
    if written is None:
        return {}, []
    try:
        return read_config(root / resolve("config_file", written, environ)), []
    except MissingVariable as missing:
        return {}, [told(missing, statement, "config_file", written, ref.name, ref.span)]
    except (OSError, ValueError, yaml.YAMLError) as failure:
        message = f"The config_file '{written}' of '{ref.label}' cannot be read: {failure}."
        return {}, [error("E124", message, ref.span, "The path counts from the project's root folder.")]


def _change_problems(
    statements: Sequence[Statement], tables: Sequence[str], settings: Settings, environ: Mapping[str, str]
) -> Iterator[Problem]:
    """What is named by statements that change tables, and is not there."""
    folded = {name.casefold() for name in tables}
    for change in changing.changes(statements):
        yield from changing.unknown_target(change, tables)
        closing = change.properties if isinstance(change, changing.Insert) else {}
        for ref in changing.inputs_of(change):
            if ref.uri is not None or ref.name.casefold() in folded:
                continue
            if describe(ref, closing, settings.sources, settings.defaults, (), {}, environ) is None:
                yield _unknown(ref, tables, settings)


def _unknown(ref: InputRef, tables: Sequence[str], settings: Settings) -> Problem:
    known = [*tables, *settings.sources]
    similar = nearest(ref.name, known)
    steps = [f"Did you mean {' or '.join(similar)}?"] if similar else []
    if is_file_name(ref.name):
        step = f"For a file, write 'file://{ref.name}'."
        return error("E113", f"There is no table or source '{ref.name}'.", ref.span, *steps, step)
    steps += [
        f"Tables and sources of this project: {', '.join(sorted(known)) or 'none'}.",
        "A file is named by its URI: FROM file:///data/a.csv",
        f"Or describe the source: WITH ('{ref.name}.type' = 'file_source', '{ref.name}.path' = 'data/a.csv').",
        f"Or list it in velo.yaml: sources: {{{ref.name}: 'file://data/a.csv'}}",
    ]
    return error("E113", f"There is no table or source '{ref.name}'.", ref.span, *steps)


def _circle(circle: Sequence[str], span: Span) -> Problem:
    path = " → ".join([*circle, circle[0]])
    return error("E117", f"The tables depend on each other in a circle: {path}.", span, "Break it at one of them.")


def _fingerprint(statement: CreateTableAs, inputs: Sequence[PlannedInput]) -> str:
    """What the table's rows depend on; not how its sources are reached."""
    described = prefixes(statement.properties.items())
    own = {k: v for k, v in statement.properties.items() if k.partition(".")[0] not in described}
    parts = [declaration(statement), statement.query.text, ",".join(statement.keys), *row_properties(own)]
    return fingerprint([*parts, *(f"{i.name} {i.kind} {i.fingerprint}" for i in inputs)])
