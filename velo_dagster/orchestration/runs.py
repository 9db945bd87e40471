"""What Dagster knows of a table's runs: whether one is on its way, and whether a failed load should be tried again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Sequence
from typing import Any

from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    EventLogEntry,
    RunRecord,
    RunsFilter,
)

from velo_dagster.orchestration.processes import PROCESS, is_gone
from velo_dagster.orchestration.specs import TableSpecs

TABLE, LOAD, SEEN, ATTEMPT = "velo/table", "velo/load", "velo/seen", "velo/attempt"
BULK, REFRESH = "bulk_load", "full_refresh"
LOADING = (BULK, REFRESH)
"""Our jobs that load every table."""
GOING = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
FIRST_WAIT, LONGEST_WAIT = 60.0, 3600.0
LONGEST_START = 300.0
BEGINNING = (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING)
WORKING = (DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)


class Runs:
    """Runs of one instance as they are when this is made. `assets`: all that are a project's.

    A run that has ended before that shows in its table, if that is looked at afterwards. Whoever looks at a table first
    can miss a run in both.
    """

    def __init__(self, instance: DagsterInstance, assets: Collection[AssetKey]) -> None:
        self._instance = instance
        self._assets = frozenset(assets)
        self._going = self._alive()

    def going(self, table: TableSpecs) -> DagsterRun | None:
        """A run that is on its way and loads this table, whoever started it: also by one of its increments alone."""
        keys = {table.key} if table.increments is None else {table.key, table.increments.key}
        return next((run for run in self._going if self._loads(run, keys)), None)

    @staticmethod
    def _loads(run: DagsterRun, keys: Collection[AssetKey]) -> bool:
        """A run of a whole job says no assets; ours load everything."""
        return run.job_name in LOADING if run.asset_selection is None else not run.asset_selection.isdisjoint(keys)

    def _alive(self) -> list[DagsterRun]:
        """The runs that are on their way. One of ours whose process died is ended."""
        found = self._instance.get_run_records(RunsFilter(statuses=GOING))
        return [one.dagster_run for one in found if not self._died(one)]

    def _died(self, record: RunRecord) -> bool:
        """A run worker that was killed leaves its run as it was for ever, and nothing would load the table again."""
        run = record.dagster_run
        waited = time.time() - record.update_timestamp.timestamp()
        if run.status in WORKING and is_gone(run.tags):
            why = f"The process of this run ({run.tags[PROCESS]}) is gone."
        elif run.status in BEGINNING and self._is_ours(run) and waited > LONGEST_START:
            why = f"This run has not begun within {LONGEST_START:.0f} s; its process is taken to be gone."
        else:
            return False
        if run.status == DagsterRunStatus.CANCELING:
            self._instance.report_run_canceled(run, why)
        else:
            self._instance.report_run_failed(run, why)
        return True

    def _is_ours(self, run: DagsterRun) -> bool:
        return run.job_name in LOADING if run.asset_selection is None else run.asset_selection <= self._assets

    def attempt(self, table: str, load: int, seen: Sequence[Any]) -> tuple[int, str]:
        """Which attempt at a load the next run is, and why it should wait, if it should.

        What failed is tried again when its source changes, else after a minute, two, four, at most an hour. What was
        killed is tried again at once, the first time.
        """
        asked = RunsFilter(tags={TABLE: table, LOAD: str(load)})
        newest = self._instance.get_run_records(asked, limit=1)
        if not newest:
            return 1, ""
        last, count = newest[0], self._instance.get_runs_count(asked)
        attempt = int(last.dagster_run.tags.get(ATTEMPT, count)) + 1
        if last.dagster_run.tags.get(SEEN) != self.mark(seen) or (count == 1 and self._was_killed(last.dagster_run)):
            return attempt, ""
        ended = last.end_time or last.update_timestamp.timestamp()
        again = ended + min(FIRST_WAIT * 2 ** min(count - 1, 10), LONGEST_WAIT)
        if time.time() >= again:
            return attempt, ""
        at = time.strftime("%H:%M:%S UTC", time.gmtime(again))
        run = last.dagster_run
        ended_as = f"load {load} ended as {run.status.value.lower()} in run {run.run_id[:8]}"
        again_when = f"it is tried again when something changes, or at {at}"
        return attempt, "\n".join([f"{ended_as}; {again_when}", *self._reasons(run)])

    def _was_killed(self, run: DagsterRun) -> bool:
        """Whether it ended although no step of it failed. Who noticed, we or Dagster, does not matter."""
        return run.status == DagsterRunStatus.FAILURE and not self._failures(run)

    def _reasons(self, run: DagsterRun) -> list[str]:
        """What the steps of a run failed with, a line each; all of it is in the run's log."""
        found = [entry.get_dagster_event().step_failure_data for entry in self._failures(run)]
        told = [one.user_failure_data.description if one.user_failure_data else None for one in found]
        whole = [said or (one.error.message if one.error else "") for said, one in zip(told, found, strict=True)]
        return [text.strip().partition("\n")[0] for text in whole if text.strip()]

    def _failures(self, run: DagsterRun) -> Sequence[EventLogEntry]:
        return self._instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)

    @staticmethod
    def mark(seen: Sequence[Any]) -> str:
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
