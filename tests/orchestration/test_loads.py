"""Loads as Dagster runs them: what the op does, what its events say, and what a sensor asks for next."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetObservation,
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    ExecuteInProcessResult,
    RunConfig,
    SensorResult,
    build_sensor_context,
)

from tests.harness import Play
from velo_dagster import VeloLoadConfig, build_velo_definitions

SQL = """
-- check positive (ERROR, blocking): SELECT * FROM orders WHERE amount < 0
CREATE TABLE orders AS SELECT id, user_id, amount FROM file://data/orders*.csv;

CREATE TABLE users AS SELECT user_id PRIMARY KEY, name FROM file://data/users.csv;

CREATE TABLE enriched AS SELECT o.id, o.amount, u.name FROM orders o JOIN users u ON o.user_id = u.user_id;
"""


class Location:
    """The project as a code location, with an instance of its own."""

    def __init__(self, play: Play, instance: DagsterInstance) -> None:
        self.play = play
        self.instance = instance

    @property
    def definitions(self) -> Definitions:
        return build_velo_definitions(self.play.folder, warehouse=str(self.play.folder / "warehouse"))

    def load(
        self, *keys: str, partition: str | None = None, config: Mapping[str, VeloLoadConfig] | None = None
    ) -> ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=[AssetKey.from_user_string(key) for key in keys],
            partition_key=partition,
            run_config=RunConfig(ops=dict(config or {})),
            raise_on_error=False,
        )

    def tick(self, name: str, cursor: str | None = None) -> SensorResult:
        repository = self.definitions.get_repository_def()
        sensor = repository.get_sensor_def(name)
        context = build_sensor_context(
            instance=self.instance, repository_def=repository, cursor=cursor, definitions=None
        )
        result = sensor(context)
        assert isinstance(result, SensorResult)
        return result

    def metadata(self, key: str) -> dict[str, Any]:
        event = self.instance.get_latest_materialization_event(AssetKey.from_user_string(key))
        assert event is not None and event.asset_materialization is not None
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.fixture
def location(play: Play, spark) -> Iterator[Location]:
    """`spark`: the loads share the tests' own Spark, which they find in the process, and leave alone."""
    play.write("t.sql", SQL)
    play.write("data/orders-1.csv", "id,user_id,amount\n1,1,10.5\n2,2,3.25\n")
    with DagsterInstance.ephemeral() as instance:
        yield Location(play, instance)


def said(result: ExecuteInProcessResult) -> str:
    return "\n".join(
        str(event.event_specific_data.error.message)  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        for event in result.all_events
        if event.is_step_failure
    )


def test_materialize_is_load_and_says_what_it_did(location: Location):
    assert location.load("orders").success
    told = location.metadata("orders")
    assert (told["dagster/row_count"], told["velo/mode"], told["velo/method"]) == (2, "bulk", "append")
    assert [column.name for column in told["dagster/column_schema"].columns] == ["id", "user_id", "amount"]
    lineage = told["dagster/column_lineage"].deps_by_column
    assert [(dep.asset_key.path, dep.column_name) for dep in lineage["amount"]] == [
        (["file", "data_orders_csv"], "amount")
    ]
    assert told["velo/positions"]["source"]["files"].keys() == {"orders-1.csv"}
    assert {"velo/seconds", "velo/seconds/commit", "velo/rows_read", "velo/reason"} <= told.keys()
    location.play.append("data/orders-1.csv", "3,1,1\n")
    assert location.load("orders").success
    told = location.metadata("orders")
    assert (told["velo/mode"], told["velo/rows_read"], told["dagster/row_count"]) == ("increment", 1, 3)
    assert location.load("orders").success, "nothing new is no failure"
    assert location.metadata("orders")["velo/outcome"] == "unchanged"


def test_a_join_started_too_early_fails_at_once_and_names_what_is_not_ready(location: Location):
    location.load("orders")
    result = location.load("enriched")
    assert not result.success
    assert "needs table 'users', which is not ready: it was never loaded" in said(result)


