"""What the comments above a statement say to Dagster: `-- dagster: …`, `-- check …`, and the description.

    -- dagster: group=spending owners=team:payments tags=tier:gold,reviewed freshness=15m
    -- What each user has spent so far.
    -- check spent_is_positive (WARN): SELECT * FROM user_spending
    --   WHERE spent < 0
    CREATE TABLE user_spending AS …

All other lines are the description. A check goes on in the lines below it that are indented.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from velo_dagster.errors import Span
from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.parse import parse_select
from velo_dagster.sql.problems import Problem, StatementError, error, nearest, warning
from velo_dagster.sql.statements import CreateTableAs, Query

Severity = Literal["WARN", "ERROR"]
AUTOMATIONS = ("eager", "off")
KEYS = ("group", "owners", "tags", "kinds", "description", "freshness", "automation", "verify")

_DAGSTER = re.compile(r"dagster:\s*(.*)", re.IGNORECASE)
_SILENCED = re.compile(r"velo:\s*allow\s*=", re.IGNORECASE)
_CHECK = re.compile(r"check\b\s*([A-Za-z_]\w*)?\s*(?:\(([^)]*)\))?\s*:\s*(.*)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_]+")
_OWNER = re.compile(r"team:\S+|[^@\s]+@[^@\s]+\.[^@\s]+")
_CRON = re.compile(r"@\w+|\S+( \S+){4}")


@dataclass(frozen=True)
class SqlCheck:
    """Rows that must not exist. `query` gives those that do."""

    name: str
    query: Query
    severity: Severity
    blocking: bool
    span: Span


@dataclass(frozen=True)
class Annotations:
    """What a user tells Dagster about a table; None or empty where he said nothing.

    `freshness`: for how many seconds rows may wait in a source. `automation`: `eager`, `off`, or a cron schedule.
    `verify`: compare the table with a full reload when checks run: all of it, or so many of its keys.
    """

    group: str | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    description: str = ""
    freshness: float | None = None
    automation: str | None = None
    verify: Literal["all"] | int | None = None
    checks: tuple[SqlCheck, ...] = ()


class _Wrong(Exception):
    """One word of a comment that says nothing."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def read_annotations(statement: CreateTableAs) -> tuple[Annotations, tuple[Problem, ...]]:
    """What the lines above the statement say, and what is wrong with them; a wrong line says nothing."""
    found = Annotations()
    problems: list[Problem] = []
    description: list[str] = []
    for line, span in _lines(statement):
        try:
            if match := _DAGSTER.fullmatch(line):
                for key, value in _pairs(match[1], span):
                    try:
                        found = _set(found, key, value, span)
                    except _Wrong as wrong:
                        problems.append(wrong.problem)
            elif match := _CHECK.fullmatch(line):
                found = replace(found, checks=(*found.checks, _check(match, found.checks, span)))
            elif not _SILENCED.match(line):
                description.append(line)
        except _Wrong as wrong:
            problems.append(wrong.problem)
    text = "\n".join(description).strip()
    return replace(found, description=found.description or text), tuple(problems)


def _lines(statement: CreateTableAs) -> Iterator[tuple[str, Span]]:
    """The comment lines with their places; what is indented below a check belongs to it."""
    above = statement.comments
    first = statement.span.line - len(above)
    whole: list[tuple[str, Span]] = []
    for number, line in enumerate(above):
        text = line.strip()
        if whole and line[:2].isspace() and text and _CHECK.fullmatch(whole[-1][0]):
            whole[-1] = (f"{whole[-1][0]} {text}", whole[-1][1])
        else:
            whole.append((text, Span(statement.span.file, max(first + number, 1), 1)))
    return iter(whole)


def _pairs(text: str, span: Span) -> list[tuple[str, str]]:
    try:
        words = shlex.split(text)
    except ValueError as failure:
        raise _Wrong(error("E133", f"The line can't be read: {failure}.", span, "Close the quote.")) from None
    pairs = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            step = 'Write key=value; a value with blanks goes in double quotes: description="two words".'
            raise _Wrong(error("E133", f"'{word}' is no key with a value.", span, step))
        pairs.append((key.lower(), value))
    return pairs


def _set(found: Annotations, key: str, value: str, span: Span) -> Annotations:
    if key not in KEYS:
        near = nearest(key, KEYS)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise _Wrong(warning("W120", f"'{key}' says nothing to Dagster.{hint}", span, f"Keys are {', '.join(KEYS)}."))
    if not value:
        raise _Wrong(error("E133", f"'{key}' has no value.", span, f"Write {key}=… or leave it out."))
    if key == "group":
        return replace(found, group=_checked(key, value, _NAME, "letters, digits and _", span))
    if key == "owners":
        form = "an e-mail address or team:name"
        owners = tuple(_checked(key, one, _OWNER, form, span) for one in value.split(","))
        return replace(found, owners=(*found.owners, *owners))
    if key == "tags":
        pairs = {name: text for name, _, text in (one.partition(":") for one in value.split(","))}
        return replace(found, tags={**found.tags, **pairs})
    if key == "kinds":
        return replace(found, kinds=(*found.kinds, *value.split(",")))
    if key == "freshness":
        seconds = parse_duration(value)
        if not seconds:
            raise _Wrong(_form(key, value, "a duration such as 15m", span))
        return replace(found, freshness=float(seconds))
    if key == "automation":
        if value.lower() not in AUTOMATIONS and not _CRON.fullmatch(value):
            raise _Wrong(_form(key, value, f"{' or '.join(AUTOMATIONS)}, or a cron schedule in quotes", span))
        return replace(found, automation=value.lower() if value.lower() in AUTOMATIONS else value)
    if key == "verify":
        if value.lower() != "all" and not (value.isdigit() and int(value)):
            raise _Wrong(_form(key, value, "all, or a number of keys", span))
        return replace(found, verify=int(value) if value.isdigit() else "all")
    return replace(found, description=value)


def _checked(key: str, value: str, form: re.Pattern[str], described: str, span: Span) -> str:
    if not form.fullmatch(value):
        raise _Wrong(_form(key, value, described, span))
    return value


def _form(key: str, value: str, described: str, span: Span) -> Problem:
    return error("E133", f"{key} = '{value}' is not {described}.", span, f"Write {key}=… with {described}.")


def _check(match: re.Match[str], before: Sequence[SqlCheck], span: Span) -> SqlCheck:
    name = match[1] or f"check_{len(before) + 1}"
    words = [word.strip().lower() for word in (match[2] or "").split(",") if word.strip()]
    unknown = [word for word in words if word not in ("warn", "error", "blocking")]
    if unknown:
        step = "Write check name (WARN): SELECT …, or (ERROR, blocking)."
        raise _Wrong(error("E133", f"'{unknown[0]}' is nothing that a check can be.", span, step))
    if name in (check.name for check in before):
        raise _Wrong(error("E133", f"There are two checks '{name}'.", span, "Give one of them another name."))
    if "blocking" in words and "warn" in words:
        step = "Leave out WARN, or blocking."
        raise _Wrong(error("E133", "A check that only warns can't block.", span, step))
    try:
        query = parse_select(match[3], span.file)
    except StatementError as failure:
        step = "Write a SELECT of the rows that must not exist."
        message = f"The check '{name}' can't be read: {failure.problem.message}"
        raise _Wrong(error("E133", message, span, *failure.problem.steps, step)) from None
    if any(one.uri for one in query.inputs):
        raise _Wrong(error("E133", f"The check '{name}' reads a source.", span, "Checks read tables of the project."))
    return SqlCheck(name, query, "WARN" if "warn" in words else "ERROR", "blocking" in words, span)
