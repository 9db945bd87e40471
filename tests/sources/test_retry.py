"""A user who waits for a source gets exactly the delays that were asked for, and a count of what happened."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from velo_dagster.sources import retry
from velo_dagster.sources.errors import MissingSource, SourceRefused
from velo_dagster.sources.retry import RetryMetrics, RetryPolicy, policy_of
from velo_dagster.sql.properties import BadProperty, resolve

CASES = json.loads((Path(__file__).parent.parent / "fixtures/sources/retry_delays.json").read_text())


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def clock(self) -> retry.Clock:
        return retry.Clock(lambda: self.now, self.sleep)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_delays(case: dict) -> None:
    policy, warnings = policy_of(resolve("kafka", case["properties"]).values, {})
    assert {attempt: policy.delay(int(attempt)) for attempt in case["delays"]} == {
        attempt: Decimal(delay) for attempt, delay in case["delays"].items()
    }
    assert [case["warning"] in warning for warning in warnings] == ([True] if "warning" in case else [])


def test_environment_is_used_where_a_property_is_absent() -> None:
    environ = {
        "VELOSTREAM_RETRY_INTERVAL_SECS": "7",
        "VELO_RETRY_STRATEGY": "fixed",
        "VELOSTREAM_RETRY_STRATEGY": "linear",
        "VELO_RETRY_MAX_DELAY_SECS": "9",
        "VELO_RETRY_MULTIPLIER": "3",
    }
    policy, _ = policy_of(resolve("file", {}).values, environ)
    assert policy == RetryPolicy(interval=Decimal(7), strategy="fixed", multiplier=Decimal(3), max_delay=Decimal(9))
    own, _ = policy_of(resolve("file", {"file.retry.interval": "1s", "retry.strategy": "linear"}).values, environ)
    assert (own.interval, own.strategy) == (Decimal(1), "linear")


def test_a_wrong_environment_variable_is_named() -> None:
    with pytest.raises(BadProperty, match="VELO_RETRY_INTERVAL_SECS"):
        policy_of({}, {"VELO_RETRY_INTERVAL_SECS": "soon"})


def test_zero_timeout_is_one_try() -> None:
    time, metrics = FakeTime(), RetryMetrics()
    with pytest.raises(MissingSource, match="gone"):
        retry.call(missing, RetryPolicy(), waiting_for="file 'p'", metrics=metrics, clock=time.clock)
    assert time.slept == []
    assert metrics.as_dict() == {
        "attempts": 1,
        "retries": 0,
        "waited_seconds": 0.0,
        "successes": 0,
        "timeouts": 0,
        "errors": {"missing": 1},
    }


def test_waiting_ends_at_the_deadline_with_a_last_try() -> None:
    time, metrics = FakeTime(), RetryMetrics()
    policy = RetryPolicy(timeout=Decimal(5), interval=Decimal(2), strategy="fixed")
    with pytest.raises(MissingSource) as caught:
        retry.call(missing, policy, waiting_for="file 'p'", metrics=metrics, clock=time.clock)
    assert time.slept == [2, 2, 1]
    assert caught.value.what.startswith("Timeout waiting for file 'p' after 5s. ")
    assert caught.value.steps == ("look",)
    assert metrics.as_dict() == {
        "attempts": 4,
        "retries": 3,
        "waited_seconds": 5.0,
        "successes": 0,
        "timeouts": 1,
        "errors": {"missing": 4},
    }


def test_what_turns_up_is_taken() -> None:
    time, metrics, tries = FakeTime(), RetryMetrics(), iter([missing, missing, lambda: "here"])
    policy = RetryPolicy(timeout=Decimal(60), interval=Decimal(1), multiplier=Decimal(2))
    found = retry.call(lambda: next(tries)(), policy, waiting_for="x", metrics=metrics, clock=time.clock)
    assert (found, time.slept) == ("here", [1, 2])
    assert metrics.as_dict() == {
        "attempts": 3,
        "retries": 2,
        "waited_seconds": 3.0,
        "successes": 1,
        "timeouts": 0,
        "errors": {"missing": 2},
    }


def test_no_waiting_for_what_waiting_cannot_mend() -> None:
    def refused() -> str:
        raise SourceRefused("no")

    time, metrics = FakeTime(), RetryMetrics()
    with pytest.raises(SourceRefused):
        retry.call(refused, RetryPolicy(timeout=Decimal(60)), waiting_for="x", metrics=metrics, clock=time.clock)
    assert time.slept == []
    assert metrics.categories == {"auth": 1}


def missing() -> str:
    raise MissingSource("It is gone.", steps=["look"])
