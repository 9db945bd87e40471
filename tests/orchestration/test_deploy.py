"""What users copy: the instance file must be one that Dagster takes, and definitions/ a code location that loads."""

from __future__ import annotations

import fcntl
import re
import socket
import subprocess
import sys
from pathlib import Path

import yaml
from dagster import AssetKey, AssetSelection, Definitions, define_asset_job
from dagster._config import Shape, validate_config
from dagster._core.instance.config import dagster_instance_config_schema

from velo_dagster.cli_dagster import INSTANCE

ROOT = Path(__file__).parents[2]
SOURCES = [AssetKey(["file", name]) for name in ("data_users_jsonl", "data_deliveries_json", "data_orders_csv")]


def problems(text: str) -> list[str]:
    """What Dagster has against an instance file; it knows the form of the storage that dagster-postgres brings."""
    found = validate_config(Shape(dagster_instance_config_schema()), yaml.safe_load(text))
    return [error.message for error in found.errors or ()]


def test_the_instance_of_production_is_one_that_dagster_takes():
    text = (ROOT / "deploy/dagster.yaml").read_text()
    assert problems(text) == []
    assert list(yaml.safe_load(text)["storage"]) == ["postgres"]
    for right, wrong in (("sensors:", "sensrs:"), ("hostname:", "host:"), ("postgres_db:", "postgres_database:")):
        assert problems(text.replace(right, wrong)) != [], "the test itself must be able to fail"


def test_the_instance_of_dev_is_one_that_dagster_takes():
    assert problems(INSTANCE) == []


def dev(project: Path, port: int) -> subprocess.CompletedProcess[str]:
    """`velo-dagster dev` where it must refuse: were it to start, it would not end."""
    (project / "t.sql").write_text("CREATE TABLE t AS SELECT * FROM file://t.csv;")
    command = [sys.executable, "-m", "velo_dagster.cli", "dev", str(project), "--port", str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_dev_does_not_go_on_without_its_ui(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = dev(tmp_path, other.getsockname()[1])
    assert done.returncode == 1
    assert "error D706 Dagster's UI can't listen at 127.0.0.1:" in done.stderr


def test_two_daemons_do_not_share_an_instance(tmp_path: Path):
    home = tmp_path / ".velo/dagster"
    home.mkdir(parents=True)
    with (home / "velo-dev.lock").open("w") as lock, socket.create_server(("127.0.0.1", 0)) as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        port = other.getsockname()[1]
        other.close()
        done = dev(tmp_path, port)
    assert done.returncode == 1
    assert "error D707 Another velo-dagster dev runs over" in done.stderr


def test_definitions_is_a_code_location():
    from definitions import defs

    keys = {key.to_user_string() for key in defs.get_repository_def().asset_graph.get_all_asset_keys()}
    tables = ["users", "deliveries", "orders", "open_orders", "user_spending", "orders_by_city", "expensive_orders"]
    increments = ["users/increments", "deliveries/increments", "orders/increments"]
    assert keys == {*tables, *increments, *(source.to_user_string() for source in SOURCES)}
    assert yaml.safe_load((ROOT / "definitions/workspace.yaml").read_text()) == {
        "load_from": [{"python_module": "definitions"}]
    }


def test_definitions_come_with_their_data():
    """Where `make dev` and the code location look, the files are; but for the one that is meant to be waited for."""
    from definitions import defs

    served = re.search(r"velo-dagster dev (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert served is not None and (ROOT / served[1]).samefile(ROOT / "definitions")
    looks = define_asset_job("looks", AssetSelection.checks_for_assets(*SOURCES))
    job = Definitions.merge(defs, Definitions(jobs=[looks])).resolve_job_def("looks")
    done = job.execute_in_process(raise_on_error=False)
    ready = {one.asset_key.path[-1]: one.passed for one in done.get_asset_check_evaluations()}
    assert ready == {"data_orders_csv": True, "data_users_jsonl": True, "data_deliveries_json": False}
