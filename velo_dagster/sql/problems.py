"""What is wrong, or doubtful, about a statement: found without touching data, all of a project's at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from velo_dagster.errors import Span, Terminal, VeloError

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """One finding: a stable code, a sentence, its place, and numbered steps that help."""

    code: str
    severity: Severity
    message: str
    span: Span
    steps: tuple[str, ...] = ()

    def render(self) -> str:
        """
        >>> print(error("E100", "It broke.", Span("a.sql", 3, 7), "Mend it.").render())
        a.sql:3:7: error E100 It broke.
          1. Mend it.
        """
        lines = [f"{self.span}: {self.severity} {self.code} {self.message}"]
        lines += [f"  {number}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines)


def error(code: str, message: str, span: Span, *steps: str) -> Problem:
    return Problem(code, "error", message, span, tuple(steps))


def warning(code: str, message: str, span: Span, *steps: str) -> Problem:
    return Problem(code, "warning", message, span, tuple(steps))


class StatementError(Terminal, VeloError):
    """Raised where one problem ends the work: it carries the problem with its code."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.code = problem.code
        super().__init__(problem.message, where=problem.span, steps=problem.steps)

    def render(self) -> str:
        return self.problem.render()


class NotSupportedYet(StatementError):
    """The statement is right, and a later release will run it; until then nothing is done rather than half of it."""


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """In the order a reader walks through the files, each once."""
    return tuple(sorted(set(problems), key=lambda p: (p.span, p.severity, p.code, p.message)))


def nearest(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """The known names that look most like `name`, best first.

    >>> nearest("ordrs", ["orders", "users", "order_items"])
    ('orders', 'order_items')
    """
    folded = {k.casefold(): k for k in sorted(known, reverse=True)}
    return tuple(folded[match] for match in get_close_matches(name.casefold(), sorted(folded), n=3, cutoff=0.6))
