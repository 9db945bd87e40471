"""Makes a history that shows a difference smaller: what can be left out, while there still is one, is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import sqlglot

from tests.reload.history import History, Step
from tests.reload.run import Difference
from velo_dagster.sql.dialect import Velo

Shows = Callable[[History], Difference | None]


def shrunk(history: History, found: Difference, shows: Shows, tries: int) -> tuple[History, Difference]:
    """The smallest history that some tries come to, and what it shows. `shows`: what a history shows, if anything."""
    history = _cut(history, found)
    again = shows(history)
    if again is None:
        return history, found
    found, left = again, tries
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(history, found):
            if left <= 0:
                break
            left -= 1
            shown = shows(smaller)
            if shown is not None:
                history, found, progress = _cut(smaller, shown), shown, True
                break
    return history, found


def _cut(history: History, found: Difference) -> History:
    """No step after the one that shows it, and no table that the one which shows it does not read."""
    needed = {found.table}
    for one in reversed(history.statements):
        if one.name in needed:
            needed |= tables_of(one.sql)
    history = replace(history, steps=history.steps[: found.step + 1])
    for one in history.statements:
        if one.name not in needed:
            history = history.without_statement(one.name)
    return history


def tables_of(sql: str) -> set[str]:
    """The tables that a statement reads, and words that may be some."""
    query = sql.partition(" AS ")[2].rstrip(";")
    return {token.text for token in sqlglot.tokenize(query, read=Velo)}


def _smaller(history: History, found: Difference) -> Iterator[History]:
    """Histories with one thing less, the greatest things first."""
    yield from (_without_step(history, number) for number in range(len(history.steps)) if len(history.steps) > 1)
    for number, step in enumerate(history.steps):
        for plainer in _plainer(step):
            yield _with_step(history, number, plainer)
    for number, step in enumerate(history.steps):
        for name in step.files:
            files = {one: text for one, text in step.files.items() if one != name}
            yield _with_step(history, number, replace(step, files=files))
    for name in sorted({name for step in history.steps for name in step.files}):
        for lines in _halves(history, name):
            yield _without_lines(history, name, lines)


def _plainer(step: Step) -> Iterator[Step]:
    for plainer in (
        replace(step, killed=None),
        replace(step, bounds=()),
        replace(step, full=()),
        replace(step, small=0),
    ):
        if plainer != step:
            yield plainer


def _without_step(history: History, number: int) -> History:
    """The files of a step that is left out come with the next one, if that has nothing to say about them."""
    steps = list(history.steps)
    gone = steps.pop(number)
    if number < len(steps):
        steps[number] = replace(steps[number], files={**gone.files, **steps[number].files})
    return replace(history, steps=tuple(steps))


def _with_step(history: History, number: int, step: Step) -> History:
    return replace(history, steps=(*history.steps[:number], step, *history.steps[number + 1 :]))


def _halves(history: History, name: str) -> Iterator[frozenset[str]]:
    """Lines of a file that may be left out together: halves, then quarters, then single ones."""
    lines = sorted({line for step in history.steps for line in _lines(step, name)})
    size = len(lines)
    while size > 1:
        size = -(-size // 2)
        yield from (frozenset(lines[start : start + size]) for start in range(0, len(lines), size))


def _lines(step: Step, name: str) -> list[str]:
    return (step.files.get(name) or "").splitlines()[1:]


def _without_lines(history: History, name: str, lines: frozenset[str]) -> History:
    steps = []
    for step in history.steps:
        text = step.files.get(name)
        if text is not None:
            header, *rest = text.splitlines()
            kept = "".join(f"{line}\n" for line in [header, *(line for line in rest if line not in lines)])
            step = replace(step, files={**step.files, name: kept})
        steps.append(step)
    return replace(history, steps=tuple(steps))
