"""The whole of it as a user sees it: a project in a real `velo-dagster dev`, from nothing, with no click needed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import multiset
from tests.orchestration.dev import ENDED, Dev
from velo_dagster.store.reader import to_arrow

SQL = """
CREATE TABLE orders AS SELECT id, user_id, amount FROM file://data/orders*.csv;
CREATE TABLE users AS SELECT user_id PRIMARY KEY, name FROM file://data/users.csv;
CREATE TABLE enriched AS SELECT o.id, o.amount, u.name FROM orders o JOIN users u ON o.user_id = u.user_id;
"""


def write(project: Path, name: str, text: str) -> None:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def ids(project: Path, table: str) -> list[int]:
    rows = multiset(to_arrow(project / ".velo/warehouse" / table, columns=["id"]))
    return sorted(int(row[0]) for row in rows.elements())


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    write(tmp_path, "t.sql", SQL)
    write(tmp_path, "data/orders-1.csv", "id,user_id,amount\n1,1,10.5\n2,2,3.25\n")
    with Dev(tmp_path) as dev:
        yield dev


def test_from_nothing_to_everything_loaded(dev: Dev):
    project = dev.project
    assert set(dev.sensors().values()) == {"RUNNING"}

    # One launch, no partition, no dialog.
    assert dev.ended(dev.launch("orders")) == "SUCCESS"
    assert ids(project, "orders") == [1, 2]
    skipped = dev.until(
        lambda: [tick for tick in dev.ticks("velo_sources") if tick["status"] == "SKIPPED"], 120, "the sensor waits"
    )
    assert "data/users.csv" in skipped[0]["skipReason"]
    assert not dev.loads("enriched"), "what reads a table that is not there yet must not run"

    # The file turns up: the table, then the join, by themselves.
    write(project, "data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    dev.until(lambda: dev.loads("users"), 180, "users is loaded")
    dev.until(lambda: dev.loads("enriched"), 180, "enriched is loaded")
    assert ids(project, "enriched") == [1, 2]

    # A new file: a run with a partition, its receipt, and the join follows.
    write(project, "data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    dev.until(lambda: dev.partitions("orders/increments") == (1, 0), 180, "the increment has its receipt")
    assert any({"key": "dagster/partition", "value": "2"} in run["tags"] for run in dev.runs())
    dev.until(lambda: ids(project, "enriched") == [1, 2, 3], 180, "enriched follows")

    # A broken file: a failed partition, and the table as it was.
    write(project, "data/orders-3.csv", "id,user_id,amount\n4,1,7,9,9\n")
    dev.until(lambda: dev.partitions("orders/increments") == (1, 1), 180, "the broken increment has failed")
    assert ids(project, "orders") == [1, 2, 3]

    # Mended, just that partition is run again.
    write(project, "data/orders-3.csv", "id,user_id,amount\n4,1,7\n")
    assert dev.ended(dev.launch("orders/increments", partition="3")) == "SUCCESS"
    assert dev.partitions("orders/increments") == (2, 0)
    assert ids(project, "orders") == [1, 2, 3, 4]
    dev.until(lambda: ids(project, "enriched") == [1, 2, 3, 4], 180, "enriched follows the repaired increment")

    # Everything goes down at once, and comes back.
    going = {run["runId"] for run in dev.runs() if run["status"] not in ENDED}
    dev.kill()
    write(project, "data/orders-4.csv", "id,user_id,amount\n5,2,1\n")
    dev.start()
    dev.until(lambda: ids(project, "enriched") == [1, 2, 3, 4, 5], 240, "the new file is followed after the restart")

    # Checks alone, a full refresh by run config, two runs at once.
    assert dev.ended(dev.launch(job="velo_checks")) == "SUCCESS"
    asked = {"ops": {"orders": {"config": {"full_refresh": True}}}}
    both = [dev.launch("orders", config=asked), dev.launch("orders")]
    assert [dev.ended(run) for run in both] == ["SUCCESS", "SUCCESS"]
    assert ids(project, "orders") == [1, 2, 3, 4, 5]

    # The statement changes, and the code location is loaded anew.
    write(project, "t.sql", SQL.replace("o.id, o.amount", "o.id, o.amount * 2 AS amount"))
    dev.reload()
    assert dev.ended(dev.launch("enriched")) == "SUCCESS"
    doubled = to_arrow(project / ".velo/warehouse/enriched", columns=["id", "amount"]).to_pylist()
    assert {row["id"]: float(row["amount"]) for row in doubled}[1] == 21.0

    failures = [run for run in dev.runs() if run["status"] == "FAILURE" and run["runId"] not in going]
    assert len(failures) == 1, "only the broken file made a run fail, and what was killed"
    for sensor in dev.sensors():
        assert not [tick["error"] for tick in dev.ticks(sensor) if tick["error"]], sensor


def test_a_worker_that_is_killed_leaves_no_table_behind(dev: Dev):
    """Dagster notices the death of a run's process before we do, tells nobody why, and automation asks only once."""
    project = dev.project
    write(project, "data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    dev.until(lambda: dev.loads("enriched"), 240, "enriched is loaded")
    before = {run["runId"] for run in dev.runs()}
    write(project, "data/orders-2.csv", "id,user_id,amount\n3,1,7\n")

    def worker() -> list[int]:
        """The process of a run that loads enriched, once it has told it."""
        tags = [
            {tag["key"]: tag["value"] for tag in run["tags"]}
            for run in dev.runs()
            if run["runId"] not in before and run["assetSelection"] == [{"path": ["enriched"]}]
            if run["status"] == "STARTED"
        ]
        return [int(one["velo/process"].partition("@")[0]) for one in tags if "velo/process" in one]

    os.kill(dev.until(worker, 240, "enriched is being loaded")[0], signal.SIGKILL)
    assert ids(project, "enriched") == [1, 2]
    dev.until(lambda: ids(project, "enriched") == [1, 2, 3], 240, "enriched is loaded after the kill, with no click")
