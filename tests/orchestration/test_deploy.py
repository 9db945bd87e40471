"""What users copy: the instance file must be one that Dagster takes, and definitions/ a code location that loads."""

from __future__ import annotations

from pathlib import Path

import yaml
from dagster._config import Shape, validate_config
from dagster._core.instance.config import dagster_instance_config_schema

from velo_dagster.cli_dagster import INSTANCE

ROOT = Path(__file__).parents[2]


def problems(text: str) -> list[str]:
    """What Dagster has against an instance file. Storage is another package's, and checked by it."""
    content = {key: value for key, value in yaml.safe_load(text).items() if key != "storage"}
    return [error.message for error in validate_config(Shape(dagster_instance_config_schema()), content).errors or ()]


def test_the_instance_of_production_is_one_that_dagster_takes():
    assert problems((ROOT / "deploy/dagster.yaml").read_text()) == []
    assert problems("sensrs: {use_threads: true}") != [], "the test itself must be able to fail"


def test_the_instance_of_dev_is_one_that_dagster_takes():
    assert problems(INSTANCE) == []


def test_definitions_is_a_code_location():
    from definitions import defs

    keys = {key.to_user_string() for key in defs.get_repository_def().asset_graph.get_all_asset_keys()}
    assert {"orders", "orders/increments", "user_spending", "file/data_orders_csv"} <= keys
    assert yaml.safe_load((ROOT / "definitions/workspace.yaml").read_text()) == {
        "load_from": [{"python_module": "definitions"}]
    }
