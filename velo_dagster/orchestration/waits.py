"""How long sources have been away: what is told of that, and how often.

A source is *ready*; or *waiting*: a table that reads it can't be loaded; or *gone*: it was read before and is not there
any more. Loads go on without what is gone, and tables keep its rows, so its check still passes and it holds up nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from dagster import AssetCheckEvaluation, AssetKey, AssetObservation, MetadataValue

from velo_dagster.orchestration.checks import ready_evaluation
from velo_dagster.orchestration.specs import ProjectSpecs, SourceSpecs
from velo_dagster.sources.contract import Probe

READY, WAITING, GONE = "ready", "waiting", "gone"
_State = Literal["ready", "waiting", "gone"]


@dataclass
class Waits:
    """What a look at all sources found. `cursor`: what the next look has to know of this one."""

    cursor: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    news: list[AssetObservation | AssetCheckEvaluation] = field(default_factory=list)
    since: dict[AssetKey, float] = field(default_factory=dict)
    """When each source came into the state that it is in, as far as looks tell."""


def waits_of(specs: ProjectSpecs, before: Mapping[str, Any], looks: Mapping[AssetKey, Probe], interval: int) -> Waits:
    """Since when each source is away, the same in words, and events for those of which there is news.

    A source that stays away is told of ever more seldom: at the first, second, fourth, eighth … look.
    """
    now, found = time.time(), Waits()
    for source in specs.sources:
        look, name = looks[source.key], source.key.to_user_string()
        last, state = before.get(name) or {"since": now, "attempt": 0}, _state(look)
        stays = last.get("state") == state
        since = last["since"] if stays else now
        found.since[source.key] = since
        if state == READY:
            found.cursor[name] = {"state": state, "since": since, "attempt": 0}
            if not stays:
                found.news += _told(source, look, state, state, last["since"] or now, last["attempt"] + 1)
            continue
        attempt = (last["attempt"] if stays else 0) + 1
        found.cursor[name] = {"state": state, "since": since, "attempt": attempt}
        found.reasons.append(_away(source, look, since, attempt, now + interval))
        if attempt & (attempt - 1) == 0:
            found.news += _told(source, look, state, found.reasons[-1], since, attempt)
    return found


def _state(look: Probe) -> _State:
    if not look.ready:
        return WAITING
    return GONE if look.gone else READY


def _away(source: SourceSpecs, look: Probe, since: float, attempt: int, again: float) -> str:
    label = source.node.label
    return (
        f"{f'{label} is gone' if look.gone else f'waiting for {label}'} since {_time(since)}, attempt {attempt}, "
        f"next look {_time(again)}, category {look.category}: {_brief(look.message)}"
    )


def _brief(message: str) -> str:
    """The sentence and the first thing to do; the source's check has all of it."""
    lines = message.splitlines()
    return "\n".join([lines[0], *(line for line in lines if line.startswith("  1. "))])


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _told(
    source: SourceSpecs, look: Probe, state: _State, said: str, since: float, attempt: int
) -> list[AssetObservation | AssetCheckEvaluation]:
    """`since`: when the wait began that goes on, or has just ended; `attempt`: the looks that it took so far."""
    metadata: dict[str, Any] = {
        "velo/state": state,
        "velo/category": look.category or READY,
        "velo/since": MetadataValue.timestamp(since),
        "velo/attempt": attempt,
        "velo/message": look.message,
    }
    return [AssetObservation(source.key, description=said, metadata=metadata), ready_evaluation(source, look)]
