"""A project as asset specs: pure, so that a code location loads in no time and whatever is away outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster import AssetKey, AssetSpec, Definitions

from velo_dagster import VeloDagsterTranslator, VeloSource, VeloTable, build_velo_definitions
from velo_dagster.orchestration.assets import RETRIES
from velo_dagster.orchestration.definitions import WrongProject

SQL = """
-- dagster: group=shop owners=team:shop tags=tier:gold kinds=csv
-- All orders.
CREATE TABLE orders AS SELECT id, user_id, amount FROM file://data/orders*.csv;

CREATE TABLE users AS SELECT user_id PRIMARY KEY, name FROM file://data/users.csv;

-- dagster: automation=off
CREATE TABLE quiet AS SELECT id FROM orders;

CREATE TABLE enriched AS SELECT o.id, u.name, e.v FROM orders o JOIN users u ON o.user_id = u.user_id
JOIN file://data/users.csv e ON o.id = e.user_id;
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "t.sql").write_text(SQL)
    return tmp_path


def specs(definitions: Definitions) -> dict[str, AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def test_tables_increments_and_sources_are_assets(project: Path):
    found = specs(build_velo_definitions(project))
    assert sorted(found) == [
        "enriched",
        "enriched/increments",
        "file/data_orders_csv",
        "file/data_users_csv",
        "orders",
        "orders/increments",
        "quiet",
        "users",
        "users/increments",
    ]
    orders = found["orders"]
    assert (orders.group_name, list(orders.owners), orders.tags["tier"]) == ("shop", ["team:shop"], "gold")
    assert {"delta", "spark", "csv"} <= orders.kinds
    assert orders.description is not None
    assert orders.description.startswith("All orders.\n\n```sql\nCREATE TABLE orders AS")
    assert orders.metadata["dagster/uri"].endswith("/.velo/warehouse/orders")
    assert orders.metadata["dagster/code_references"].code_references[0].line_number == 4
    assert found["enriched"].metadata["velo/refresh"] == (
        "groups, because a join reads several inputs; its parts are told apart by the row of o; "
        "a load computes anew the parts that changed: O(groups touched)"
    )
    assert found["enriched"].metadata["velo/touches"] == [
        "orders: a changed row touches the rows made of it",
        "users: a changed row touches the rows of o it joins by o.user_id = u.user_id",
        "file://data/users.csv: a changed row touches the rows of o it joins by o.id = e.user_id",
    ]
    assert "velo/touches" not in found["quiet"].metadata, "new rows are appended to it"
    assert {dep.asset_key for dep in found["enriched"].deps} == {
        AssetKey("orders"),
        AssetKey("users"),
        AssetKey(["file", "data_users_csv"]),
    }
    assert orders.partitions_def is None
    assert found["orders/increments"].partitions_def is not None


def test_only_tables_over_tables_are_automated(project: Path):
    found = specs(build_velo_definitions(project))
    assert {name for name, spec in found.items() if spec.automation_condition is not None} == {"enriched"}


def test_each_table_has_a_pool_that_its_increments_share(project: Path):
    """Two runs of one table wait for each other, those of two tables don't; both are tried again by one policy."""
    definitions = build_velo_definitions(project)
    ops = {
        key: definitions.get_assets_def(AssetKey.from_user_string(key)).op
        for key in specs(definitions)
        if "file" not in key
    }
    assert {key: op.pool for key, op in ops.items()} == {
        "orders": "velo/orders",
        "orders/increments": "velo/orders",
        "users": "velo/users",
        "users/increments": "velo/users",
        "quiet": "velo/quiet",
        "enriched": "velo/enriched",
        "enriched/increments": "velo/enriched",
    }
    assert {op.retry_policy for op in ops.values()} == {RETRIES}


def test_the_code_version_is_what_rows_depend_on(project: Path):
    before = specs(build_velo_definitions(project))
    (project / "t.sql").write_text(SQL.replace("-- All orders.", "-- Other words.").replace("quiet AS", "quiet   AS"))
    same = specs(build_velo_definitions(project))
    (project / "t.sql").write_text(SQL.replace("amount FROM", "amount + 1 AS amount FROM"))
    other = specs(build_velo_definitions(project))
    versions = [one["orders"].code_version for one in (before, same, other)]
    assert versions[0] == versions[1] != versions[2]


def test_one_hook_changes_tables_and_sources_and_all_that_follows(project: Path):
    class Ours(VeloDagsterTranslator):
        def get_asset_spec(self, node: VeloTable | VeloSource) -> AssetSpec:
            spec = super().get_asset_spec(node)
            prefix = "raw" if isinstance(node, VeloSource) else "lake"
            return spec.replace_attributes(key=spec.key.with_prefix(prefix), group_name=prefix)

    found = specs(build_velo_definitions(project, translator=Ours()))
    assert {"lake/orders", "lake/orders/increments", "raw/file/data_users_csv"} <= set(found)
    assert AssetKey(["lake", "users"]) in {dep.asset_key for dep in found["lake/enriched"].deps}
    assert [dep.asset_key for dep in found["lake/orders/increments"].deps] == [AssetKey(["lake", "orders"])]
    assert build_velo_definitions(project, translator=Ours()).get_repository_def().sensor_defs


def test_wrong_statements_keep_the_code_location_from_loading_and_say_where(project: Path):
    (project / "w.sql").write_text("CREATE TABLE w AS SELEC 1;")
    with pytest.raises(WrongProject, match=r"w\.sql:1:19: error"):
        build_velo_definitions(project)


def test_nothing_outside_is_touched(project: Path, monkeypatch: pytest.MonkeyPatch):
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a source was opened")

    monkeypatch.setattr("velo_dagster.sources.registry.factory_of", touched)
    build_velo_definitions(project).get_repository_def()
    assert not (project / ".velo").exists()


def test_two_sources_that_would_have_one_name_are_told_apart(tmp_path: Path):
    (tmp_path / "t.sql").write_text(
        "CREATE TABLE a AS SELECT * FROM file://d/x-1.csv; CREATE TABLE b AS SELECT * FROM file://d/x_1.csv;"
        "CREATE TABLE c AS SELECT * FROM file://d/x-1.csv;"
    )
    found = [name for name in specs(build_velo_definitions(tmp_path)) if name.startswith("file/")]
    assert len(found) == 2
    assert all(name.startswith("file/d_x_1_csv_") for name in found)
