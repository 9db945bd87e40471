"""Text with some places rewritten and everything else as the user wrote it.

An edit replaces a stretch of the text by parts: strings, and stretches of the same text, in which the edits that lie
inside them apply in turn. So `x > ANY (SELECT y FROM t)` can be turned around while `t`, inside of it, becomes a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]
Part = str | Span


@dataclass(frozen=True)
class Edit:
    start: int
    end: int
    parts: tuple[Part, ...]

    @property
    def order(self) -> tuple[int, bool, int]:
        """Insertions before replacements at the same place, and the outer of two replacements first."""
        return self.start, self.end > self.start, -self.end


class Splice:
    """Collects edits, then renders stretches of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._edits: list[Edit] = []

    def replace(self, span: Span, *parts: Part) -> None:
        self._edits.append(Edit(*span, parts))

    def insert(self, at: int, *parts: Part) -> None:
        self._edits.append(Edit(at, at, parts))

    def render(self, span: Span) -> str:
        """
        >>> splice = Splice("a > b")
        >>> splice.replace((0, 5), "not(", (4, 5), " < ", (0, 1), ")")
        >>> splice.replace((4, 5), "bb")
        >>> splice.render((0, 5))
        'not(bb < a)'

        What is inserted at the end of an edit stands in it, if it takes in that end, else behind it.

        >>> splice = Splice("sum(x)")
        >>> splice.replace((0, 6), "f(sum(x)", (6, 6), ")")
        >>> splice.insert(6, " FILTER (WHERE y)")
        >>> splice.render((0, 6))
        'f(sum(x) FILTER (WHERE y))'
        """
        return self._render(span, sorted(self._edits, key=lambda edit: edit.order))

    def _render(self, span: Span, edits: Sequence[Edit]) -> str:
        at, end = span
        parts: list[str] = []
        inside = [edit for edit in edits if span[0] <= edit.start and edit.end <= end]
        taken = -1
        for index, edit in enumerate(inside):
            if edit.start < at or edit.start == edit.end == taken:
                continue
            rest = inside[index + 1 :]
            parts.append(self.text[at : edit.start])
            parts += [part if isinstance(part, str) else self._render(part, rest) for part in edit.parts]
            at = edit.end
            if any(part[1] == at for part in edit.parts if not isinstance(part, str)):
                taken = at
        parts.append(self.text[at:end])
        return "".join(parts)
