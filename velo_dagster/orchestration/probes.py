"""Bounded looks at sources, many at once: a tick never waits for the slowest of them.

What hangs can't be ended, only left alone: its thread goes on. So that ticks don't add one after another, a source
whose earlier look still hangs is not looked at again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

from dagster import AssetKey

from velo_dagster.engine.landings import delivered
from velo_dagster.errors import VeloError
from velo_dagster.orchestration.specs import ProjectSpecs, SourceSpecs
from velo_dagster.sources.contract import Position, Probe, Source
from velo_dagster.sources.registry import open_source

LOOKERS = 8
SECONDS = 5.0
"""So long one look is waited for."""
ALL_SECONDS = 20.0
"""So long all of them: no tick may last longer than Dagster lets it."""


@dataclass(frozen=True)
class _Asked:
    """One source as one table reads it, from where that table is."""

    key: AssetKey
    source: Source
    since: Position | None


@dataclass
class _Look:
    """One call for several sources of one server, in a thread of its own, which nobody waits for at the end."""

    asked: list[_Asked] = field(default_factory=list)
    answer: Future[list[Probe]] = field(default_factory=Future)
    began: float = 0.0

    def begin(self) -> None:
        self.began = time.monotonic()
        threading.Thread(target=self._run, name="velo-probe", daemon=True).start()

    def _run(self) -> None:
        try:
            sources = [(one.source, one.since) for one in self.asked]
            self.answer.set_result(type(sources[0][0]).probe_together(sources))
        except BaseException as error:  # noqa: BLE001 - whoever takes the answer gets it
            self.answer.set_exception(error)

    def waited_for(self) -> bool:
        return not self.answer.done() and time.monotonic() - self.began < SECONDS


class Looker:
    """Looks at sources of one project, again and again."""

    def __init__(self, specs: ProjectSpecs) -> None:
        self._specs = specs
        self._hanging: dict[Hashable, _Look] = {}

    def look_at(self, sources: Sequence[SourceSpecs]) -> Mapping[AssetKey, Probe]:
        """A look at each source, side by side, those of one server in one call; one that takes too long does not
        answer. Ready means that every table that reads it could go on from where it is.
        """
        found: dict[AssetKey, list[Probe]] = {one.key: [] for one in sources}
        looks: dict[Hashable, _Look] = {}
        for one in sources:
            for plan, planned in one.node.readers:
                try:
                    source = open_source(planned, self._specs.project.root, {})
                    record = self._specs.warehouse.table(plan.name).record()
                    asked = _Asked(one.key, source, delivered(self._specs.warehouse, plan, planned, record))
                except VeloError as error:
                    found[one.key].append(Probe(False, str(error), getattr(error, "category", "config")))
                    continue
                alone = source.server is None
                group = (plan.name, planned.name) if alone else (type(source), source.server)
                looks.setdefault(group, _Look()).asked.append(asked)
        self._hanging = {group: look for group, look in self._hanging.items() if not look.answer.done()}
        _look([look for group, look in looks.items() if group not in self._hanging])
        for group, look in looks.items():
            for asked, probe in zip(look.asked, self._answers(group, look), strict=True):
                found[asked.key].append(probe)
        return {key: _worst(looks) for key, looks in found.items()}

    def _answers(self, group: Hashable, look: _Look) -> Sequence[Probe]:
        if group in self._hanging:
            waited = time.monotonic() - self._hanging[group].began
            said = f"A look that began {waited:.0f} s ago has not ended, so no other was begun."
        elif look.answer.done():
            return look.answer.result()
        elif look.began:
            self._hanging[group] = look
            said = f"It did not answer within {SECONDS:.0f} s."
        else:
            said = f"Others took {ALL_SECONDS:.0f} s, so there was no time to look at it."
        return [Probe(False, said, "network")] * len(look.asked)


def _worst(looks: Iterable[Probe]) -> Probe:
    """Of the looks at one source, one for each table that reads it, the one that is to be told."""
    return min(looks, key=lambda look: (look.ready, not look.gone))


def _look(looks: Iterable[_Look]) -> None:
    """Begin all of them, so many at a time, and wait; one that takes too long gives its place to the next."""
    left, going = deque(looks), list[_Look]()
    until = time.monotonic() + ALL_SECONDS
    while (left or going) and (now := time.monotonic()) < until:
        while left and len(going) < LOOKERS:
            going.append(left.popleft())
            going[-1].begin()
        next_end = min(look.began + SECONDS for look in going)
        wait([look.answer for look in going], max(0.0, min(next_end, until) - now), FIRST_COMPLETED)
        going = [look for look in going if look.waited_for()]
