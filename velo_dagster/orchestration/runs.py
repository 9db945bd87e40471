"""What Dagster knows of a table's runs: whether one is on its way, and whether a failed load should be tried again."""

from __future__ import annotations

import hashlib
import time

from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from velo_dagster.orchestration.processes import PROCESS, is_gone

TABLE, LOAD, SEEN = "velo/table", "velo/load", "velo/seen"
GOING = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
FIRST_WAIT, LONGEST_WAIT = 60.0, 3600.0


class Runs:
    """Runs of one instance, looked up at most once per tick."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance
        self._going: list[DagsterRun] | None = None

    def going(self, key: AssetKey) -> DagsterRun | None:
        """A run that is on its way and loads this table, whoever started it. One whose process died is ended."""
        if self._going is None:
            found = self._instance.get_runs(RunsFilter(statuses=GOING))
            self._going = [run for run in found if not self._died(run)]
        return next((run for run in self._going if _loads(run, key)), None)

    def _died(self, run: DagsterRun) -> bool:
        """A run worker that was killed leaves its run as started for ever, and nothing would load the table again."""
        if run.status != DagsterRunStatus.STARTED or not is_gone(run.tags):
            return False
        self._instance.report_run_failed(run, f"The process of this run ({run.tags[PROCESS]}) is gone.")
        return True

    def attempt(self, table: str, load: int, seen: str) -> tuple[int, str]:
        """Which attempt at a load the next run is, and why it should wait, if it should.

        What failed is tried again when its source changes, else after a minute, two, four, at most an hour.
        """
        tags = {TABLE: table, LOAD: str(load)}
        records = self._instance.get_run_records(RunsFilter(tags=tags), limit=100)
        if not records:
            return 1, ""
        last = records[0]
        attempt = len(records) + 1
        if last.dagster_run.tags.get(SEEN) != self.mark(seen):
            return attempt, ""
        ended = last.end_time or last.update_timestamp.timestamp()
        again = ended + min(FIRST_WAIT * 2 ** (len(records) - 1), LONGEST_WAIT)
        if time.time() >= again:
            return attempt, ""
        at = time.strftime("%H:%M:%S UTC", time.gmtime(again))
        run = last.dagster_run
        ended_as = f"load {load} ended as {run.status.value.lower()} in run {run.run_id[:8]}"
        return attempt, f"{ended_as}; it is tried again when its source changes, or at {at}"

    @staticmethod
    def mark(seen: str) -> str:
        return hashlib.sha256(seen.encode()).hexdigest()[:16]


def _loads(run: DagsterRun, key: AssetKey) -> bool:
    """A run of a whole job says no assets: then it is taken to load everything."""
    return run.asset_selection is None or key in run.asset_selection
