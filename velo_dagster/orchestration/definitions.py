"""A project as one code location: everything Dagster needs, from the SQL files alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dagster import AssetSelection, Definitions, RunConfig, define_asset_job, in_process_executor

from velo_dagster.errors import Terminal, VeloError
from velo_dagster.orchestration.assets import increments_asset, table_asset
from velo_dagster.orchestration.checks import source_checks, table_checks
from velo_dagster.orchestration.load import VeloLoadConfig
from velo_dagster.orchestration.resources import SPARK, VeloSparkResource
from velo_dagster.orchestration.runs import BULK, REFRESH
from velo_dagster.orchestration.sensors import automation_sensor, increment_sensor, source_sensor
from velo_dagster.orchestration.specs import ProjectSpecs, build_specs
from velo_dagster.orchestration.translator import VeloDagsterTranslator
from velo_dagster.plan.project import load_project
from velo_dagster.plan.settings import warehouse_of
from velo_dagster.sql.problems import Problem
from velo_dagster.store.table import Warehouse

INTERVAL = 30
CHECKS = "velo_checks"


class WrongProject(Terminal, VeloError):
    """Statements with errors: a code location with some of its tables missing would look like one without them."""

    code = "D703"

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        told = "\n".join(problem.render() for problem in problems)
        super().__init__(f"The project {path} has errors, which velo-dagster validate {path} shows too.\n{told}")


def build_velo_definitions(
    path: str | Path,
    *,
    warehouse: str | None = None,
    translator: VeloDagsterTranslator | None = None,
    spark: Any = None,
    sensor_interval_seconds: int = INTERVAL,
) -> Definitions:
    """The project's tables as assets, with their sources, checks, sensors, jobs and the Spark resource.

    Opens nothing but the SQL files (and velo.yaml). `warehouse`: where tables live, else as for the command line.
    `spark`: a `VeloSparkResource`, or one of dagster-pyspark's resources.
    """
    project = load_project(path)
    if project.errors:
        raise WrongProject(str(path), project.errors)
    place = Warehouse(warehouse or os.environ.get("VELO_WAREHOUSE") or warehouse_of(project.root, project.settings))
    specs = build_specs(project, place, translator or VeloDagsterTranslator())
    return _definitions(specs, spark if spark is not None else VeloSparkResource(), sensor_interval_seconds)


def _definitions(specs: ProjectSpecs, spark: Any, interval: int) -> Definitions:
    tables = list(specs.tables.values())
    reading = [table for table in tables if table.increments is not None]
    chosen = AssetSelection.assets(*(table.key for table in tables))
    asks = {table.op_name: VeloLoadConfig(full_refresh=True) for table in tables}
    return Definitions(
        assets=[
            *(table_asset(specs, table) for table in tables),
            *(increments_asset(specs, table) for table in reading),
            *(source.spec for source in specs.sources),
        ],
        asset_checks=[
            *(table_checks(specs, table) for table in tables),
            *(source_checks(specs, source) for source in specs.sources),
        ],
        jobs=[
            define_asset_job(BULK, chosen, description="Load every table, in the order of what they read."),
            define_asset_job(REFRESH, chosen, config=RunConfig(ops=asks), description="Load every table anew."),
            define_asset_job(
                CHECKS,
                AssetSelection.all_asset_checks() & AssetSelection.checks_for_assets(*_keys(specs)),
                description="Run all checks; nothing is loaded.",
            ),
        ],
        sensors=[
            source_sensor(specs, interval),
            *(increment_sensor(specs, table, interval) for table in reading),
            automation_sensor(specs, interval),
        ],
        resources={SPARK: spark},
        executor=in_process_executor,
    )


def _keys(specs: ProjectSpecs) -> list[Any]:
    return [*(table.key for table in specs.tables.values()), *(source.key for source in specs.sources)]
