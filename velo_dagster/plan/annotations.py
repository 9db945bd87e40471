"""What the comments above a statement say to Dagster: `-- dagster: …`, `-- check …`, and the description.

    -- dagster: group=spending owners=team:payments tags=tier:gold,reviewed freshness=15m
    -- What each user has spent so far.
    -- check spent_is_positive (WARN): SELECT * FROM user_spending
    --   WHERE spent < 0
    CREATE TABLE user_spending AS …

All other lines are the description. A check goes on in the lines below it that are indented. A comment that was likely
meant to be one of these and is not, is told: see `velo_dagster.plan.stray_comments`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from velo_dagster.errors import Span
from velo_dagster.plan.cron import why_no_schedule
from velo_dagster.plan.stray_comments import CHECK, DAGSTER, KEYS, grouped, in_place, mistyped
from velo_dagster.sql.durations import parse_duration
from velo_dagster.sql.parse import parse_select
from velo_dagster.sql.problems import Problem, StatementError, error, nearest, warning
from velo_dagster.sql.statements import Comment, CreateTableAs, Query
from velo_dagster.sql.validate import silenced

Severity = Literal["WARN", "ERROR"]
AUTOMATIONS = ("eager", "off")

OWN_CHECKS = ("source_ready", "key_unique", "rows_as_loaded", "nothing_rejected", "fresh", "equals_full_reload")
"""Checks that tables have without being asked for, or by a key of theirs."""

_SILENCED = re.compile(r"velo:\s*allow\s*=", re.IGNORECASE)
_WORD = re.compile(r"""(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'\\])+""")
_NAME = re.compile(r"[A-Za-z0-9_]+")
# What Dagster takes; anything else would keep the whole code location from loading.
_OWNER = re.compile(r"team:\S+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
_TAG = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}(:[A-Za-z0-9_.-]{0,63})?")
_KIND = re.compile(r"[A-Za-z0-9_.-]{1,63}")
MOST_KINDS = 8
"""Dagster takes ten; two are ours."""


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
    for lines in grouped(statement.comments):
        try:
            if match := DAGSTER.fullmatch(lines[0].text):
                for key, value, span in _pairs(match, lines[0], problems):
                    try:
                        found = _set(found, key, value, span)
                    except _Wrong as wrong:
                        problems.append(wrong.problem)
            elif match := CHECK.fullmatch(lines[0].text):
                found = replace(found, checks=(*found.checks, _check(match, found.checks, lines)))
            elif not _SILENCED.match(lines[0].text.strip()):
                problems += mistyped(lines)
                description += [line.text.strip() for line in lines]
        except _Wrong as wrong:
            problems.append(wrong.problem)
    silent = silenced((*statement.comments, *statement.inner_comments))
    told = tuple(p for p in problems if p.severity == "error" or p.code not in silent)
    text = "\n".join(description).strip()
    return replace(found, description=found.description or text), told


def _pairs(match: re.Match[str], line: Comment, problems: list[Problem]) -> Iterator[tuple[str, str, Span]]:
    """Keys and values, each with its place; words that are none are added to the problems."""
    try:
        shlex.split(match[1])
    except ValueError as failure:
        raise _Wrong(error("E133", f"The line can't be read: {failure}.", line.span, "Close the quote.")) from None
    for word in _WORD.finditer(line.text, match.start(1)):
        span = replace(line.span, column=line.span.column + word.start())
        key, equals, value = "".join(shlex.split(word[0])).partition("=")
        if equals:
            yield key.lower(), value, span
            continue
        step = 'Write key=value; a value with blanks goes in double quotes: description="two words".'
        problems.append(error("E133", f"'{key}' is no key with a value.", span, step))


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
        form = "name or name:value, of letters, digits and _ - ."
        words = [_checked(key, one, _TAG, form, span) for one in value.split(",")]
        pairs = {name: text for name, _, text in (one.partition(":") for one in words)}
        return replace(found, tags={**found.tags, **pairs})
    if key == "kinds":
        form = "letters, digits and _ - ."
        kinds = (*found.kinds, *(_checked(key, one, _KIND, form, span) for one in value.split(",")))
        if len(set(kinds)) > MOST_KINDS:
            raise _Wrong(error("E133", f"There are {len(set(kinds))} kinds.", span, f"Give at most {MOST_KINDS}."))
        return replace(found, kinds=kinds)
    if key == "freshness":
        seconds = parse_duration(value)
        if not seconds:
            raise _Wrong(_form(key, value, "a duration such as 15m", span))
        return replace(found, freshness=float(seconds))
    if key == "automation":
        if value.lower() not in AUTOMATIONS and (why := why_no_schedule(value)):
            form = f"{' or '.join(AUTOMATIONS)}, or a cron schedule in quotes"
            raise _Wrong(_form(key, value, form, span, why=f": {why}"))
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


def _form(key: str, value: str, described: str, span: Span, why: str = "") -> Problem:
    return error("E133", f"{key} = '{value}' is not {described}{why}.", span, f"Write {key}=… with {described}.")


def _check(match: re.Match[str], before: Sequence[SqlCheck], lines: Sequence[Comment]) -> SqlCheck:
    span = lines[0].span
    name = match[1] or f"check_{len(before) + 1}"
    words = [word.strip().lower() for word in (match[2] or "").split(",") if word.strip()]
    unknown = [word for word in words if word not in ("warn", "error", "blocking")]
    if unknown:
        step = "Write check name (WARN): SELECT …, or (ERROR, blocking)."
        raise _Wrong(error("E133", f"'{unknown[0]}' is nothing that a check can be.", span, step))
    if name in OWN_CHECKS:
        message = f"'{name}' is a check that tables have already."
        raise _Wrong(error("E133", message, span, "Give this one another name."))
    if name in (check.name for check in before):
        raise _Wrong(error("E133", f"There are two checks '{name}'.", span, "Give one of them another name."))
    if "blocking" in words and "warn" in words:
        step = "Leave out WARN, or blocking."
        raise _Wrong(error("E133", "A check that only warns can't block.", span, step))
    try:
        query = parse_select(in_place(lines, match.start(3)), span.file)
    except StatementError as failure:
        step = "Write a SELECT of the rows that must not exist."
        message = f"The check '{name}' can't be read: {failure.problem.message}"
        raise _Wrong(error("E133", message, failure.problem.span, *failure.problem.steps, step)) from None
    sources = [one.span for one in query.inputs if one.uri]
    if sources:
        step = "Checks read tables of the project."
        raise _Wrong(error("E133", f"The check '{name}' reads a source.", sources[0], step))
    return SqlCheck(name, query, "WARN" if "warn" in words else "ERROR", "blocking" in words, span)
