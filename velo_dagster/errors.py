"""Every error this package raises on purpose.

An error carries typed fields and builds its own sentence: what happened, where, and what to do next. Whether trying
again can help is a type (`Transient` or `Terminal`), never a word in a message. Codes are stable: users match on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, order=True)
class Span:
    """A place in a user's file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Transient:
    """Mixed into errors that may go away by themselves."""


class Terminal:
    """Mixed into errors that stay until somebody changes something."""


class VeloError(Exception):
    """Base of all: a stable code, a sentence, a place, and numbered steps that help."""

    code: str = "V000"

    def __init__(self, what: str, *, where: Span | str | None = None, steps: Sequence[str] = ()) -> None:
        self.what = what
        self.where = where
        self.steps = tuple(steps)
        super().__init__(self.render())

    def at(self, where: Span) -> Self:
        """The same error, with a place if it has none yet."""
        if self.where is None:
            self.where = where
            self.args = (self.render(),)
        return self

    def advising(self, *steps: str) -> Self:
        """The same error, with other steps, for a place where those of its maker don't help."""
        self.steps = steps
        self.args = (self.render(),)
        return self

    def render(self) -> str:
        """
        >>> print(VeloError("It broke.", where=Span("a.sql", 3, 7), steps=["Mend it.", "Load again."]).render())
        a.sql:3:7: error V000 It broke.
          1. Mend it.
          2. Load again.
        """
        place = f"{self.where}: " if self.where else ""
        lines = [f"{place}error {self.code} {self.what}"]
        lines += [f"  {number}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines)
