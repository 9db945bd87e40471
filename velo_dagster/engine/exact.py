"""Statistics from exact sums: computed with whole numbers, rounded once.

A moment is a whole number, times a power of two: the sum of the values, of their squares, of their products. So what
the rows were cut into, and in which order they came, makes no difference. Answers over too few rows, over values that
are all the same, and over infinities and NaN are those of Spark; only CORR over values that are all the same is NULL,
where Spark in ANSI mode divides by zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from velo_dagster.sql.digits import NEAR_FACTOR, NEAR_PRODUCT, WIDTH, Stretch
from velo_dagster.sql.floats import BEYOND


@dataclass(frozen=True)
class Moments:
    """Sums over n rows: of x, y, x², y², xy, and of x³ and x⁴. A sum of products of k values counts in 2^(k·unit)."""

    n: int
    unit: int
    x: int = 0
    y: int = 0
    xx: int = 0
    yy: int = 0
    xy: int = 0
    xxx: int = 0
    xxxx: int = 0

    @property
    def sxx(self) -> int:
        """n times the sum of squared distances from the mean."""
        return self.n * self.xx - self.x * self.x

    @property
    def syy(self) -> int:
        return self.n * self.yy - self.y * self.y

    @property
    def sxy(self) -> int:
        return self.n * self.xy - self.x * self.y


def from_digits(
    function: str, lowest: Sequence[int], n: int, digits: Sequence[Sequence[int | None]], odd: float | None
) -> float | None:
    """The function's value from the digits of each sum, beginning at the binary places `lowest`.

    `odd`: the sum of infinities and NaN, if there are some.
    """
    if odd is not None:
        return _of_odd(function, n, odd)
    sums = [sum((digit or 0) << (WIDTH * place) for place, digit in enumerate(one)) for one in digits]
    if len(sums) == 5:
        x, y, xx, yy, xy = sums
        return value_of(function, Moments(n, lowest[0], x, y, xx, yy, xy))
    x, xx = (*sums, 0)[:2]
    return value_of(function, Moments(n, lowest[0], x, xx=xx))


def from_list(function: str, rows: Sequence[Sequence[float]]) -> float | None:
    """The function's value over rows of one or two values each."""
    values = [value for row in rows for value in row]
    odd = [value for value in values if not math.isfinite(value)]
    if odd:
        return _of_odd(function, len(rows), sum(odd))
    places = max((value.as_integer_ratio()[1].bit_length() - 1 for value in values), default=0)
    whole = [[_times_power(value, places) for value in row] for row in rows]
    x, y = [row[0] for row in whole], [row[-1] for row in whole]
    squares = [one * one for one in x]
    return value_of(
        function,
        Moments(
            n=len(rows),
            unit=-places,
            x=sum(x),
            y=sum(y),
            xx=sum(squares),
            yy=sum(one * one for one in y),
            xy=sum(one * other for one, other in zip(x, y, strict=True)),
            xxx=sum(one * other for one, other in zip(x, squares, strict=True)),
            xxxx=sum(one * one for one in squares),
        ),
    )


def digits_of(columns: Sequence[np.ndarray]) -> np.ndarray:
    """For each row of one or two finite values or odd ones: 1, whether one is odd, and the digits of all moments.

    A number beyond the near form is an error. Halves of 26 bits have products without rounding (Veltkamp, Dekker).
    """
    finite = np.logical_and.reduce([np.isfinite(column) for column in columns])
    values = [np.where(finite, column, 0.0) for column in columns]
    halves = []
    for value in values:
        scaled = np.ldexp(value, -NEAR_FACTOR.lowest)
        if (np.abs(value) >= 2.0**NEAR_FACTOR.below).any() or (np.rint(scaled) != scaled).any():
            raise ValueError(BEYOND)
        larger = value * (2.0**27 + 1)
        high = larger - (larger - value)
        halves.append((high, value - high))
    pairs = [(half, half) for half in halves] + ([(halves[0], halves[1])] if len(halves) == 2 else [])
    found = [np.ones(len(finite), np.int64), (~finite).astype(np.int64)]
    for value in values:
        found += _digits([value], NEAR_FACTOR)
    for one, other in pairs:
        found += _digits([a * b for a in one for b in other], NEAR_PRODUCT)
    return np.stack(found, axis=1)


def _digits(terms: Sequence[np.ndarray], stretch: Stretch) -> list[np.ndarray]:
    """As `velo_dagster.sql.digits` has them, of the terms' sum."""
    found = []
    for number in range(stretch.count):
        place = stretch.lowest + WIDTH * number
        last = number == stretch.count - 1
        digit = sum(
            np.rint(np.ldexp(term, -place)) - (0.0 if last else np.rint(np.ldexp(term, -place - WIDTH)) * 2.0**WIDTH)
            for term in terms
        )
        found.append(np.asarray(digit).astype(np.int64))
    return found


