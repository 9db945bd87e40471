"""The Spark that loads run on, as a Dagster resource."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dagster import ConfigurableResource, InitResourceContext
from pydantic import Field, PrivateAttr

from velo_dagster.engine.session import BorrowedEngine, ConnectEngine, EmbeddedEngine, Engine
from velo_dagster.errors import Terminal, VeloError

SPARK = "velo_spark"


class NoSpark(Terminal, VeloError):
    """A resource that has no Spark session."""

    code = "D701"

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{type(given).__name__} has no Spark session to load tables with.",
            steps=["Give build_velo_definitions a VeloSparkResource, or a PySparkResource of dagster-pyspark."],
        )


class VeloSparkResource(ConfigurableResource):
    """Spark inside the run's process, started when a load needs it; or, with `remote`, a Spark Connect server."""

    settings: dict[str, str] = Field(default={}, description="Settings of Spark's own, over those of velo.yaml.")
    remote: str | None = Field(default=None, description="A Spark Connect server, sc://host:15002; none: embedded.")

    _engine: Engine | None = PrivateAttr(default=None)

    @contextmanager
    def yield_for_execution(self, context: InitResourceContext) -> Iterator[VeloSparkResource]:
        try:
            yield self
        finally:
            if self._engine is not None:
                self._engine.stop()
                self._engine = None

    def engine(self, settings: dict[str, str], starting: Any) -> Engine:
        """The engine of this run; `settings` are those of the project."""
        if self._engine is None:
            self._engine = (
                ConnectEngine(self.remote) if self.remote else EmbeddedEngine(settings | self.settings, starting)
            )
        return self._engine


def engine_of(resource: object, settings: dict[str, str], starting: Any) -> Engine:
    """The engine that a resource stands for: ours, or one of dagster-pyspark's, whose session somebody else made."""
    if isinstance(resource, VeloSparkResource):
        return resource.engine(settings, starting)
    session = getattr(resource, "spark_session", None)
    if session is None:
        raise NoSpark(resource)
    return BorrowedEngine(session)
