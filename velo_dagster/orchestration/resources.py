"""The Spark that loads run on, as a Dagster resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from dagster import ConfigurableResource, InitResourceContext
from pydantic import Field, PrivateAttr

from velo_dagster.engine.session import BorrowedEngine, ConnectEngine, EmbeddedEngine, Engine
from velo_dagster.errors import Terminal, VeloError
from velo_dagster.orchestration.processes import own_tags

SPARK = "velo_spark"

Say = Callable[[str], None]
"""Where sentences go: the run's log."""


class NoSpark(Terminal, VeloError):
    """A resource that has no Spark session."""

    code = "D701"

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{type(given).__name__} has no Spark session to load tables with.",
            steps=["Give build_velo_definitions a VeloSparkResource, or a PySparkResource of dagster-pyspark."],
        )


class SettingsOfAServer(Terminal, VeloError):
    """Settings for a Spark that is started elsewhere: they would be passed over without a word."""

    code = "D708"

    def __init__(self, remote: str) -> None:
        super().__init__(
            f"VeloSparkResource has both settings and remote: the server at {remote} has settings of its own.",
            steps=["Set them where that server is started, and leave out settings.", "Or leave out remote."],
        )


class VeloSparkResource(ConfigurableResource):
    """Spark inside the run's process, started when a load needs it; or, with `remote`, a Spark Connect server."""

    settings: dict[str, str] = Field(default={}, description="Settings of Spark's own, over those of velo.yaml.")
    remote: str | None = Field(default=None, description="A Spark Connect server, sc://host:15002; none: embedded.")

    _engine: Engine | None = PrivateAttr(default=None)

    @contextmanager
    def yield_for_execution(self, context: InitResourceContext) -> Iterator[VeloSparkResource]:
        if context.run is not None and context.instance is not None:
            # At the beginning of the run: a kill before its first step must be seen, too.
            context.instance.add_run_tags(context.run.run_id, own_tags())
        try:
            yield self
        finally:
            if self._engine is not None:
                self._engine.stop()
                self._engine = None

    def engine(self, settings: Mapping[str, str], say: Say) -> Engine:
        """The engine of this run; `settings` are those of the project."""
        if self._engine is None and self.remote is not None:
            if self.settings:
                raise SettingsOfAServer(self.remote)
            _say_ignored(settings, f"the server at {self.remote}", say)
            self._engine = ConnectEngine(self.remote)
        elif self._engine is None:
            self._engine = EmbeddedEngine({**settings, **self.settings}, lambda: say("Starting Spark."))
        return self._engine


def engine_of(resource: object, settings: Mapping[str, str], say: Say) -> Engine:
    """The engine that a resource stands for: ours, or one of dagster-pyspark's, whose session somebody else made.

    `settings` are those of the project; where they don't count, that is said.
    """
    if isinstance(resource, VeloSparkResource):
        return resource.engine(settings, say)
    session = getattr(resource, "spark_session", None)
    if session is None:
        raise NoSpark(resource)
    _say_ignored(settings, f"the session of {type(resource).__name__}", say)
    return BorrowedEngine(session)


def _say_ignored(settings: Mapping[str, str], whose: str, say: Say) -> None:
    if settings:
        say(f"The engine's settings in velo.yaml don't count, {whose} has its own: {', '.join(sorted(settings))}.")
