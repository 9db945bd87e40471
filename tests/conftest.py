"""One Spark for the whole run: starting it costs more than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Play
from velo_dagster.engine.session import EmbeddedEngine

# Tests run many small queries once each, in JVMs that live for minutes: compiling them well costs more than it gives.
# Commands that tests start inherit this. It changes how fast the JVM is, and nothing that Spark does.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def engine() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine({"spark.sql.shuffle.partitions": "2"})
    yield engine
    engine.stop()


@pytest.fixture
def spark(engine: EmbeddedEngine):
    with engine.session() as session:
        yield session


@pytest.fixture
def play(tmp_path: Path, engine: EmbeddedEngine) -> Play:
    return Play(tmp_path, engine)
