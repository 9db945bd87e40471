"""One Spark for the whole run: starting it costs more than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Play
from velo_dagster.engine.session import EmbeddedEngine

# How fast a JVM is, and nothing that Spark does. The one that all tests of a process share lives for half an hour and
# runs all kinds of queries; it needs room for what it compiles. Commands that tests start inherit the other settings:
# they end before compiling their code well would give back what it costs.
LONG = "-XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
SHORT = f"{LONG} -XX:TieredStopAtLevel=1"
os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT)


@pytest.fixture(scope="session")
def engine() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine({"spark.sql.shuffle.partitions": "2"})
    given = os.environ["JDK_JAVA_OPTIONS"]
    os.environ["JDK_JAVA_OPTIONS"] = LONG if given == SHORT else given
    with engine.session():
        os.environ["JDK_JAVA_OPTIONS"] = given
    yield engine
    engine.stop()


@pytest.fixture
def spark(engine: EmbeddedEngine):
    with engine.session() as session:
        yield session


@pytest.fixture
def play(tmp_path: Path, engine: EmbeddedEngine) -> Play:
    return Play(tmp_path, engine)
