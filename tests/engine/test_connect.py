"""Loads use nothing that Spark Connect lacks: a shared server or a cluster needs no other code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import tenacity

from velo_dagster.engine.java import java_home
from velo_dagster.engine.session import static_settings

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
FOLDER = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server, which knows of us only the jars and where the package is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = static_settings() | {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", SERVER]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    environment = os.environ | {
        "JAVA_HOME": str(java_home(os.environ)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(FOLDER),
    }
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen([*command, "spark-internal"], stdout=log, stderr=log, env=environment)
    try:
        wait_for(port, process, tmp_path / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 180) -> None:
    """Until the server answers, or has ended."""

    def answers() -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", port)) == 0

    look = tenacity.Retrying(
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_fixed(0.1),
        retry=tenacity.retry_if_result(lambda done: not done),
        retry_error_callback=lambda _: False,
    )
    if not look(lambda: answers() or process.poll() is not None) or process.poll() is not None:
        pytest.fail(f"The Connect server did not come up:\n{log.read_text(errors='replace')[-3000:]}")


def test_a_history_over_spark_connect(server: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    command = [sys.executable, "-m", "tests.engine.over_connect", str(project), server]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
