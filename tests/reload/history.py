"""A project and what happens to it: statements, and steps in which files come, grow, change and go, and are loaded.

Everything is text, so that a history can be printed, kept as a fixture, and made smaller by leaving parts of it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.reload.statements import Statement

MARK = "-- @"


@dataclass(frozen=True)
class Step:
    """`files`: what stands in them from now on, None for one that is gone. Then, in this order, some loads: `bounds`,
    each of so many records; one that is `killed` when it reaches a crash point for the n-th time; `full`: a full
    refresh of these tables; and at last one that loads all that is new. `small`: below so many bytes tables are
    computed whole."""

    files: Mapping[str, str | None] = field(default_factory=dict)
    bounds: tuple[int, ...] = ()
    killed: tuple[str, int] | None = None
    full: tuple[str, ...] = ()
    small: int = 0


@dataclass(frozen=True)
class History:
    statements: tuple[Statement, ...]
    steps: tuple[Step, ...]

    @property
    def sql(self) -> str:
        return "\n".join(one.sql for one in self.statements) + "\n"

    def without_statement(self, name: str) -> History:
        steps = tuple(replace(one, full=tuple(table for table in one.full if table != name)) for one in self.steps)
        return History(tuple(one for one in self.statements if one.name != name), steps)


def written(history: History, why: str) -> str:
    """The history as a fixture; what DuckDB is asked is not kept."""
    lines = [f"-- {why}", *(one.sql for one in history.statements)]
    before: dict[str, str] = {}
    for step in history.steps:
        lines.append(f"{MARK}step{_loads(step)}")
        for name, text in step.files.items():
            if text is None:
                lines.append(f"{MARK}gone {name}")
                before.pop(name, None)
                continue
            had = before.get(name, "")
            grew = bool(had) and text.startswith(had)
            lines.append(f"{MARK}{'more' if grew else 'file'} {name}")
            lines += [f"-- {line}" for line in (text.removeprefix(had) if grew else text).splitlines()]
            before[name] = text
    return "\n".join(lines) + "\n"


def _loads(step: Step) -> str:
    words = [f" small={step.small}"] if step.small else []
    words += [f" bounds={','.join(map(str, step.bounds))}"] if step.bounds else []
    words += [f" killed={step.killed[0]},{step.killed[1]}"] if step.killed else []
    words += [f" full={','.join(step.full)}"] if step.full else []
    return "".join(words)


def read(path: Path) -> History:
    """A history that was written."""
    statements: list[Statement] = []
    steps: list[Step] = []
    files: dict[str, str] = {}
    for mark, rest, lines in _parts(path.read_text()):
        if mark == "statements":
            sqls = [f"{one.strip()};" for one in "\n".join(lines).split(";\n") if one.strip()]
            statements += [Statement(sql.split()[2], sql.replace(";;", ";")) for sql in sqls]
            continue
        if mark == "step":
            steps.append(_step(rest))
            continue
        text = "".join(f"{line}\n" for line in lines)
        files[rest] = files.get(rest, "") + text if mark == "more" else text
        steps[-1] = replace(steps[-1], files={**steps[-1].files, rest: None if mark == "gone" else files[rest]})
    return History(tuple(statements), tuple(steps))


def _parts(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """What stands under each mark; statements stand before the first."""
    mark, rest, lines = "statements", "", []
    for line in text.splitlines():
        if line.startswith(MARK):
            yield mark, rest, lines
            mark, _, rest = line.removeprefix(MARK).partition(" ")
            lines = []
        elif mark != "statements":
            lines.append(line.removeprefix("--").removeprefix(" "))
        elif not line.startswith("--"):
            lines.append(line)
    yield mark, rest, lines


def _step(words: str) -> Step:
    given = dict(word.split("=") for word in words.split())
    killed = given["killed"].split(",") if "killed" in given else None
    return Step(
        bounds=tuple(int(one) for one in given.get("bounds", "").split(",") if one),
        killed=(killed[0], int(killed[1])) if killed else None,
        full=tuple(one for one in given.get("full", "").split(",") if one),
        small=int(given.get("small", "0")),
    )
