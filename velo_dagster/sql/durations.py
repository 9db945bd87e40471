"""Durations as users write them, exact."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS: dict[str, tuple[Decimal, tuple[str, ...]]] = {
    "ns": (Decimal("1e-9"), ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    "us": (Decimal("1e-6"), ("us", "µs", "micro", "micros", "microsecond", "microseconds")),
    "ms": (Decimal("1e-3"), ("ms", "milli", "millis", "msec", "msecs", "millisecond", "milliseconds")),
    "s": (Decimal(1), ("s", "sec", "secs", "second", "seconds")),
    "m": (Decimal(60), ("m", "min", "mins", "minute", "minutes")),
    "h": (Decimal(3600), ("h", "hr", "hrs", "hour", "hours")),
    "d": (Decimal(86400), ("d", "day", "days")),
    "w": (Decimal(604800), ("w", "wk", "wks", "week", "weeks")),
}
_SECONDS = {word: seconds for seconds, words in _UNITS.values() for word in words}
_FORM = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-zµ]*)")
_INTERVAL = re.compile(r"""INTERVAL\s+(?:'([^']*)'|"([^"]*)"|([\d.]+))\s*([A-Za-z]*)""", re.IGNORECASE)


def parse_duration(text: str) -> Decimal | None:
    """The duration in seconds, or None if the text is not one. A bare number counts seconds.

    >>> [str(parse_duration(t)) for t in ("1.5m", "30 seconds", "INTERVAL '5' MINUTE", "0.1ms", "-5s")]
    ['90', '30', '300', '0.0001', 'None']
    """
    text = text.strip()
    if interval := _INTERVAL.fullmatch(text):
        text = f"{interval[1] or interval[2] or interval[3]} {interval[4]}".strip()
    match = _FORM.fullmatch(text)
    if not match:
        return None
    seconds = _SECONDS.get(match[2].lower() or "s")
    return None if seconds is None else _plain(Decimal(match[1]) * seconds)


def is_unit(word: str) -> bool:
    return word.lower() in _SECONDS


def _plain(value: Decimal) -> Decimal:
    return value.quantize(Decimal(1)) if value == value.to_integral_value() else value.normalize()
