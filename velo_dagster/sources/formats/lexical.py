"""What a text means: the one definition of "this text fits that type", value by value.

`observe` gives the evidence of a text, `parse` its value under a type. Both read the same shapes, so a text fits the
type inferred from it. `convert` does the same for whole columns at once, and falls back to these where it cannot tell.

Blanks (spaces and tabs) around a number, a date, a timestamp or a boolean do not count. A timestamp without a zone is
UTC; seconds and up to six digits of fraction are optional; more digits are text, since nothing is rounded. Under a
declared type a number may also have a plus sign and leading zeros: the user has said that it is one.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Literal

import pyarrow as pa

from velo_dagster.sources.formats import types
from velo_dagster.sources.formats.types import MOST_DIGITS, Evidence

NumberFormat = Literal["decimal", "double"]

BLANKS = " \t"

_NUMBER = re.compile(r"(-?)(?:(0|[1-9][0-9]*)(\.[0-9]*)?|(\.[0-9]+))(?:[eE]([+-]?[0-9]+))?")
_DECLARED_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(\.[0-9]*)?|(\.[0-9]+))(?:[eE]([+-]?[0-9]+))?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,6}))?)?"
    r"(Z|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?"
)
_NOT_FINITE = re.compile(r"-?(?:nan|inf|infinity)", re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}
_INT_LIMITS = {
    pa.int8(): 1 << 7,
    pa.int16(): 1 << 15,
    pa.int32(): 1 << 31,
    pa.int64(): 1 << 63,
}
_LONGEST_EXPONENT = 6
_EXACT = Context(prec=2 * MOST_DIGITS, traps=[Inexact, InvalidOperation])


class _DoesNotFit:
    def __repr__(self) -> str:
        return "DOES_NOT_FIT"


DOES_NOT_FIT: Any = _DoesNotFit()


def observe(text: str, number_format: NumberFormat) -> Evidence:
    """The evidence of one text that is not NULL.

    >>> observe("12.50", "decimal").type(), observe("007", "decimal").type(), observe("2025-02-30", "decimal").type()
    ('DECIMAL(18,2)', 'STRING', 'STRING')
    """
    bare = text.strip(BLANKS)
    evidence = observe_number(bare, number_format)
    if evidence is not None:
        return evidence
    if bare.lower() in _BOOLEANS:
        return types.BOOLEAN
    return observe_time(bare)


def observe_time(bare: str) -> Evidence:
    """The evidence of a text that can be a date, a timestamp, or just text."""
    if _date(bare) is not DOES_NOT_FIT:
        return types.ON_DATE
    return types.TEXT if _timestamp(bare) is DOES_NOT_FIT else types.AT_TIME


def observe_number(bare: str, number_format: NumberFormat) -> Evidence | None:
    """The evidence of a number, or None if it is none."""
    match = _NUMBER.fullmatch(bare)
    if match is None:
        return types.DOUBLE if number_format == "double" and _NOT_FINITE.fullmatch(bare) else None
    point, digits, scale = _shape(match)
    if not point:
        wide = digits > 19 or (digits == 19 and not -(1 << 63) <= int(bare) < 1 << 63)
        return types.integer(digits, wide)
    if number_format == "decimal":
        return types.number(digits, scale)
    return types.TEXT if abs(float(bare)) == float("inf") else types.DOUBLE


def _shape(match: re.Match[str]) -> tuple[bool, int, int]:
    """Whether a number has a point or exponent; its digits before the point and after it, the exponent applied."""
    whole = match[2] or ""
    fraction = (match[3] or match[4] or "")[1:]
    point = match[3] is not None or match[4] is not None or match[5] is not None
    exponent = _exponent(match[5])
    significant = len((whole + fraction).lstrip("0"))
    after = len(fraction) - exponent
    return point, max(0, significant - after) if significant else 0, max(0, after)


def _exponent(text: str | None) -> int:
    """An exponent, held within what is far beyond any type: the digits of a hostile one are never counted out."""
    if text is None:
        return 0
    size = text.lstrip("+-").lstrip("0")
    value = int(size or "0") if len(size) <= _LONGEST_EXPONENT else 10**_LONGEST_EXPONENT
    return -value if text[0] == "-" else value


def parse(text: str, type_: pa.DataType, declared: bool = False) -> Any:
    """The text's value under a type, exactly, or `DOES_NOT_FIT`.

    >>> parse("1.50", pa.decimal128(18, 2)), parse("1.50", pa.decimal128(18, 1)), parse("1.0", pa.int64())
    (Decimal('1.50'), DOES_NOT_FIT, DOES_NOT_FIT)
    """
    if pa.types.is_string(type_):
        return text
    if pa.types.is_binary(type_):
        return text.encode()
    bare = text.strip(BLANKS)
    if pa.types.is_boolean(type_):
        return _BOOLEANS.get(bare.lower(), DOES_NOT_FIT)
    if pa.types.is_date32(type_):
        return _date(bare)
    if pa.types.is_timestamp(type_):
        return parse_timestamp(bare, type_)
    return parse_number(bare, type_, declared)


def parse_number(bare: str, type_: pa.DataType, declared: bool = False) -> Any:
    """A number's value under a number type, exactly (a DOUBLE: the nearest one), or `DOES_NOT_FIT`."""
    match = (_DECLARED_NUMBER if declared else _NUMBER).fullmatch(bare)
    if pa.types.is_floating(type_):
        return _double(bare, match, type_)
    if match is None:
        return DOES_NOT_FIT
    point, digits, scale = _shape(match)
    if pa.types.is_decimal128(type_):
        fits = scale <= type_.scale and digits <= type_.precision - type_.scale
        return _decimal(bare, type_.scale) if fits else DOES_NOT_FIT
    limit = _INT_LIMITS.get(type_)
    if limit is None or point or digits > 19:
        return DOES_NOT_FIT
    value = int(bare)
    return value if -limit <= value < limit else DOES_NOT_FIT


