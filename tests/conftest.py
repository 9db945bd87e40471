"""One Spark for the whole run: starting it costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Play
from velo_dagster.engine.session import EmbeddedEngine


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