def test_everything_in_one_run(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    assert location.load("orders", "users", "enriched").success
    assert location.play.rows("enriched") == location.play.reloaded().rows("enriched")
    lineage = location.metadata("enriched")["dagster/column_lineage"].deps_by_column
    assert [(dep.asset_key.path, dep.column_name) for dep in lineage["name"]] == [(["users"], "name")]


def test_an_empty_source_ends_well_and_is_no_materialization(location: Location):
    location.play.write("data/orders-1.csv", "")
    result = location.load("orders", "enriched")
    assert result.success
    assert location.instance.get_latest_materialization_event(AssetKey("orders")) is None
    assert location.instance.get_latest_materialization_event(AssetKey("enriched")) is None


def test_a_blocking_check_keeps_what_reads_the_table_from_being_loaded(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.play.append("data/orders-1.csv", "3,1,-1\n")
    result = location.load("orders", "users", "enriched")
    assert not result.success
    checks = {
        one.check_name: one for one in result.get_asset_check_evaluations() if one.asset_key == AssetKey("orders")
    }
    assert not checks["positive"].passed
    assert "-1" in (checks["positive"].description or "")
    assert checks["rows_as_loaded"].passed
    assert location.instance.get_latest_materialization_event(AssetKey("enriched")) is None


def test_full_refresh_and_loss_by_run_config(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n9,1,1\n")
    location.load("orders")
    (location.play.folder / "data/orders-2.csv").unlink()
    asked = {"orders": VeloLoadConfig(full_refresh=True)}
    result = location.load("orders", config=asked)
    assert not result.success
    assert "orders-2.csv" in said(result)
    assert location.load("orders", config={"orders": VeloLoadConfig(full_refresh=True, accept_loss=True)}).success
    assert location.metadata("orders")["velo/reason"] == "full refresh"
    assert sum(location.play.rows("orders").values()) == 2


def test_max_records_by_run_config(location: Location):
    assert location.load("orders", config={"orders": VeloLoadConfig(max_records=1)}).success
    assert location.metadata("orders")["velo/ready"] is False
    assert sum(location.play.rows("orders").values()) == 1


def test_the_source_sensor_waits_says_so_and_asks_for_the_first_load(location: Location):
    first = location.tick("velo_sources")
    assert [request.asset_selection for request in first.run_requests or ()] == [[AssetKey("orders")]]
    again = location.tick("velo_sources", first.cursor)
    waiting = json.loads(again.cursor or "{}")["file/data_users_csv"]
    assert waiting["attempt"] == 2
    assert "waiting for file://data/users.csv since " in waiting["said"]
    assert "category missing" in waiting["said"] and "does not exist" in waiting["said"]
    observed = [event for event in again.asset_events if isinstance(event, AssetObservation)]
    assert [event.asset_key.path for event in observed] == [["file", "data_users_csv"]]
    checks = [event for event in again.asset_events if isinstance(event, AssetCheckEvaluation)]
    assert [(check.asset_key.path, check.passed) for check in checks] == [(["file", "data_users_csv"], False)]
    location.load("orders")
    quiet = location.tick("velo_sources", again.cursor)
    assert not quiet.run_requests
    assert quiet.skip_reason is not None and "data/users.csv" in str(quiet.skip_reason.skip_message)
    location.play.write("data/users.csv", "user_id,name\n1,ann\n")
    there = location.tick("velo_sources", quiet.cursor)
    assert [request.asset_selection for request in there.run_requests or ()] == [[AssetKey("users")]]
    assert [event.passed for event in there.asset_events if isinstance(event, AssetCheckEvaluation)] == [True]


def test_an_increment_is_a_partition_and_its_receipt(location: Location):
    assert "not loaded" in str(location.tick("orders__increments").skip_reason)
    location.load("orders")
    assert "Nothing is new" in str(location.tick("orders__increments").skip_reason)
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    asked = location.tick("orders__increments")
    (request,) = list(asked.run_requests or ())
    assert (request.partition_key, request.run_key) == ("2", "orders/2/1")
    for change in asked.dynamic_partitions_requests or ():
        location.instance.add_dynamic_partitions(change.partitions_def_name, list(change.partition_keys))
    assert location.load("orders", "orders/increments", partition="2").success
    assert location.metadata("orders/increments")["dagster/partition_row_count"] == 1
    done = location.load("orders/increments", partition="2")
    assert done.success, "one that is committed already reports so"
    assert sum(location.play.rows("orders").values()) == 3


def test_a_failed_increment_alone_is_loaded_again_and_its_table_is_told(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7,8\n")
    (change,) = list(location.tick("orders__increments").dynamic_partitions_requests or ())
    location.instance.add_dynamic_partitions(change.partitions_def_name, ["2"])
    failed = location.load("orders", "orders/increments", partition="2")
    assert not failed.success
    assert "orders-2.csv:2" in said(failed)
    assert sum(location.play.rows("orders").values()) == 2, "the table keeps its rows"
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    assert location.load("orders/increments", partition="2").success
    assert sum(location.play.rows("orders").values()) == 3
    assert location.metadata("orders")["velo/load"] == 2
    key = AssetCheckKey(AssetKey("orders"), "rows_as_loaded")
    latest = location.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert latest.status.value == "SUCCEEDED"


def test_an_increment_that_is_not_the_next_is_refused(location: Location):
    location.load("orders")
    partitions = "velo/orders/increments"
    location.instance.add_dynamic_partitions(partitions, ["7"])
    result = location.load("orders/increments", partition="7")
    assert not result.success
    assert "its last load is 1, the next is 2" in said(result)


def test_what_failed_is_asked_for_again_only_when_something_changed(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7,8\n")
    (request,) = list(location.tick("orders__increments").run_requests or ())
    run = location.instance.create_run_for_job(
        location.definitions.resolve_implicit_global_asset_job_def(),
        tags=dict(request.tags),
        asset_selection=frozenset(request.asset_selection or ()),
        status=DagsterRunStatus.STARTED,
    )
    assert "is loading it" in str(location.tick("orders__increments").skip_reason)
    location.instance.report_run_failed(run)
    waiting = location.tick("orders__increments")
    assert "it is tried again when its source changes" in str(waiting.skip_reason)
    location.play.append("data/orders-2.csv", "4,1,7\n")
    (request,) = list(location.tick("orders__increments").run_requests or ())
    assert request.run_key == "orders/2/2"


def test_a_run_whose_process_died_is_ended(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    import socket

    run = location.instance.create_run_for_job(
        location.definitions.resolve_implicit_global_asset_job_def(),
        tags={"velo/host": socket.gethostname(), "velo/process": "999999999@1"},
        asset_selection=frozenset([AssetKey("orders")]),
        status=DagsterRunStatus.STARTED,
    )
    assert location.tick("orders__increments").run_requests
    found = location.instance.get_run_by_id(run.run_id)
    assert found is not None and found.status is DagsterRunStatus.FAILURE


def test_a_check_that_speaks_of_another_materialization_is_made_again(location: Location):
    """Overlapping runs leave such checks behind; what reads the table would wait for ever."""
    location.load("orders")
    key = AssetCheckKey(AssetKey("orders"), "rows_as_loaded")
    planned = location.instance.create_run_for_job(location.definitions.resolve_implicit_global_asset_job_def())
    location.instance.report_run_canceled(planned)
    from dagster import AssetMaterialization

    location.instance.report_runless_asset_event(AssetMaterialization("orders"))
    healed = [event for event in location.tick("velo_sources").asset_events if isinstance(event, AssetCheckEvaluation)]
    assert key in {event.asset_check_key for event in healed}


def test_the_oldest_partitions_are_forgotten(location: Location, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("velo_dagster.orchestration.sensors.KEPT", 3)
    location.load("orders")
    location.instance.add_dynamic_partitions("velo/orders/increments", ["1", "10", "9"])
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    changes = location.tick("orders__increments").dynamic_partitions_requests or ()
    assert [list(change.partition_keys) for change in changes] == [["2"], ["1"]]


def test_checks_run_without_loading(location: Location):
    job = location.definitions.get_repository_def().get_job("velo_checks")
    before = job.execute_in_process(instance=location.instance, raise_on_error=False)
    failed = {one.check_name for one in before.get_asset_check_evaluations() if not one.passed}
    assert {"rows_as_loaded", "positive", "ready"} <= failed
    assert Counter(location.instance.get_asset_keys()) == Counter()
    assert not (Path(location.play.folder) / "warehouse").exists()
