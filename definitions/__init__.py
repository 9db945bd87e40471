"""A small real project: `make demo` runs it in a shell, `make dev` in Dagster's UI."""

from __future__ import annotations

from pathlib import Path

from velo_dagster import build_velo_definitions

defs = build_velo_definitions(Path(__file__).parent)
