"""The commands that need Dagster's world: `check`, which runs asset checks alone, and `dev`, which shows the UI."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from velo_dagster.cli_output import count, say, show
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
    root = path if path.is_dir() else path.parent
    home = Path(os.environ.get("DAGSTER_HOME") or root / HOME).absolute()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        (home / "dagster.yaml").write_text(INSTANCE)
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
    module = "velo_dagster.orchestration.location"
    command = [sys.executable, "-m", "dagster", "dev", "-m", module, "-h", host, "-p", str(port)]
    os.execve(sys.executable, command, environment)
