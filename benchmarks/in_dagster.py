"""What Dagster pays for a project again and again: loading the code location, and ticks of its sensors.

    python benchmarks/in_dagster.py [--repeat 3]

Limits: 300 tables as definitions in 3 s of CPU, imports included; a tick over 200 file sources in 1 s, before their
tables are loaded and after; an automation tick with 5,000 past increments in 0.1 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import end

LOAD = """
import json, resource, sys
from velo_dagster import build_velo_definitions
build_velo_definitions(sys.argv[1]).get_repository_def()
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps(used.ru_utime + used.ru_stime))
"""


def definitions(folder: Path, repeat: int) -> float:
    """Seconds of CPU of a fresh process that loads 300 tables."""
    for number in range(150):
        (folder / f"{number}.sql").write_text(
            f"-- dagster: group=a\nCREATE TABLE s{number} AS SELECT id PRIMARY KEY, v FROM file://d/{number}/*.csv;\n"
            f"CREATE TABLE d{number} AS SELECT id, COUNT(*) AS n FROM s{number} GROUP BY id;\n"
        )
    command = [sys.executable, "-c", LOAD, str(folder)]
    return statistics.median(json.loads(subprocess.check_output(command)) for _ in range(repeat))


def source_tick(folder: Path, repeat: int) -> float:
    """Seconds of a tick over 200 sources, half of which are there."""
    from dagster import DagsterInstance, SensorResult, build_sensor_context

    from velo_dagster import build_velo_definitions

    (folder / "d").mkdir()
    for number in range(200):
        (folder / f"{number}.sql").write_text(f"CREATE TABLE t{number} AS SELECT * FROM file://d/{number}.csv;")
        if number % 2:
            (folder / f"d/{number}.csv").write_text("id\n1\n")
    repository = build_velo_definitions(folder).get_repository_def()
    sensor = repository.get_sensor_def("velo_sources")
    seconds = []
    with DagsterInstance.ephemeral() as instance:
        for _ in range(repeat):
            started = time.monotonic()
            result = sensor(build_sensor_context(instance=instance, repository_def=repository))
            seconds.append(time.monotonic() - started)
            assert isinstance(result, SensorResult) and len(result.run_requests or ()) == 100
    return statistics.median(seconds)


def loaded_tick(folder: Path, repeat: int) -> float:
    """Seconds of a tick over 200 sources whose tables are all loaded and checked, and nothing is new."""
    from dagster import DagsterInstance, SensorResult, build_sensor_context

    from velo_dagster import build_velo_definitions

    (folder / "d").mkdir(parents=True)
    for number in range(200):
        (folder / f"{number}.sql").write_text(f"CREATE TABLE t{number} AS SELECT * FROM file://d/{number}.csv;")
        (folder / f"d/{number}.csv").write_text("id\n1\n")
    load_without_spark(folder)
    repository = build_velo_definitions(folder).get_repository_def()
    sensor = repository.get_sensor_def("velo_sources")
    seconds, cursor = [], None
    with DagsterInstance.local_temp(str(folder)) as instance:
        # The first tick tells of the loads, the second one makes the checks, the third one reads settled logs.
        for _ in range(3 + repeat):
            started = time.monotonic()
            result = sensor(build_sensor_context(instance=instance, repository_def=repository, cursor=cursor))
            seconds.append(time.monotonic() - started)
            assert isinstance(result, SensorResult) and not result.run_requests
            cursor = result.cursor
            for event in result.asset_events:
                instance.report_runless_asset_event(event)
        assert not result.asset_events, "nothing is left to be told"
    return statistics.median(seconds[-repeat:])


def load_without_spark(folder: Path) -> None:
    """Each table as a load leaves it: its rows, and up to where its source is in it."""
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction, write_deltalake

    from velo_dagster.plan.project import load_project
    from velo_dagster.sources.registry import open_source
    from velo_dagster.store.record import FOLDER, Record, encode
    from velo_dagster.store.table import APP

    project = load_project(folder)
    for plan in project.tables:
        positions = {"source": open_source(plan.inputs[0], project.root, {}).end(None)}
        record = Record(1, "a", "load", "bulk", "append", "", plan.fingerprint, positions, (("id", "BIGINT"),))
        path = folder / ".velo/warehouse" / plan.name
        said = {"userMetadata": encode(record, path / FOLDER)}
        properties = CommitProperties(custom_metadata=said, app_transactions=[Transaction(APP, 1)])
        write_deltalake(str(path), pa.table({"id": pa.array([1], pa.int64())}), commit_properties=properties)


def automation_tick(folder: Path, increments: int, repeat: int) -> float:
    """Seconds of an automation tick over a table and its reader, with so many increments in the past."""
    from dagster import AssetKey, AssetMaterialization, DagsterInstance, evaluate_automation_conditions

    from velo_dagster import build_velo_definitions

    folder.mkdir()
    (folder / "t.sql").write_text("CREATE TABLE a AS SELECT * FROM file://d.csv; CREATE TABLE b AS SELECT id FROM a;")
    definitions = build_velo_definitions(folder)
    seconds = []
    with DagsterInstance.local_temp(str(folder)) as instance:
        instance.add_dynamic_partitions("velo/a/increments", [str(number) for number in range(2, increments + 2)])
        for number in range(2, increments + 2):
            instance.report_runless_asset_event(AssetMaterialization(["a", "increments"], partition=str(number)))
        instance.report_runless_asset_event(AssetMaterialization(AssetKey("a")))
        cursor = evaluate_automation_conditions(definitions, instance).cursor
        for _ in range(repeat):
            started = time.monotonic()
            cursor = evaluate_automation_conditions(definitions, instance, cursor=cursor).cursor
            seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary, name) for name in ("definitions", "sources")]
        for folder in folders:
            folder.mkdir()
        loading, tick = definitions(folders[0], repeat), source_tick(folders[1], repeat)
        quiet = loaded_tick(Path(temporary, "loaded"), repeat)
        none = automation_tick(Path(temporary, "none"), 0, repeat)
        many = automation_tick(Path(temporary, "many"), 5000, repeat)
    print(f"300 tables as definitions: {loading:.2f} s of CPU (at most 3), medians of {repeat}")
    print(f"a tick over 200 file sources: {tick:.2f} s (at most 1); with all tables loaded: {quiet:.2f} s (at most 1)")
    print(f"an automation tick with 5,000 past increments: {many:.3f} s (at most 0.1), {many / none:.2f}x one without")
    limits = {
        "definitions": (loading, 3.0),
        "source tick": (tick, 1.0),
        "source tick with loaded tables": (quiet, 1.0),
        "automation tick": (many, 0.1),
    }
    end([f"{name}: {seconds:.2f} s, at most {most} s" for name, (seconds, most) in limits.items() if seconds > most])


if __name__ == "__main__":
    main()
