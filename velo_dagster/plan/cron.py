"""Cron schedules as Dagster takes them: a wrong one would keep the whole code location from loading.

A plan knows nothing of Dagster, so the rules stand here once more; a test holds them against Dagster's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

NICKNAMES = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")

_RANGE = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?", re.ASCII)
_NTH = re.compile(r"(\w+)#[1-5]", re.ASCII)
_LAST = re.compile(r"l([0-6])")


@dataclass(frozen=True)
class _Field:
    """One of the five; `words` stand for numbers, the first for `first`."""

    name: str
    first: int
    last: int
    words: Sequence[str] = ()

    def number(self, text: str) -> int:
        number = self.words.index(text) + self.first if text in self.words else int(text) if text.isdigit() else -1
        if not self.first <= number <= self.last:
            raise ValueError(f"'{text}' is no {self.name} ({self.first} to {self.last})")
        return number


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY, _WEEKDAY = _Field("day of the month", 1, 31), _Field("day of the week", 0, 7, _WEEKDAYS)
_FIELDS = (_Field("minute", 0, 59), _Field("hour", 0, 23), _DAY, _Field("month", 1, 12, _MONTHS), _WEEKDAY)


def why_no_schedule(text: str) -> str | None:
    """What keeps a text from being a cron schedule; None if it is one.

    >>> why_no_schedule("*/15 8-18 * * mon-fri"), why_no_schedule("@daily"), why_no_schedule("0 6 L * ?")
    (None, None, None)
    >>> why_no_schedule("99 * * * *"), why_no_schedule("0 0 31 2 *")
    ("'99' is no minute (0 to 59)", 'February has no such day')
    """
    if text.startswith("@"):
        return None if text.lower() in NICKNAMES else f"it is none of {', '.join(NICKNAMES)}"
    parts = text.lower().split()
    if len(parts) != len(_FIELDS):
        return f"it has {len(parts)} fields instead of {len(_FIELDS)}"
    try:
        _, _, days, months, _ = (_numbers(field, part) for field, part in zip(_FIELDS, parts, strict=True))
    except ValueError as wrong:
        return str(wrong)
    return "February has no such day" if months == {2} and days <= {30, 31} else None


def _numbers(field: _Field, text: str) -> set[int]:
    """The numbers that a field stands for, or more than these."""
    if text == "?" and field in (_DAY, _WEEKDAY):
        text = "*"
    if field is _WEEKDAY and (nth := _NTH.fullmatch(text)):
        return {field.number(nth[1])}
    if field is _WEEKDAY and (last := _LAST.fullmatch(text)):
        return {field.number(last[1])}
    found: set[int] = set()
    for part in text.split(","):
        if field is _DAY:
            # The last day of a month, whichever that is.
            part = "*" if part == "l" else part.replace("-l", "-31")
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"'{part}' is no {field.name}")
        low = field.number(match[1]) if match[1] else field.first
        high = field.number(match[2]) if match[2] else low if match[1] and not match[3] else field.last
        # A range that ends before it begins goes on at the beginning; one of a single number means all.
        whole = low > high or (low == high and part != match[1])
        found |= set(range(field.first, field.last + 1) if whole else range(low, high + 1))
    return found
