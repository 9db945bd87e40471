"""Settings that a user gives to Spark: what only changes speed is taken, what would change results is refused."""

from __future__ import annotations

import pytest

from velo_dagster.engine.session import EmbeddedEngine, RefusedSettings, base_settings
from velo_dagster.plan.exact import EXACT, refused_settings


def test_an_engine_refuses_what_results_depend_on():
    """Without this, a table loaded in Tokyo's time would not equal its reload in UTC."""
    with pytest.raises(RefusedSettings, match=r"E143 'spark.sql.session.timeZone' can't be set.*It is always UTC"):
        EmbeddedEngine({"spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.memory": "2g"})


def test_what_makes_a_session_exact_can_be_repeated_but_not_changed():
    assert EXACT.items() <= base_settings().items()
    assert refused_settings(EXACT) == ()
    assert refused_settings(dict.fromkeys(EXACT, "other")) == tuple(EXACT)


def test_what_makes_a_session_fast_is_the_users():
    fast = base_settings().keys() - EXACT.keys()
    assert refused_settings(dict.fromkeys(fast, "7")) == ()


def test_a_session_has_the_users_settings_that_it_can_have(engine: EmbeddedEngine):
    """A setting that is silently not taken costs somebody a day; one that a running Spark can't take is no failure."""
    with engine.session() as session:
        place = session.conf.get("spark.sql.warehouse.dir")
    mine = {
        "spark.sql.shuffle.partitions": "3",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.autoBroadcastJoinThreshold": "1000",
        "spark.sql.ansi.enabled": "TRUE",
        "spark.sql.warehouse.dir": "elsewhere",
    }
    with EmbeddedEngine(mine).session() as session:
        found = {key: session.conf.get(key) for key in mine}
        assert found == mine | {"spark.sql.warehouse.dir": place}
        assert session.sql("SELECT 1 + 1 AS two").collect()[0].two == 2