def value_of(function: str, of: Moments) -> float | None:
    """NULL where too few rows say anything."""
    return None if of.n == 0 else _FUNCTIONS[function](of)


def _times_power(value: float, places: int) -> int:
    above, below = value.as_integer_ratio()
    return above << (places - below.bit_length() + 1)


def _of_odd(function: str, n: int, odd: float) -> float | None:
    """An infinity or NaN makes a sum what it is itself, and all else NaN, unless there are too few rows."""
    if function in ("sum", "try_sum", "avg", "mean", "try_avg"):
        return math.nan if math.isnan(odd) else odd
    needs_two = function in ("corr", "covar_samp", "std", "stddev", "stddev_samp", "variance", "var_samp")
    return None if n == 1 and needs_two else math.nan


def _ratio(above: int, below: int, power: int) -> float:
    """above / below * 2^power, rounded once: the division of two whole numbers is."""
    above, below = (above << power, below) if power > 0 else (above, below << -power)
    try:
        return above / below
    except OverflowError:
        return math.inf if (above > 0) == (below > 0) else -math.inf


def _root(above: int, below: int, sign: int) -> float:
    """The root of a quotient, with the sign of a number."""
    return math.copysign(math.sqrt(_ratio(above, below, 0)), -1.0 if sign < 0 else 1.0)


def _mean(of: Moments) -> float:
    return _ratio(of.x, of.n, of.unit)


def _pop(numerator: int, of: Moments) -> float:
    return _ratio(numerator, of.n * of.n, 2 * of.unit)


def _samp(numerator: int, of: Moments) -> float | None:
    return None if of.n == 1 else _ratio(numerator, of.n * (of.n - 1), 2 * of.unit)


def _stddev(of: Moments) -> float | None:
    variance = _samp(of.sxx, of)
    return None if variance is None else math.sqrt(variance)


def _corr(of: Moments) -> float | None:
    if not of.sxx or not of.syy:
        return None
    return _root(of.sxy * of.sxy, of.sxx * of.syy, of.sxy)


def _r2(of: Moments) -> float | None:
    if not of.sxx:
        return None
    return _ratio(of.sxy * of.sxy, of.sxx * of.syy, 0) if of.syy else 1.0


def _swapped(of: Moments) -> Moments:
    """REGR functions name the dependent value first."""
    return Moments(of.n, of.unit, of.y, of.x, of.yy, of.xx, of.xy)


def _slope(of: Moments) -> float | None:
    return _ratio(of.sxy, of.sxx, 0) if of.sxx else None


def _intercept(of: Moments) -> float | None:
    return _ratio(of.y * of.sxx - of.sxy * of.x, of.n * of.sxx, of.unit) if of.sxx else None


def _skewness(of: Moments) -> float | None:
    """sqrt(n) m3 / m2^1.5, of sums of distances from the mean: n² m3 and n m2 are whole numbers."""
    if not of.sxx:
        return None
    third = of.n**2 * of.xxx - 3 * of.n * of.x * of.xx + 2 * of.x**3
    return _root(third * third, of.sxx**3, third)


def _kurtosis(of: Moments) -> float | None:
    """n m4 / m2² - 3: n³ m4 is a whole number."""
    if not of.sxx:
        return None
    n, x = of.n, of.x
    fourth = n**3 * of.xxxx - 4 * n**2 * x * of.xxx + 6 * n * x**2 * of.xx - 3 * x**4
    return _ratio(fourth - 3 * of.sxx**2, of.sxx**2, 0)


_FUNCTIONS: Mapping[str, Callable[[Moments], float | None]] = {
    **dict.fromkeys(("sum", "try_sum"), lambda of: _ratio(of.x, 1, of.unit)),
    **dict.fromkeys(("avg", "mean", "try_avg"), _mean),
    **dict.fromkeys(("variance", "var_samp"), lambda of: _samp(of.sxx, of)),
    **dict.fromkeys(("std", "stddev", "stddev_samp"), _stddev),
    "var_pop": lambda of: _pop(of.sxx, of),
    "stddev_pop": lambda of: math.sqrt(_pop(of.sxx, of)),
    "covar_pop": lambda of: _pop(of.sxy, of),
    "covar_samp": lambda of: _samp(of.sxy, of),
    "corr": _corr,
    "regr_sxx": lambda of: _ratio(of.sxx, of.n, 2 * of.unit),
    "regr_sxy": lambda of: _ratio(of.sxy, of.n, 2 * of.unit),
    "regr_r2": lambda of: _r2(_swapped(of)),
    "regr_slope": lambda of: _slope(_swapped(of)),
    "regr_intercept": lambda of: _intercept(_swapped(of)),
    "skewness": _skewness,
    "kurtosis": _kurtosis,
}
