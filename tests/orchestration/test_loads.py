"""Loads as Dagster runs them: what the op does, what its events say, and what a sensor asks for next."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    ExecuteInProcessResult,
    RetryPolicy,
    RunConfig,
    SensorResult,
    build_sensor_context,
    evaluate_automation_conditions,
)

from tests.harness import Play
from velo_dagster import VeloLoadConfig, build_velo_definitions
from velo_dagster.engine.load import TableLoad
from velo_dagster.engine.report import LoadReport
from velo_dagster.orchestration.assets import RETRIES
from velo_dagster.orchestration.sensors import CHANCES
from velo_dagster.store.table import Overtaken

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
        self,
        *keys: str,
        partition: str | None = None,
        config: Mapping[str, VeloLoadConfig] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=[AssetKey.from_user_string(key) for key in keys],
            partition_key=partition,
            run_config=RunConfig(ops=dict(config or {})),
            tags=dict(tags or {}),
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


def test_positions_of_very_many_files_are_not_kept_with_every_load(location: Location, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("velo_dagster.orchestration.metadata.LONGEST_POSITIONS", 100)
    location.load("orders")
    assert "velo-dagster status --json shows them" in location.metadata("orders")["velo/positions"]


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


def test_a_table_with_a_failed_blocking_check_is_not_read_by_hand_either(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.play.append("data/orders-1.csv", "3,1,-1\n")
    assert not location.load("orders", "users", "enriched").success
    early = location.load("enriched")
    assert not early.success
    assert "'orders', which is not ready: its check positive fails: 1 row, such as: id = 3" in said(early)
    location.play.write("data/orders-1.csv", "id,user_id,amount\n1,1,10.5\n")
    assert location.load("orders").success
    assert location.load("enriched").success
    assert location.play.rows("enriched") == location.play.reloaded().rows("enriched")


def test_what_was_loaded_from_a_shell_is_checked_before_it_is_read(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.play.append("data/orders-1.csv", "3,1,-1\n")
    location.play.loaded("orders", "users")
    assert "its check positive fails" in said(location.load("enriched"))


def test_a_missing_file_is_not_tried_again_in_vain(location: Location):
    result = location.load("users")
    assert not result.success
    assert "File 'data/users.csv' does not exist" in said(result)
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_what_may_go_away_by_itself_is_tried_again_by_dagster(location: Location, monkeypatch: pytest.MonkeyPatch):
    policy = RetryPolicy(max_retries=RETRIES.max_retries)
    monkeypatch.setattr("velo_dagster.orchestration.assets.RETRIES", policy)
    run, failures = TableLoad.run, [Overtaken("orders", 1), Overtaken("orders", 1)]

    def failing(self: TableLoad) -> LoadReport:
        if failures:
            raise failures.pop()
        return run(self)

    monkeypatch.setattr(TableLoad, "run", failing)
    result = location.load("orders")
    assert result.success
    again = [event for event in result.all_events if event.is_step_up_for_retry]
    assert ["Another run made load 1" in str(event.event_specific_data) for event in again] == [True, True]
    assert sum(location.play.rows("orders").values()) == 2


def test_the_jobs_load_every_table_and_load_them_anew(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    for job, number, reasons in (("bulk_load", 1, {"first load"}), ("full_refresh", 2, {"full refresh"})):
        definition = location.definitions.get_repository_def().get_job(job)
        assert definition.execute_in_process(instance=location.instance).success
        told = [location.metadata(table) for table in ("orders", "users", "enriched")]
        assert [(one["velo/load"], one["velo/mode"]) for one in told] == [(number, "bulk")] * 3
        assert {one["velo/reason"] for one in told} == reasons
    assert location.play.rows("enriched") == location.play.reloaded().rows("enriched")


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
    assert json.loads(again.cursor or "{}")["waits"]["file/data_users_csv"]["attempt"] == 2
    reason = next(str(event.description) for event in again.asset_events if isinstance(event, AssetObservation))
    assert "waiting for file://data/users.csv since " in reason
    assert "attempt 2" in reason and "category missing" in reason and "does not exist" in reason
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


def report(location: Location, tick: SensorResult) -> SensorResult:
    """What the daemon does with a tick's events."""
    for event in tick.asset_events:
        location.instance.report_runless_asset_event(event)
    return tick


