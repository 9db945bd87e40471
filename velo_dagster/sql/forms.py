"""The forms a property's value can have: how its text is read, and how a message describes it."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from velo_dagster.sql.durations import parse_duration


@dataclass(frozen=True)
class Form:
    """`read` turns text into a value and raises `ValueError` where it can't; `described` finishes "is not ..."."""

    described: str
    read: Callable[[str], Any]


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError as error:
        raise ValueError(text) from error


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text.strip())
        if number < least:
            raise ValueError(text)
        return number

    return read


def _duration(text: str) -> Decimal:
    seconds = parse_duration(text)
    if seconds is None:
        raise ValueError(text)
    return seconds


_ESCAPES = {"\\t": "\t", "tab": "\t", "\\0": "\0", "\\x01": "\x01", "\\u0001": "\x01"}


def _character(text: str) -> str:
    character = _ESCAPES.get(text.lower(), text)
    if len(character) != 1 or character in "\r\n":
        raise ValueError(text)
    return character


def _quote(text: str) -> str | None:
    return None if text in ("", "none") else _character(text)


def _encoding(text: str) -> str:
    try:
        return codecs.lookup(text.strip()).name
    except LookupError as error:
        raise ValueError(text) from error


_PATTERN = re.compile(r"(?:[GyYuMLDdEeaHhKkmsSnNVzOXxQq]|'[^']*'|[^A-Za-z'])+")


def _time_format(text: str) -> str:
    word = text.strip()
    if word.lower() in ("epoch_millis", "epoch_seconds", "iso8601"):
        return word.lower()
    if not _PATTERN.fullmatch(word) or not any(letter in word for letter in "yuHhs"):
        raise ValueError(text)
    return word


def _values_by_name(text: str) -> dict[str, Any]:
    # A number with a point keeps its digits.
    found = json.loads(text, parse_float=Decimal)
    if not isinstance(found, dict):
        raise ValueError(text)
    return found


TEXT = Form("a text", str)
BOOLEAN = Form("true or false", _boolean)
COUNT = Form("a whole number, 0 or more", _whole(0))
POSITIVE = Form("a whole number, 1 or more", _whole(1))
DURATION = Form("a duration such as 30s, 5m or 1.5 hours", _duration)
CHARACTER = Form("one character (a tab is \\t)", _character)
QUOTE = Form("one character, or empty for no quoting", _quote)
ENCODING = Form("the name of a text encoding such as utf-8 or latin-1", _encoding)
TIME_FORMAT = Form("epoch_millis, epoch_seconds, iso8601, or a pattern such as yyyy-MM-dd HH:mm:ss", _time_format)
VALUES_BY_NAME = Form("""a JSON object such as {"name": "unknown"}""", _values_by_name)


def _multiplier(text: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation as error:
        raise ValueError(text) from error
    if not number.is_finite() or number < 1:
        raise ValueError(text)
    return number


ONE_OF = "one of "


def choice(*names: str, also: Mapping[str, str] | None = None) -> Form:
    """One of `names` in any case; `also` gives other spellings.

    >>> choice("fixed", "exponential", also={"exp": "exponential"}).read("EXP")
    'exponential'
    """
    spellings = {name.lower(): name for name in names} | {key.lower(): name for key, name in (also or {}).items()}

    def read(text: str) -> str:
        try:
            return spellings[text.strip().lower()]
        except KeyError as error:
            raise ValueError(text) from error

    return Form(ONE_OF + ", ".join(names), read)


STRATEGY = choice("fixed", "linear", "exponential", also={"exp": "exponential"})
MULTIPLIER = Form("a number of at least 1", _multiplier)
