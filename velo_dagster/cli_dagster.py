"""The commands that need Dagster's world: `check`, which runs asset checks alone, and `dev`, which shows the UI."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from velo_dagster.cli_output import say, show
from velo_dagster.engine.report import count
from velo_dagster.errors import Terminal, VeloError

if TYPE_CHECKING:
    from velo_dagster.engine.session import Engine
    from velo_dagster.plan.project import Project, TablePlan
    from velo_dagster.store.table import Warehouse

HOME = ".velo/dagster"
INSTANCE = """\
# Made by `velo-dagster dev`; yours to change. deploy/dagster.yaml says what production needs.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    granularity: run
    default_limit: 1
sensors:
  use_threads: true
  num_workers: 8
"""


class NoWebserver(Terminal, VeloError):
    """The packages of Dagster's UI are not installed."""

    code = "D704"

    def __init__(self) -> None:
        super().__init__("Dagster's UI is not installed.", steps=["pip install 'velo-dagster[ui]'"])


class AddressTaken(Terminal, VeloError):
    """The UI's address cannot be listened at."""

    code = "D706"

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(
            f"Dagster's UI can't listen at {host}:{port}: {why}.",
            steps=["Choose another port: --port 3001", "Or end what listens there."],
        )


class AlreadyServed(Terminal, VeloError):
    """Another `velo-dagster dev` runs over the same Dagster home."""

    code = "D707"

    def __init__(self, home: str) -> None:
        super().__init__(
            f"Another velo-dagster dev runs over {home}.",
            steps=["Use its UI, or end it.", "Or give this one a home of its own: DAGSTER_HOME=DIR velo-dagster dev …"],
        )


class NothingToCheck(Terminal, VeloError):
    """A selection without a check: that nothing failed would mean nothing."""

    code = "D705"

    def __init__(self, asked: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(
            f"There is no check to run: {', '.join(asked) or 'the project has no table'}.",
            steps=[f"Tables are {', '.join(known)}."] if known else ["Write one: CREATE TABLE name AS SELECT …"],
        )


def run_checks(project: Project, tables: Sequence[TablePlan], warehouse: Warehouse, engine: Engine) -> int:
    """Run every check of the tables, a line each; how many with severity ERROR have failed."""
    from velo_dagster.engine.checks import Standing, checks_of, run_check

    failed, warned, run = 0, 0, 0
    for table in tables:
        standing = Standing(project, warehouse, table, engine)
        for check in checks_of(table):
            finding = run_check(check, standing)
            run += 1
            severity = finding.severity(check)
            failed += not finding.passed and severity == "ERROR"
            warned += not finding.passed and severity == "WARN"
            word = "passed" if finding.passed else f"failed ({severity})"
            show(f"{table.name}.{check.name}: {word}: {finding.message}")
    say(f"{count(run, 'check')}: {failed} failed, {count(warned, 'warning')}")
    return failed


def serve(path: Path, host: str, port: int, every: int, warehouse: str | None) -> None:
    """Become Dagster's own development server over the project; returns only if it can't."""
    if find_spec("dagster_webserver") is None:
        raise NoWebserver
    _see_that_free(host, port)
    root = path if path.is_dir() else path.parent
    home = Path(os.environ.get("DAGSTER_HOME") or root / HOME).absolute()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        (home / "dagster.yaml").write_text(INSTANCE)
    _claim(home)
    workspace = home / "velo-workspace.yaml"
    workspace.write_text(_workspace(root.absolute().name or "project"))
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "VELO_PROJECT": str(path.absolute()),
        "VELO_SENSOR_SECONDS": str(every),
    }
    if warehouse is not None:
        environment["VELO_WAREHOUSE"] = warehouse if "://" in warehouse else str(Path(warehouse).absolute())
    # Dagster says that its command has a successor, which does the same.
    environment.setdefault("PYTHONWARNINGS", "ignore:Function `dev_command` is superseded")
    say(f"Dagster's UI: http://{host}:{port} (its own files: {home}). Ctrl-C ends it.")
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", host, "-p", str(port)]
    os.execve(sys.executable, command, environment)


def _see_that_free(host: str, port: int) -> None:
    """Dagster itself would go on without its UI."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise AddressTaken(host, port, error.strerror or str(error)) from error


def _claim(home: Path) -> None:
    """Two daemons over one instance would start every load twice. The lock lasts as long as this process."""
    lock = os.open(home / "velo-dev.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AlreadyServed(str(home)) from error
    os.set_inheritable(lock, True)


def _workspace(name: str) -> str:
    """Dagster's list of code locations: ours, called like the project's folder. (JSON is YAML.)"""
    module = {"module_name": "velo_dagster.orchestration.location", "location_name": name}
    return json.dumps({"load_from": [{"python_module": module}]})
