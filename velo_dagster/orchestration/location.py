"""The code location that `velo-dagster dev PATH` serves: the project that VELO_PROJECT names."""

from __future__ import annotations

import os

from velo_dagster.orchestration.definitions import INTERVAL, build_velo_definitions

defs = build_velo_definitions(
    os.environ["VELO_PROJECT"], sensor_interval_seconds=int(os.environ.get("VELO_SENSOR_SECONDS", INTERVAL))
)
