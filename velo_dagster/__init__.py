"""Plain SQL over live sources as exact, self-updating tables inside Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from velo_dagster.orchestration.definitions import build_velo_definitions
    from velo_dagster.orchestration.load import VeloLoadConfig
    from velo_dagster.orchestration.resources import VeloSparkResource
    from velo_dagster.orchestration.translator import VeloDagsterTranslator, VeloSource, VeloTable

__all__ = [
    "VeloDagsterTranslator",
    "VeloLoadConfig",
    "VeloSource",
    "VeloSparkResource",
    "VeloTable",
    "build_velo_definitions",
]

_PLACES = {
    "VeloDagsterTranslator": "translator",
    "VeloLoadConfig": "load",
    "VeloSource": "translator",
    "VeloSparkResource": "resources",
    "VeloTable": "translator",
    "build_velo_definitions": "definitions",
}


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is asked for: the command line must not wait for Dagster."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"velo_dagster.orchestration.{_PLACES[name]}"), name)