def standing(location: Location, table: str, check: str) -> tuple[bool, str, str]:
    """What Dagster shows of a check: whether it passed, how severe that is, and its sentence."""
    key = AssetCheckKey(AssetKey.from_user_string(table), check)
    latest = location.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key].evaluation
    assert latest is not None
    return latest.passed, latest.severity.value, latest.description or ""


def test_a_file_that_is_gone_is_told_and_holds_up_nothing(location: Location):
    """Its rows stay, so what reads its table, and what also reads it, is loaded on."""
    location.play.write(
        "t.sql", SQL + "CREATE TABLE priced AS SELECT o.id, r.rate FROM orders o CROSS JOIN file://data/rates.csv r;"
    )
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    rates = location.play.write("data/rates.csv", "rate\n2\n")
    location.load("orders", "users", "enriched", "priced")
    there = report(location, location.tick("velo_sources"))
    assert standing(location, "priced", "source_ready")[0]
    quiet = evaluate_automation_conditions(location.definitions, location.instance)
    rates.unlink()
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    location.load("orders")
    gone = report(location, location.tick("velo_sources", there.cursor))
    assert "file://data/rates.csv is gone since " in str(gone.skip_reason)
    (seen,) = [event for event in gone.asset_events if isinstance(event, AssetObservation)]
    assert (seen.metadata["velo/state"].value, seen.metadata["velo/category"].value) == ("gone", "missing")
    passed, _, said = standing(location, "file/data_rates_csv", "ready")
    assert passed and "its rows stay (file.deleted = keep)" in said
    passed, severity, said = standing(location, "priced", "source_ready")
    assert (passed, severity) == (False, "WARN") and "File 'data/rates.csv' does not exist." in said
    increments = location.tick("priced__increments")
    assert not increments.run_requests and "its rows stay" in str(increments.skip_reason)
    automation = evaluate_automation_conditions(location.definitions, location.instance, cursor=quiet.cursor)
    assert automation.get_num_requested(AssetKey("priced")) == 1
    assert location.load("priced").success
    assert sum(location.play.rows("priced").values()) == 3
    location.play.write("data/rates.csv", "rate\n2\n")
    back = report(location, location.tick("velo_sources", gone.cursor))
    assert "gone" not in str(back.skip_reason)
    assert standing(location, "priced", "source_ready")[0]


def test_a_failed_load_is_told_with_its_reason_where_the_next_one_is_waited_for(location: Location):
    """A column that a statement names and a file no longer has is found out by a load, not by a look."""
    location.load("orders")
    location.play.write("data/orders-1.csv", "id,user_id\n1,1\n")
    (request,) = list(location.tick("orders__increments").run_requests or ())
    location.instance.add_dynamic_partitions("velo/orders/increments", ["2"])
    assert not location.load("orders", "orders/increments", partition="2", tags=request.tags).success
    waiting = str(location.tick("orders__increments").skip_reason)
    assert "it is tried again when something changes" in waiting
    assert "error E114 There is no column 'amount'." in waiting


def test_a_first_load_in_parts_goes_on_also_where_tables_are_read(location: Location):
    rates = "file://data/rates.csv r WITH ('loading.bulk.max_records' = '1')"
    location.play.write("t.sql", SQL + f"CREATE TABLE priced AS SELECT o.id, r.rate FROM orders o CROSS JOIN {rates};")
    location.play.write("data/rates.csv", "rate\n1\n2\n3\n")
    location.play.write("data/users.csv", "user_id,name\n1,ann\n")
    location.load("orders", "users", "priced")
    for _ in range(2):
        assert location.metadata("priced")["velo/ready"] is False
        asked = [one.asset_selection for one in location.tick("velo_sources").run_requests or ()]
        assert asked == [[AssetKey("priced")]]
        location.load("priced")
    assert location.metadata("priced")["velo/ready"] is True
    assert sum(location.play.rows("priced").values()) == 6


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