def _decimal(bare: str, scale: int) -> Decimal:
    """A number that has room in a decimal type; 0e999 is a zero whose exponent says nothing."""
    zero = not bare.lower().partition("e")[0].strip("+-0.")
    return Decimal(0 if zero else bare).quantize(Decimal(1).scaleb(-scale), context=_EXACT)


def _double(bare: str, match: re.Match[str] | None, type_: pa.DataType) -> Any:
    if match is None:
        return float(bare) if _NOT_FINITE.fullmatch(bare) else DOES_NOT_FIT
    point, digits, _ = _shape(match)
    if not point and digits > MOST_DIGITS:
        return DOES_NOT_FIT
    value = float(bare)
    if abs(value) == float("inf") or (pa.types.is_float32(type_) and abs(value) > 3.4028235677973366e38):
        return DOES_NOT_FIT
    return value


def _date(bare: str) -> Any:
    match = _DATE.fullmatch(bare)
    if match is None:
        return DOES_NOT_FIT
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return DOES_NOT_FIT


def parse_timestamp(bare: str, type_: pa.DataType) -> Any:
    """An instant (or, without a zone in the type, a wall-clock time) from a date or timestamp, or `DOES_NOT_FIT`."""
    day = _date(bare)
    if day is not DOES_NOT_FIT:
        value = datetime(day.year, day.month, day.day)
    else:
        value = _timestamp(bare, zoned=type_.tz is not None)
        if value is DOES_NOT_FIT:
            return DOES_NOT_FIT
    return value if type_.tz is None else value.replace(tzinfo=UTC)


def _timestamp(bare: str, zoned: bool = True) -> Any:
    """A timestamp in UTC, without its zone attached; one that names a zone fits only where a zone may stand."""
    match = _TIME.fullmatch(bare)
    if match is None or (match[8] and not zoned):
        return DOES_NOT_FIT
    year, month, day, hour, minute, second, fraction, _, sign, zone_hours, zone_minutes = match.groups()
    try:
        value = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0))
        value = value.replace(microsecond=int((fraction or "").ljust(6, "0")))
        offset = timedelta(hours=int(zone_hours or 0), minutes=int(zone_minutes or 0))
        return value + offset if sign == "-" else value - offset
    except (ValueError, OverflowError):  # no such day, or an instant outside the years 1 to 9999
        return DOES_NOT_FIT
