"""A real `velo-dagster dev`, asked as the UI asks it: through GraphQL."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tenacity import RetryError, Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

T = TypeVar("T")
ENDED = ("SUCCESS", "FAILURE", "CANCELED")

LAUNCH = """mutation($p: ExecutionParams!) { launchPipelineExecution(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } ... on InvalidSubsetError { message } } }"""
RUNS = """{ runsOrError(limit: 50) { ... on Runs { results {
  runId status pipelineName tags { key value } assetSelection { path } } } } }"""
SENSORS = """query($s: RepositorySelector!) { sensorsOrError(repositorySelector: $s) { ... on Sensors { results {
  name sensorState { status } } } } }"""
# Asked for all sensors at once, Dagster shows no ticks after a restart.
TICKS = """query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor {
  sensorState { ticks(limit: 20) { status skipReason error { message } } } } } }"""
ASSET = """query($k: AssetKeyInput!) { assetOrError(assetKey: $k) { ... on Asset {
  assetMaterializations(limit: 20) { runId metadataEntries { label ... on IntMetadataEntry { intValue } } }
  definition { partitionStats { numMaterialized numFailed numPartitions } } } } }"""
CHECKS = """query($k: AssetKeyInput!) { assetOrError(assetKey: $k) { ... on Asset { definition { assetChecksOrError {
  ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } } } }"""
LOCATION = "{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } } }"
RELOAD = """mutation($n: String!) { reloadRepositoryLocation(repositoryLocationName: $n) {
  __typename ... on WorkspaceLocationEntry { locationOrLoadError { __typename } } } }"""


class Dev:
    """The process and all that it starts, in a session of its own, so that all of it can be ended."""

    def __init__(self, project: Path, environment: Mapping[str, str] | None = None) -> None:
        self.project = project
        self.environment = {**os.environ, **(environment or {})}
        self.environment.pop("DAGSTER_HOME", None)
        self.log = project / "dev.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Dev:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "velo_dagster.cli", "dev", str(self.project), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--every", "5"], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.until(lambda: bool(self._location()), 120, "the code location is there")

    def kill(self) -> None:
        """End everything at once, as a machine that goes down does."""
        if self._process is None:
            return
        for pid in _session(self._process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        self._process = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return found["data"]

    def _location(self) -> dict[str, str]:
        nodes = self.ask(LOCATION)["repositoriesOrError"].get("nodes") or []
        return (
            {"repositoryName": nodes[0]["name"], "repositoryLocationName": nodes[0]["location"]["name"]}
            if nodes
            else {}
        )

    def runs(self) -> list[dict[str, Any]]:
        return self.ask(RUNS)["runsOrError"]["results"]

    def ticks(self, sensor: str) -> list[dict[str, Any]]:
        found = self.ask(TICKS, s={**self._location(), "sensorName": sensor})["sensorOrError"]
        return found["sensorState"]["ticks"]

    def sensors(self) -> dict[str, str]:
        found = self.ask(SENSORS, s=self._location())["sensorsOrError"]["results"]
        return {one["name"]: one["sensorState"]["status"] for one in found}

    def asset(self, key: str) -> dict[str, Any]:
        return self.ask(ASSET, k={"path": key.split("/")})["assetOrError"]

    def loads(self, key: str) -> int:
        return len(self.asset(key).get("assetMaterializations") or ())

    def partitions(self, key: str) -> tuple[int, int]:
        """How many partitions are there, and how many have failed."""
        stats = self.asset(key)["definition"]["partitionStats"]
        return stats["numMaterialized"], stats["numFailed"]

    def checks(self, key: str) -> dict[str, str]:
        """How each check of a table stands for its newest load; empty where it has not spoken of that."""
        found = self.ask(CHECKS, k={"path": key.split("/")})["assetOrError"]["definition"]["assetChecksOrError"]
        said = {one["name"]: one["executionForLatestMaterialization"] for one in found["checks"]}
        return {name: one["status"] if one else "" for name, one in said.items()}

    # -- actions ------------------------------------------------------------------------------------------------------

    def launch(
        self,
        *keys: str,
        job: str = "__ASSET_JOB",
        partition: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> str:
        """Launch a run, and give its id."""
        selector: dict[str, Any] = {**self._location(), "pipelineName": job}
        if keys:
            selector["assetSelection"] = [{"path": key.split("/")} for key in keys]
        tags = [{"key": "dagster/partition", "value": partition}] if partition else []
        parameters = {"selector": selector, "runConfigData": config or {}, "executionMetadata": {"tags": tags}}
        answer = self.ask(LAUNCH, p={**parameters, "mode": "default"})["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def ended(self, run: str) -> str:
        """Wait for a run, and give how it ended."""
        states: Sequence[str] = self.until(
            lambda: [one["status"] for one in self.runs() if one["runId"] == run and one["status"] in ENDED],
            240,
            f"run {run} ends",
        )
        return states[0]

    def reload(self) -> None:
        self.ask(RELOAD, n=self._location()["repositoryLocationName"])

    def until(self, look: Callable[[], T], seconds: float, what: str) -> T:
        """Look until there is something; if there never is, fail with what was waited for."""
        patient = Retrying(
            stop=stop_after_delay(seconds),
            wait=wait_fixed(0.5),
            retry=retry_if_result(lambda found: not found)
            | retry_if_exception_type((urllib.error.URLError, ConnectionError)),
        )
        try:
            return patient(look)
        except RetryError as error:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])
            raise AssertionError(f"Not within {seconds} s: {what}.\n{tail}") from error


def _session(leader: int) -> list[int]:
    """All processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader:
                found.append(int(entry.name))
    return found