def test_an_increment_by_hand_has_its_receipt_too(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    location.load("orders")
    assert location.instance.get_dynamic_partitions("velo/orders/increments") == ["2"]
    assert location.metadata("orders/increments")["velo/load"] == 2
    location.load("orders", config={"orders": VeloLoadConfig(full_refresh=True)})
    assert location.instance.get_dynamic_partitions("velo/orders/increments") == ["2"], "a bulk load is no increment"


def test_a_committed_increment_has_its_receipt_whatever_checks_say(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,-7\n")
    location.instance.add_dynamic_partitions("velo/orders/increments", ["2"])
    result = location.load("orders", "orders/increments", partition="2")
    assert not result.success
    assert location.metadata("orders/increments")["velo/load"] == 2


def test_a_changed_statement_is_loaded_by_itself(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.load("orders", "users")
    location.play.write("t.sql", SQL.replace("SELECT id, user_id, amount", "SELECT id, user_id, amount + 1 AS amount"))
    (request,) = list(location.tick("orders__increments").run_requests or ())
    assert request.partition_key == "2"
    location.instance.add_dynamic_partitions("velo/orders/increments", ["2"])
    assert location.load("orders", "orders/increments", partition="2").success
    assert location.metadata("orders")["velo/reason"] == "the statement or its source changed"
    assert location.play.rows("orders") == location.play.reloaded().rows("orders")
    assert not location.tick("orders__increments").run_requests


def test_a_changed_statement_over_tables_is_loaded_by_itself(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.load("orders", "users", "enriched")
    first = evaluate_automation_conditions(location.definitions, location.instance)
    assert not first.total_requested
    location.play.write("t.sql", SQL.replace("o.id, o.amount", "o.id, o.amount * 2 AS amount"))
    again = evaluate_automation_conditions(location.definitions, location.instance, cursor=first.cursor)
    assert again.get_num_requested(AssetKey("enriched")) == 1


def test_the_sensor_says_what_waits(location: Location):
    location.play.write("t.sql", SQL.replace("orders*.csv", "orders*.csv WITH ('watch' = 'false')", 1))
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    assert "the next load that is started brings it" in str(location.tick("orders__increments").skip_reason)
    location.load("orders")
    location.play.append("data/orders-2.csv", '4,1,"7')
    assert "wait after byte" in str(location.tick("orders__increments").skip_reason)


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
    location.instance.add_dynamic_partitions("velo/orders/increments", ["2"])
    assert not location.load("orders", "orders/increments", partition="2", tags=request.tags).success
    waiting = location.tick("orders__increments")
    assert "it is tried again when something changes" in str(waiting.skip_reason)
    location.play.append("data/orders-2.csv", "4,1,7\n")
    (request,) = list(location.tick("orders__increments").run_requests or ())
    assert request.run_key == "orders/2/2"
    for _ in range(120):
        location.instance.create_run_for_job(
            location.definitions.resolve_implicit_global_asset_job_def(),
            tags={**request.tags, "velo/seen": "another"},
            status=DagsterRunStatus.FAILURE,
        )
    (request,) = list(location.tick("orders__increments").run_requests or ())
    assert request.run_key == "orders/2/3", "each attempt has its own number, however many runs are kept"


def test_a_run_whose_process_died_is_ended(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    run = location.instance.create_run_for_job(
        location.definitions.resolve_implicit_global_asset_job_def(),
        tags={"velo/host": socket.gethostname(), "velo/process": "999999999@1"},
        asset_selection=frozenset([AssetKey("orders")]),
        status=DagsterRunStatus.STARTED,
    )
    assert location.tick("orders__increments").run_requests
    found = location.instance.get_run_by_id(run.run_id)
    assert found is not None and found.status is DagsterRunStatus.FAILURE


def test_a_run_that_never_began_is_ended_too(location: Location, monkeypatch: pytest.MonkeyPatch):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    job = location.definitions.resolve_implicit_global_asset_job_def()
    ours = location.instance.create_run_for_job(
        job, asset_selection=frozenset([AssetKey("orders")]), status=DagsterRunStatus.STARTING
    )
    others = location.instance.create_run_for_job(job, status=DagsterRunStatus.STARTING)
    assert "is loading it" in str(location.tick("orders__increments").skip_reason)
    monkeypatch.setattr("velo_dagster.orchestration.runs.LONGEST_START", 0.0)
    assert location.tick("orders__increments").run_requests
    states = [location.instance.get_run_by_id(run.run_id) for run in (ours, others)]
    assert [run.status.value for run in states if run] == ["FAILURE", "STARTING"], "a run of other jobs is not ours"


def test_what_was_killed_is_asked_for_again_at_once(location: Location):
    """A kill costs nothing, whoever noticed it: we, or Dagster itself, which tells nobody why."""
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    (request,) = list(location.tick("orders__increments").run_requests or ())
    run = location.instance.create_run_for_job(
        location.definitions.resolve_implicit_global_asset_job_def(),
        tags=dict(request.tags),
        asset_selection=frozenset([AssetKey("orders")]),
        status=DagsterRunStatus.STARTED,
    )
    assert "is loading it" in str(location.tick("orders__increments").skip_reason)
    location.instance.report_run_failed(run)
    (again,) = list(location.tick("orders__increments").run_requests or ())
    assert again.run_key == "orders/2/2"


def test_a_run_that_is_cancelled_and_killed_is_ended(location: Location):
    run = location.instance.create_run_for_job(
        location.definitions.resolve_implicit_global_asset_job_def(),
        tags={"velo/host": socket.gethostname(), "velo/process": "999999999@1"},
        asset_selection=frozenset([AssetKey("orders")]),
        status=DagsterRunStatus.CANCELING,
    )
    assert location.tick("velo_sources").run_requests
    found = location.instance.get_run_by_id(run.run_id)
    assert found is not None and found.status is DagsterRunStatus.CANCELED


def looked(location: Location, times: int, cursor: str | None = None) -> SensorResult:
    """The last of so many looks of the source sensor, after others at which it asked for nothing."""
    for _ in range(times - 1):
        tick = location.tick("velo_sources", cursor)
        assert not tick.run_requests
        cursor = tick.cursor
    return location.tick("velo_sources", cursor)


def asked(tick: SensorResult) -> list[list[AssetKey]]:
    return [list(request.asset_selection or ()) for request in tick.run_requests or ()]


def caught_up(location: Location) -> list[list[AssetKey]]:
    """What the sensor asks for when automation had its chance."""
    return asked(looked(location, CHANCES))


def started(location: Location, *keys: str) -> DagsterRun:
    """A run that is on its way."""
    return location.instance.create_run_for_job(
        location.definitions.resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset(map(AssetKey.from_user_string, keys)),
        status=DagsterRunStatus.STARTED,
    )


def test_a_table_over_tables_that_stays_behind_is_asked_for(location: Location):
    """However it came to be behind: its run was killed or failed, an input changed meanwhile, automation forgot."""
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.load("orders", "users", "enriched")
    assert caught_up(location) == []
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    location.load("orders")
    assert caught_up(location) == [[AssetKey("enriched")]]
    location.load("enriched")
    location.play.write("t.sql", SQL.replace("o.id, o.amount", "o.id, o.amount * 2 AS amount"))
    assert caught_up(location) == [[AssetKey("enriched")]]
    location.load("enriched")
    assert caught_up(location) == []


def test_automation_has_its_chance_once_what_is_read_can_be_read(location: Location):
    """It asks only when the run that loaded an input has ended; both would ask for the same load if we were first."""
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.load("orders", "users", "enriched")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    location.load("orders")
    checking = started(location, "orders")
    held_up = looked(location, 2 * CHANCES)
    location.instance.report_run_canceled(checking)
    behind = looked(location, CHANCES - 1, held_up.cursor)
    assert asked(behind) == [], "automation may be about to ask"
    assert "enriched is behind what it reads; velo_automation has its chance first" in str(behind.skip_reason)
    loading = started(location, "enriched")
    going = looked(location, CHANCES, behind.cursor)
    assert "enriched: run " in str(going.skip_reason)
    location.instance.report_run_failed(loading)
    assert asked(looked(location, 1, going.cursor)) == [[AssetKey("enriched")]], "what was killed, nobody asks for"
    location.load("enriched")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,8\n")
    location.load("orders")
    assert asked(looked(location, 1, going.cursor)) == [], "another load, another chance"


@pytest.fixture
def ends_meanwhile(location: Location, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a table loaded between two looks of a tick: right before it asks Dagster which runs are on their way."""

    def arranged(table: str) -> None:
        found, pending = DagsterInstance.get_run_records, [table]

        def late(self: DagsterInstance, *given: Any, **named: Any) -> Any:
            while pending:
                location.play.loaded(pending.pop())
            return found(self, *given, **named)

        monkeypatch.setattr(DagsterInstance, "get_run_records", late)

    return arranged


def test_what_a_run_has_loaded_meanwhile_is_not_asked_for(location: Location, ends_meanwhile: Callable[[str], None]):
    """Runs are looked at after sources and tables, or a run that ends in between is missed in both."""
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.load("orders", "users", "enriched")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    ends_meanwhile("orders")
    assert location.tick("orders__increments").run_requests == []
    behind = looked(location, CHANCES - 1)
    ends_meanwhile("enriched")
    assert asked(looked(location, 1, behind.cursor)) == []
    assert location.play.rows("enriched") == location.play.reloaded().rows("enriched")


def test_a_partition_that_is_run_again_by_hand_is_not_asked_for(location: Location):
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    run = started(location, "orders/increments")
    waiting = location.tick("orders__increments")
    assert not waiting.run_requests
    assert f"run {run.run_id[:8]} is loading it" in str(waiting.skip_reason)


def test_a_table_over_one_whose_blocking_check_fails_is_not_asked_for(location: Location):
    location.play.write("data/users.csv", "user_id,name\n1,ann\n2,bob\n")
    location.play.append("data/orders-1.csv", "3,1,-1\n")
    location.load("orders", "users")
    tick = looked(location, CHANCES)
    assert not tick.run_requests
    assert "enriched waits for orders: its check positive fails" in str(tick.skip_reason)


def test_dagster_is_told_of_loads_that_it_has_not_heard_of(location: Location):
    """From a shell, from another instance, or killed between the commit and its event."""
    location.load("orders")
    location.play.write("data/orders-2.csv", "id,user_id,amount\n3,1,7\n")
    location.play.loaded("orders")
    tick = location.tick("velo_sources")
    told = [event for event in tick.asset_events if isinstance(event, AssetMaterialization)]
    assert [(event.asset_key.to_user_string(), event.partition) for event in told] == [
        ("orders", None),
        ("orders/increments", "2"),
    ]
    assert [list(one.partition_keys) for one in tick.dynamic_partitions_requests or ()] == [["2"]]
    for event in told:
        location.instance.report_runless_asset_event(event)
    again = location.tick("velo_sources", tick.cursor)
    assert not [event for event in again.asset_events if isinstance(event, AssetMaterialization)]


def test_a_check_that_needs_spark_is_not_failed_by_a_sensor(location: Location):
    location.play.write("t.sql", SQL.replace("WHERE amount < 0", "WHERE regexp_like(CAST(amount AS STRING), '^-')"))
    location.load("orders")
    location.instance.report_runless_asset_event(AssetMaterialization("orders"))
    made = [event for event in location.tick("velo_sources").asset_events if isinstance(event, AssetCheckEvaluation)]
    assert not [event for event in made if event.asset_key == AssetKey("orders") and not event.passed]


def test_a_check_that_names_another_table_does_not_block_for_ever(location: Location):
    """It failed; then the other table was loaded, so it would pass now. It needs Spark, so the reader's run asks."""
    check = "-- check known (ERROR, blocking): SELECT * FROM orders WHERE user_id NOT IN (SELECT user_id FROM users)\n"
    location.play.write("t.sql", check + SQL.lstrip())
    location.play.write("data/users.csv", "user_id,name\n1,ann\n")
    location.load("users")
    location.load("orders")
    assert caught_up(location) == []
    location.play.append("data/users.csv", "2,bob\n")
    location.load("users")
    assert caught_up(location) == [[AssetKey("enriched")]]
    assert location.load("enriched").success


def test_a_check_that_speaks_of_another_materialization_is_made_again(location: Location):
    """Overlapping runs leave such checks behind; what reads the table would wait for ever."""
    location.play.write("data/users.csv", "user_id,name\n1,ann\n")
    location.load("orders", "users", "enriched")
    # Nothing reads `enriched`, and this check blocks nothing: it would look as if never made.
    keys = {
        AssetCheckKey(AssetKey("orders"), "rows_as_loaded"),
        AssetCheckKey(AssetKey("enriched"), "nothing_rejected"),
    }
    planned = location.instance.create_run_for_job(location.definitions.resolve_implicit_global_asset_job_def())
    location.instance.report_run_canceled(planned)
    for table in ("orders", "enriched"):
        location.instance.report_runless_asset_event(AssetMaterialization(table))
    healed = [event for event in location.tick("velo_sources").asset_events if isinstance(event, AssetCheckEvaluation)]
    assert keys <= {event.asset_check_key for event in healed}


def test_the_oldest_partitions_are_forgotten(location: Location, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("velo_dagster.orchestration.specs.KEPT", 3)
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
