"""Waiting for a source: how long between two tries, when to give up, and what was counted on the way.

Only errors of type `Transient` are worth another try. Clock and sleep come from the caller, so a test waits in no time.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeVar

import tenacity

from velo_dagster.errors import Transient
from velo_dagster.sources.errors import SourceError
from velo_dagster.sql.forms import MULTIPLIER, STRATEGY
from velo_dagster.sql.properties import BadProperty

T = TypeVar("T")
Strategy = Literal["fixed", "linear", "exponential"]

_MULTIPLIER = Decimal("1.5")


@dataclass(frozen=True)
class RetryPolicy:
    """How long a started load waits for a source, and how often it looks. All times are seconds."""

    timeout: Decimal = Decimal(0)
    interval: Decimal = Decimal(2)
    strategy: Strategy = "exponential"
    multiplier: Decimal = _MULTIPLIER
    increment: Decimal | None = None
    max_delay: Decimal = Decimal(120)

    def delay(self, attempt: int) -> Decimal:
        """Seconds to wait after try number `attempt`, counted from 0.

        >>> [str(RetryPolicy(interval=Decimal(1)).delay(n)) for n in (0, 1, 2, 3, 1000)]
        ['1', '1.5', '2.25', '3.375', '120']
        """
        if self.strategy == "fixed":
            return self.interval
        if self.strategy == "linear":
            step = self.interval if self.increment is None else self.increment
            return min(self.interval + step * attempt, self.max_delay)
        return self._exponential(attempt)

    def _exponential(self, attempt: int) -> Decimal:
        # Multiplied step by step and stopped at the cap: a power of a large attempt would overflow.
        delay = self.interval
        if delay == 0 or self.multiplier <= 1:
            return min(delay, self.max_delay)
        for _ in range(attempt):
            if delay >= self.max_delay:
                break
            delay *= self.multiplier
        return min(delay, self.max_delay)


@dataclass
class RetryMetrics:
    """What was counted while waiting; shown in the source's metadata."""

    attempts: int = 0
    retries: int = 0
    successes: int = 0
    timeouts: int = 0
    waited: float = 0.0
    categories: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        return {
            "attempts": self.attempts,
            "retries": self.retries,
            "waited_seconds": round(self.waited, 3),
            "successes": self.successes,
            "timeouts": self.timeouts,
            "errors": dict(sorted(self.categories.items())),
        }


@dataclass(frozen=True)
class Clock:
    """Time as the retry sees it: seconds that only rise, and a way to let them pass."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def call(
    attempt: Callable[[], T],
    policy: RetryPolicy,
    *,
    waiting_for: str,
    metrics: RetryMetrics | None = None,
    clock: Clock | None = None,
    on_wait: Callable[[Any, float], None] | None = None,
    only: tuple[type[Exception], ...] | None = None,
) -> T:
    """Try until it works, the time is up, or an error comes that waiting can't mend. Messages name `waiting_for`.

    `only`: the errors to try again after, instead of all that may pass; in the end they come as they are.
    """
    clock = clock or Clock()
    deadline = clock.monotonic() + float(policy.timeout)
    tries = _Tries(policy, metrics if metrics is not None else RetryMetrics(), clock, deadline, on_wait)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            _worth_another_try if only is None else lambda error: isinstance(error, only)
        ),
        stop=tries.are_over,
        wait=tries.wait,
        sleep=clock.sleep,
        before_sleep=tries.tell,
        reraise=True,
    )
    try:
        return retrying(lambda: tries.count(attempt))
    except SourceError as error:
        if policy.timeout == 0 or only is not None or not isinstance(error, Transient):
            raise
        tries.metrics.timeouts += 1
        raise error.after_waiting(shown_seconds(policy.timeout), waiting_for) from error


@dataclass(frozen=True)
class _Tries:
    """What happens around the tries of one call, in tenacity's terms."""

    policy: RetryPolicy
    metrics: RetryMetrics
    clock: Clock
    deadline: float
    on_wait: Callable[[Any, float], None] | None

    def count(self, attempt: Callable[[], T]) -> T:
        self.metrics.attempts += 1
        try:
            result = attempt()
        except SourceError as error:
            self.metrics.categories[error.category] += 1
            raise
        self.metrics.successes += 1
        return result

    def are_over(self, state: tenacity.RetryCallState) -> bool:
        return self.clock.monotonic() >= self.deadline

    def wait(self, state: tenacity.RetryCallState) -> float:
        # The last wait is shortened to the deadline, so that there is always one try at its very end.
        left = max(self.deadline - self.clock.monotonic(), 0.0)
        return min(float(self.policy.delay(state.attempt_number - 1)), left)

    def tell(self, state: tenacity.RetryCallState) -> None:
        self.metrics.retries += 1
        self.metrics.waited += float(state.upcoming_sleep)
        error = state.outcome.exception() if state.outcome else None
        if self.on_wait and error is not None:
            self.on_wait(error, float(state.upcoming_sleep))


