"""Doubles as whole numbers, in Spark SQL: one for each `WIDTH` bits of a fixed stretch of binary places.

`rint(x / 2^w) - rint(x / 2^(w + WIDTH)) * 2^WIDTH` is the digit of x at place w: both terms are doubles without
rounding, and their difference is at most 2^(WIDTH - 1). All digits of x together are x, if its bits lie within the
stretch. So 2^32 rows can be added before a BIGINT overflows, which is an error.

Digits of squares and products are made in Python (`velo_dagster.engine.exact`): as an expression they are so long that
Spark takes seconds to plan them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from velo_dagster.sql.splice import Part

WIDTH = 32

Text = tuple[Part, ...]


@dataclass(frozen=True)
class Stretch:
    """Binary places from `lowest` on, `count` times WIDTH of them."""

    lowest: int
    count: int

    @property
    def below(self) -> int:
        """Numbers less than two to the power of this have all their high bits in it."""
        return self.lowest + WIDTH * self.count - 1


NEAR = Stretch(-160, 8)
"""Holds numbers from 3e-33 to 4e28, and all smaller ones that have few bits."""
NEAR_FACTOR, NEAR_PRODUCT = Stretch(-100, 5), Stretch(-200, 10)
"""Numbers from 7e-15 to 5e17 and their products. A product has its bits there if both factors have theirs."""
EVERY = Stretch(-1074, 66)
"""Holds every double."""


def joined(texts: Iterable[Text], between: str) -> Text:
    """
    >>> joined([("a",), ("b", "c")], " + ")
    ('a', ' + ', 'b', 'c')
    """
    return tuple(part for number, text in enumerate(texts) for part in ((between, *text) if number else text))


def digits(value: Text, stretch: Stretch) -> list[Text]:
    """The digits of numbers that lie within the stretch."""
    return [_digit(value, stretch, number) for number in range(stretch.count)]


def far_digits(value: Text) -> list[Text]:
    """The digits of any finite double."""
    return [_far_digit(value, number) for number in range(EVERY.count)]


def less(value: Text, power: int | None) -> Text:
    """|value| < 2^power; without one, whether it is finite. NaN is greater than all numbers."""
    limit = "double('Infinity')" if power is None else _number(2.0**power)
    return ("abs(", *value, f") < {limit}")


def within(value: Text, stretch: Stretch) -> Text:
    """Whether all bits of the value lie within the stretch."""
    scaled = _scaled(value, -stretch.lowest)
    return (*less(value, stretch.below), " AND rint(", *scaled, ") = ", *scaled)


def _digit(value: Text, stretch: Stretch, number: int) -> Text:
    """The last one holds all that is above."""
    place = stretch.lowest + WIDTH * number
    here = ("rint(", *_scaled(value, -place), ")")
    above = (" - rint(", *_scaled(value, -place - WIDTH), f") * {_number(2.0**WIDTH)}")
    return ("CAST(", *here, *(() if number == stretch.count - 1 else above), " AS BIGINT)")


def _far_digit(value: Text, number: int) -> Text:
    """Numbers that are so large or small that the digit is 0 are left out: they can't be scaled to this place."""
    place = EVERY.lowest + WIDTH * number
    top = place + WIDTH + 54
    here = less(value, top if top < 1024 else None)
    if number:
        here = (*here, " AND abs(", *value, f") >= {_number(2.0 ** (place - 1))}")
    digit = _digit(value, EVERY, number)
    return ("CASE WHEN ", *here, " THEN ", *digit, " WHEN ", *less(value, None), " THEN 0L END")


def _scaled(value: Text, power: int) -> Text:
    """value * 2^power; a double may not hold the factor."""
    first = max(-1000, min(1000, power))
    rest = f" * {_number(2.0 ** (power - first))}" if power != first else ""
    return ("(", *value, f" * {_number(2.0**first)}{rest})")


def _number(value: float) -> str:
    return f"{value!r}D"
