"""Cases as data: a text, then `-->` and what is expected of it. A blank line ends each case; the first is a heading."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


def answered(name: str) -> list[tuple[str, str]]:
    """The texts of a file below `fixtures`, each with its answer, which may be empty."""
    parts = (case.partition("\n-->") for case in (FIXTURES / name).read_text().split("\n\n")[1:])
    return [(text, answer.strip()) for text, _, answer in parts]
