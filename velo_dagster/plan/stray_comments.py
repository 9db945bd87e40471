"""Comments that speak to Dagster: which those are, and which were likely meant to be and say nothing.

A check that is dropped for a missing colon is never missed by anyone. Prose is prose, though: only what has the form of
an annotation is told, `key=value` with a known key behind a word like `dagster`, or a query behind one like `check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from velo_dagster.sql.parse import parse_select
from velo_dagster.sql.problems import Problem, StatementError, error, nearest, warning
from velo_dagster.sql.statements import Comment, CreateTableAs, Query, Statement, Transaction
from velo_dagster.sql.validate import silenced

KEYS = ("group", "owners", "tags", "kinds", "description", "freshness", "automation", "verify")
DAGSTER = re.compile(r"\s*dagster:\s*(.*)", re.IGNORECASE)
CHECK = re.compile(r"\s*check\b\s*([A-Za-z_][A-Za-z0-9_]*)?\s*(?:\(([^)]*)\))?\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)

_FIRST = re.compile(r"\W*(\w+)")
_PAIR = re.compile(rf"\b(?:{'|'.join(KEYS)})=\S.*", re.IGNORECASE)
_QUERY = re.compile(r"\W*(\w+)\b([^:(]*?)\s*(\([^)]*\))?\s*(:?)\s*\b((?:SELECT|WITH)\b.*)", re.IGNORECASE | re.DOTALL)
"""A word, a name, what stands in parentheses, a colon, a query."""


def grouped(comments: Iterable[Comment]) -> list[list[Comment]]:
    """The comments, each check with the lines below it that are indented and belong to it."""
    groups: list[list[Comment]] = []
    for comment in comments:
        own = DAGSTER.fullmatch(comment.text) or CHECK.fullmatch(comment.text) or not comment.text.strip()
        if groups and not own and comment.text[:2].isspace() and _begins_like("check", groups[-1][0]):
            groups[-1].append(comment)
        else:
            groups.append([comment])
    return groups


def in_place(lines: Sequence[Comment], skip: int) -> str:
    """The text behind the first `skip` characters, with nothing but blanks and line ends before and between the lines:
    so places in it are places in the file.
    """
    text, line = "", 1
    for comment in lines:
        text += "\n" * (comment.span.line - line) + " " * (comment.span.column - 1 + skip) + comment.text[skip:]
        line, skip = comment.span.line, 0
    return text


def mistyped(lines: Sequence[Comment]) -> Iterator[Problem]:
    """What looks like an annotation right above a statement, and is none."""
    first = lines[0]
    if _begins_like("dagster", first) and (pair := _PAIR.search(first.text)):
        message = "This looks like a line for Dagster, and is none."
        yield warning("W121", message, first.span, f"Write -- dagster: {pair[0].strip()}")
        return
    match = _QUERY.fullmatch("\n".join(line.text for line in lines)) if _begins_like("check", first) else None
    query = _read(match[5]) if match else None
    if match is None or query is None:
        return
    word, name = match[1].lower(), match[2].strip()
    clean = re.sub(r"^(?=\d)|[^A-Za-z0-9_]+", "_", name) or "name"
    step = f"Write -- check {clean}{f' {match[3]}' if match[3] else ''}: {query.text}"
    several = len(name.split()) > 1
    if match[4] and not several and word in ("check", "checks"):
        wrong = f"'{name}' can't name a check" if word == "check" else f"A check begins with 'check', not '{match[1]}'"
        yield error("E133", f"{wrong}.", first.span, step)
    elif match[4] or (query.inputs and not several):
        yield warning("W121", "This looks like a check, and is none.", first.span, step)


def stray_annotations(comments: Sequence[Comment]) -> Iterator[Problem]:
    """What has the form of an annotation where nothing can have one."""
    for lines in grouped(comments):
        text = lines[0].text
        says = bool(DAGSTER.fullmatch(text) and _PAIR.search(text)) or _is_check(lines) or any(mistyped(lines))
        if says:
            message = "This comment says nothing to Dagster: it does not stand right above a CREATE TABLE … AS."
            step = "Put it right above the statement, without a blank line between."
            yield warning("W121", message, lines[0].span, step)


def stray_in(statement: Statement) -> Iterator[Problem]:
    """The same for the comments of a statement: inside of any, and above one that makes no asset."""
    above = () if isinstance(statement, CreateTableAs) else statement.comments
    if "W121" not in silenced((*statement.comments, *statement.inner_comments)):
        yield from stray_annotations((*above, *statement.inner_comments))
    if isinstance(statement, Transaction):
        for inner in statement.statements:
            yield from stray_in(inner)


def _begins_like(word: str, comment: Comment) -> bool:
    first = _FIRST.match(comment.text)
    return first is not None and bool(nearest(first[1], [word]))


def _is_check(lines: Sequence[Comment]) -> bool:
    match = CHECK.fullmatch(lines[0].text)
    return match is not None and _read(in_place(lines, match.start(3))) is not None


def _read(text: str) -> Query | None:
    try:
        return parse_select(text)
    except StatementError:
        # Words that are no query: prose.
        return None
