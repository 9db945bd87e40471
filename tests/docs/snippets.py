"""A document as a newcomer follows it: files are put where it says, commands are typed, what they print is compared.

What the fences mean, from top to bottom of one document, all in one folder:
- a fence right below a line that is only a file's name in backquotes and a colon is that file's content;
- `console`: commands behind `$ `, each followed by what a terminal shows;
- `bash`: commands that must end well; `sh`: commands for another place (this repository, a server), checked, not run;
- `python`: run where the commands run; `sql`: a project of its own, with no errors but those that comments announce.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
FILE_NAME = re.compile(r"^`([^`\n]+)`:\n+\Z", re.M)
OPERATORS = frozenset("|&;<>()")
HOME = "/home/ann/shop"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ANNOUNCED = re.compile(r"^(?:\S+: loading \(\d+ of \d+\)|\S+: .* s so far\.|Starting Spark \.\.\.)\n", re.M)
_VARYING = (
    (re.compile(r"\b\d+\.\d s\b"), "… s"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "… UTC"),
    (re.compile(r"[ \t]+$", re.M), ""),
)


@dataclass(frozen=True)
class Fence:
    """One fenced block: its language, its text, the file that it is the content of, and where the text stands."""

    language: str
    text: str
    file: str | None
    start: int
    line: int


def fences(document: str) -> Iterator[Fence]:
    for found in FENCE.finditer(document):
        named = FILE_NAME.search(document[: found.start()])
        line = document.count("\n", 0, found.start()) + 1
        yield Fence(found[1], found[2], named[1] if named else None, found.start(2), line)


@dataclass
class Command:
    """A command of a console block and the output that the document shows."""

    text: str
    shown: str = ""

    @property
    def is_killed(self) -> bool:
        """How much it gets to say before the kill depends on the machine."""
        return self.text.startswith("timeout -s KILL")

    @property
    def arguments(self) -> list[str] | None:
        """The arguments, if it calls velo-dagster and nothing else; None for what needs a shell."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        plain = words[0] == "velo-dagster" and not any(set(word) <= OPERATORS for word in words) and "$" not in words
        return words[1:] if plain else None


def commands(fence: Fence) -> list[Command]:
    """
    >>> commands(Fence("console", "$ echo a\\na\\n$ true\\n", None, 0, 1))
    [Command(text='echo a', shown='a\\n'), Command(text='true', shown='')]
    """
    found: list[Command] = []
    for line in fence.text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Command(line[2:].rstrip("\n")))
        elif found and found[-1].text.endswith("\\"):
            found[-1].text += "\n" + line.rstrip("\n")
        else:
            found[-1].shown += line
    return found


def as_terminal(output: str, folder: Path) -> str:
    """What a reader sees: no control sequences, his own folder, and not the progress, which a terminal wipes away."""
    return _ANNOUNCED.sub("", _ANSI.sub("", output).replace(str(folder), HOME))


def comparable(output: str) -> str:
    """Output with `…` for what differs from run to run, seconds and the time of day, and without trailing blanks."""
    for pattern, fixed in _VARYING:
        output = pattern.sub(fixed, output)
    return output.strip("\n")


@dataclass
class Walk:
    """One document, followed from top to bottom. `differences` are the outputs that it does not show as they are."""

    document: str
    folder: Path
    run: Callable[[Command], str]
    run_bash: Callable[[str], None]
    run_python: Callable[[str, int], None]
    differences: list[str] = field(default_factory=list)

    def follow(self) -> str:
        """Run everything; returns the document with the outputs as they are."""
        written: list[str] = []
        at = 0
        for fence in fences(self.document):
            if fence.file is not None:
                path = self.folder / fence.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(fence.text)
            elif fence.language == "bash":
                self.run_bash(fence.text)
            elif fence.language == "python":
                self.run_python(fence.text, fence.line)
            elif fence.language == "console":
                written += [self.document[at : fence.start], self._console(fence)]
                at = fence.start + len(fence.text)
        return "".join(written) + self.document[at:]

    def _console(self, fence: Fence) -> str:
        lines: list[str] = []
        for command in commands(fence):
            output = comparable(as_terminal(self.run(command), self.folder))
            if command.is_killed:
                output = comparable(command.shown)
            elif output != comparable(command.shown):
                self.differences.append(
                    f"line {fence.line}: $ {command.text}\n--- shown\n{command.shown}--- is\n{output}\n"
                )
            lines += [f"$ {command.text}\n", f"{output}\n" if output else ""]
        return "".join(lines)


def announced(sql: str) -> Sequence[str]:
    """The codes that comments of an example announce: `-- error E121`, `-- warning W104`.

    >>> announced("SELECT rand() -- error E121")
    ['E121']
    """
    return sorted(re.findall(r"-- (?:error|warning) ([A-Z]\d{3})", sql))