def _worth_another_try(error: BaseException) -> bool:
    return isinstance(error, SourceError) and isinstance(error, Transient)


def shown_seconds(seconds: Decimal) -> str:
    """
    >>> shown_seconds(Decimal("2")), shown_seconds(Decimal("0.5")), shown_seconds(Decimal("300"))
    ('2s', '0.5s', '300s')
    """
    return f"{seconds.normalize():f}s"


def policy_of(
    properties: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> tuple[RetryPolicy, tuple[str, ...]]:
    """The policy that resolved properties and the environment describe, and warnings about what could not be used."""
    environ = os.environ if environ is None else environ
    warnings: list[str] = []
    interval = _seconds(properties, "retry.interval", environ, "RETRY_INTERVAL_SECS", Decimal(2))
    policy = RetryPolicy(
        timeout=properties.get("wait.timeout", Decimal(0)),
        interval=interval,
        strategy=_strategy(properties, environ, warnings),
        multiplier=_multiplier(properties, environ, warnings),
        increment=properties.get("retry.increment"),
        max_delay=_seconds(properties, "retry.max.delay", environ, "RETRY_MAX_DELAY_SECS", Decimal(120)),
    )
    return policy, tuple(warnings)


def from_environment(environ: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """The variable and its value: `VELO_name` first, `VELOSTREAM_name` else."""
    for prefix in ("VELO_", "VELOSTREAM_"):
        value = environ.get(prefix + name)
        if value is not None and value.strip():
            return prefix + name, value.strip()
    return None


def _seconds(
    properties: Mapping[str, Any], key: str, environ: Mapping[str, str], variable: str, default: Decimal
) -> Decimal:
    if properties.get(key) is not None:
        return properties[key]
    found = from_environment(environ, variable)
    if found is None:
        return default
    value = _decimal(found[1])
    if value is None or value < 0:
        raise BadProperty(found[0], found[1], "a number of seconds")
    return value


def _strategy(properties: Mapping[str, Any], environ: Mapping[str, str], warnings: list[str]) -> Strategy:
    key, value = "retry.strategy", properties.get("retry.strategy")
    if value is None:
        found = from_environment(environ, "RETRY_STRATEGY")
        if found is None:
            return "exponential"
        key, value = found
    try:
        return STRATEGY.read(value)
    except ValueError:
        warnings.append(f"'{key}' = '{value}' is not {STRATEGY.described}; fixed is used.")
        return "fixed"


def _multiplier(properties: Mapping[str, Any], environ: Mapping[str, str], warnings: list[str]) -> Decimal:
    key, value = "retry.multiplier", properties.get("retry.multiplier")
    if value is None:
        found = from_environment(environ, "RETRY_MULTIPLIER")
        if found is None:
            return _MULTIPLIER
        key, value = found
    try:
        return MULTIPLIER.read(value)
    except ValueError:
        warnings.append(f"'{key}' = '{value}' is not {MULTIPLIER.described}; {_MULTIPLIER} is used.")
        return _MULTIPLIER


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
