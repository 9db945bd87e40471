"""What a tick of the source sensor costs and tells where tables are loaded already; no Spark is needed to look."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    Definitions,
    SensorResult,
    build_sensor_context,
)

from tests.tables import load_all
from velo_dagster import build_velo_definitions
from velo_dagster.engine.checks import Check, Finding, Standing
from velo_dagster.orchestration import verdicts
from velo_dagster.plan.project import load_project
from velo_dagster.store import watched
from velo_dagster.store.table import Table, Warehouse

TABLES = 5


class Location:
    """A project of tables over one file each, as a code location that stays."""

    def __init__(self, folder: Path, instance: DagsterInstance) -> None:
        self.instance = instance
        (folder / "d").mkdir()
        for number in range(TABLES):
            (folder / f"d/{number}.csv").write_text("id\n1\n")
        statements = (f"CREATE TABLE t{n} AS SELECT * FROM file://d/{n}.csv;\n" for n in range(TABLES))
        (folder / "t.sql").write_text("".join(statements))
        self.project = load_project(folder)
        self.warehouse = Warehouse(str(folder / ".velo/warehouse"))
        self.definitions: Definitions = build_velo_definitions(folder)

    def tick(self, cursor: str | None = None) -> SensorResult:
        """A tick, with what it asks for done, as the daemon would."""
        repository = self.definitions.get_repository_def()
        context = build_sensor_context(instance=self.instance, repository_def=repository, cursor=cursor)
        result = repository.get_sensor_def("velo_sources")(context)
        assert isinstance(result, SensorResult)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return result


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    with DagsterInstance.ephemeral() as instance:
        yield Location(tmp_path, instance)


def test_a_quiet_tick_reads_no_log_and_asks_dagster_once(location: Location, monkeypatch: pytest.MonkeyPatch):
    load_all(location.project, location.warehouse)
    told = location.tick()
    checked = location.tick(told.cursor)
    logs: list[str] = []
    asked: list[int] = []
    opened, records = Table.opened, DagsterInstance.get_asset_records

    def counted(self: Table):
        logs.append(self.name)
        return opened(self)

    monkeypatch.setattr(Table, "opened", counted)
    monkeypatch.setattr(watched, "SETTLED_SECONDS", -1.0)
    monkeypatch.setattr(
        DagsterInstance, "get_asset_records", lambda *given, **named: asked.append(1) or records(*given, **named)
    )
    first = location.tick(checked.cursor)
    assert sorted(logs) == [f"t{number}" for number in range(TABLES)], "each log once"
    assert asked == [1]
    second = location.tick(first.cursor)
    assert len(logs) == TABLES
    assert "Every source is there and loaded." in str(second.skip_reason)
    assert not second.asset_events
    load_all(location.project, location.warehouse, load=2)
    events = [event for event in location.tick(second.cursor).asset_events if isinstance(event, AssetMaterialization)]
    assert len(events) == 2 * TABLES, "tables and receipts"


def test_observations_carry_the_figures_of_the_wait(location: Location):
    """A plot or an alert needs numbers, not a sentence."""
    file = location.project.root / "d/0.csv"
    content = file.read_text()
    file.unlink()
    seen: list[tuple[str, str, int]] = []
    starts: set[float] = set()
    cursor = None
    for number in range(6):
        if number == 5:
            file.write_text(content)
        result = location.tick(cursor)
        cursor = result.cursor
        for event in result.asset_events:
            if isinstance(event, AssetObservation) and event.asset_key.path[-1] == "d_0_csv":
                told: dict[str, Any] = {
                    name.removeprefix("velo/"): value.value for name, value in event.metadata.items()
                }
                seen.append((told["state"], told["category"], told["attempt"]))
                starts.add(told["since"])
        assert number == 5 or f"attempt {number + 1}," in str(result.skip_reason) or result.run_requests
    assert seen == [
        ("waiting", "missing", 1),
        ("waiting", "missing", 2),
        ("waiting", "missing", 4),
        ("ready", "ready", 6),
    ]
    assert len(starts) == 1


def test_receipts_of_loads_from_a_shell_are_pruned_too(location: Location, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("velo_dagster.orchestration.specs.KEPT", 3)
    load_all(location.project, location.warehouse)
    location.instance.add_dynamic_partitions("velo/t0/increments", ["2", "3", "10"])
    load_all(location.project, location.warehouse, load=11)
    changes = location.tick().dynamic_partitions_requests or ()
    mine = [one for one in changes if one.partitions_def_name == "velo/t0/increments"]
    assert [(type(one).__name__, list(one.partition_keys)) for one in mine] == [
        ("AddDynamicPartitionsRequest", ["11"]),
        ("DeleteDynamicPartitionsRequest", ["2"]),
    ]


def test_what_is_not_watched_may_be_said_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "t.sql").write_text("CREATE TABLE t AS SELECT * FROM file://d.csv WITH ('watch' = '${WATCHED}');")
    (tmp_path / "d.csv").write_text("id\n1\n")
    monkeypatch.setenv("WATCHED", "false")
    load_all(load_project(tmp_path), Warehouse(str(tmp_path / ".velo/warehouse")))
    (tmp_path / "d.csv").write_text("id\n1\n2\n")
    repository = build_velo_definitions(tmp_path).get_repository_def()
    with DagsterInstance.ephemeral() as instance:
        context = build_sensor_context(instance=instance, repository_def=repository)
        result = repository.get_sensor_def("t__increments")(context)
    assert isinstance(result, SensorResult)
    assert not result.run_requests
    assert "the next load that is started brings it" in str(result.skip_reason)


def test_a_check_that_outlasts_a_tick_is_waited_for_by_later_ones(location: Location, monkeypatch: pytest.MonkeyPatch):
    """A tick that lasts too long is ended by Dagster, and so would be every later one: nothing is loaded any more."""
    go_on, begun = threading.Event(), []
    run_check = verdicts.run_check

    def slow(check: Check, standing: Standing) -> Finding:
        if (standing.plan.name, check.name) == ("t0", "rows_as_loaded"):
            begun.append(check)
            go_on.wait()
        return run_check(check, standing)

    def checked(tick: SensorResult) -> set[str]:
        keys = [event.asset_check_key for event in tick.asset_events if isinstance(event, AssetCheckEvaluation)]
        return {f"{key.asset_key.path[-1]}.{key.name}" for key in keys}

    monkeypatch.setattr(verdicts, "run_check", slow)
    monkeypatch.setattr(verdicts, "TICK_SECONDS", 0.5)
    load_all(location.project, location.warehouse)
    first = location.tick()
    try:
        for tick in (second := location.tick(first.cursor), third := location.tick(second.cursor)):
            assert "t0: its check rows_as_loaded was begun" in str(tick.skip_reason)
            assert not checked(tick)
        assert len(begun) == 1, "it is not begun twice"
    finally:
        go_on.set()
    monkeypatch.setattr(verdicts, "TICK_SECONDS", 60.0)
    for thread in threading.enumerate():
        if thread.name == "velo-checks":
            thread.join()
    fourth = location.tick(third.cursor)
    kinds = ("rows_as_loaded", "nothing_rejected", "source_ready")
    assert checked(fourth) == {f"t{number}.{kind}" for number in range(TABLES) for kind in kinds}
    assert len(begun) == 1, "what it found is not thrown away"
    assert not location.tick(fourth.cursor).asset_events


def test_what_a_check_found_before_another_load_says_nothing_of_it(location: Location, monkeypatch: pytest.MonkeyPatch):
    run_check, loads = verdicts.run_check, iter([2])

    def slow(check: Check, standing: Standing) -> Finding:
        found = run_check(check, standing)
        for load in loads:
            load_all(location.project, location.warehouse, load)
        return found

    load_all(location.project, location.warehouse)
    first = location.tick()
    monkeypatch.setattr(verdicts, "run_check", slow)
    second = location.tick(first.cursor)
    told = [event for event in second.asset_events if isinstance(event, AssetCheckEvaluation)]
    assert len(told) == 3 * TABLES - 1, "all but the one that was made before the load"
