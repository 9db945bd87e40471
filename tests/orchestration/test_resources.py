"""Whose Spark it is: ours is started when a load needs it, somebody else's is used and left alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dagster import DagsterInstance, materialize
from dagster_pyspark import LazyPySparkResource, PySparkResource

from tests.harness import Play
from velo_dagster import VeloSparkResource, build_velo_definitions
from velo_dagster.engine.session import BorrowedEngine, NoDelta
from velo_dagster.orchestration.resources import NoSpark, SettingsOfAServer, engine_of


@pytest.mark.parametrize("resource", [PySparkResource(spark_config={}), LazyPySparkResource(spark_config={}), None])
def test_resources_of_dagster_pyspark_are_taken(play: Play, spark: Any, resource: Any):
    """Their `getOrCreate` finds the session of the tests, which has Delta, as a user's own would."""
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://d.csv")
    play.write("d.csv", "id\n1\n")
    definitions = build_velo_definitions(play.folder, warehouse=str(play.folder / "warehouse"), spark=resource)
    job = definitions.resolve_implicit_global_asset_job_def()
    with DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance, asset_selection=[_key("t")]).success
    assert play.rows("t") == play.reloaded().rows("t")
    assert spark.range(1).count() == 1, "the session is still there afterwards"


def _key(name: str) -> Any:
    from dagster import AssetKey

    return AssetKey(name)


def test_nothing_new_starts_no_spark(play: Play, engine: Any):
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://d.csv")
    play.write("d.csv", "id\n1\n")
    play.loaded()

    class Unwanted(VeloSparkResource):
        def engine(self, settings: Any, say: Any) -> Any:
            class NoEngine:
                def session(self) -> Any:
                    raise AssertionError("Spark was asked for")

                def stop(self) -> None: ...

            return NoEngine()

    definitions = build_velo_definitions(play.folder, warehouse=str(play.folder / "warehouse"), spark=Unwanted())
    job = definitions.resolve_implicit_global_asset_job_def()
    with DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance, asset_selection=[_key("t")]).success


def test_a_resource_without_a_session_is_refused():
    with pytest.raises(NoSpark, match="dict has no Spark session"):
        engine_of({}, {}, print)


def test_a_resource_that_is_refused_fails_the_run_at_once(tmp_path: Path):
    (tmp_path / "t.sql").write_text("CREATE TABLE t AS SELECT * FROM file://d.csv")
    resource = VeloSparkResource(remote="sc://spark:15002", settings={"spark.sql.shuffle.partitions": "8"})
    job = build_velo_definitions(tmp_path, spark=resource).resolve_implicit_global_asset_job_def()
    with DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, asset_selection=[_key("t")], raise_on_error=False)
    assert not done.success
    assert not [event for event in done.all_events if event.is_step_up_for_retry], "it would be refused again"


def test_settings_that_cannot_count_are_refused_or_told():
    """Somebody else's Spark has its own; whoever set them here would wait for their effect."""
    said: list[str] = []
    engine_of(VeloSparkResource(remote="sc://spark:15002"), {}, said.append)
    assert not said
    ours = {"spark.sql.shuffle.partitions": "8"}
    engine_of(VeloSparkResource(remote="sc://spark:15002"), ours, said.append)
    engine_of(SimpleNamespace(spark_session=object()), ours, said.append)
    assert said == [
        f"The engine's settings in velo.yaml don't count, {whose} has its own: spark.sql.shuffle.partitions."
        for whose in ("the server at sc://spark:15002", "the session of SimpleNamespace")
    ]
    with pytest.raises(SettingsOfAServer, match="has both settings and remote"):
        engine_of(VeloSparkResource(remote="sc://spark:15002", settings=ours), {}, said.append)


def test_a_session_without_delta_is_told_what_it_lacks():
    class Plain:
        class conf:
            @staticmethod
            def get(key: str, default: str) -> str:
                return default

    with pytest.raises(NoDelta, match=r"spark\.sql\.extensions is ''"), BorrowedEngine(Plain()).session():  # pyright: ignore[reportArgumentType]
        pass


def test_materialize_of_dagster_works_too(play: Play, spark: Any):
    play.write("t.sql", "CREATE TABLE t AS SELECT * FROM file://d.csv")
    play.write("d.csv", "id\n1\n")
    definitions = build_velo_definitions(play.folder, warehouse=str(play.folder / "warehouse"))
    assets = [one for one in definitions.assets or () if _key("t") in getattr(one, "keys", ())]
    assert materialize(assets, resources={"velo_spark": VeloSparkResource()}).success  # pyright: ignore[reportArgumentType]
