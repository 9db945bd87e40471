"""The files of a table are those that its log names, however it is summed up; a file missed would be rows missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from velo_dagster.store.log import Held, held_files


def told(path: Path, version: int) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(str(path), version=version).file_uris()}


def found(path: Path, version: int) -> set[str]:
    return {Path(one.path).name for one in held_files(path, version)}


@pytest.mark.parametrize(
    ("properties", "settings"),
    [
        ("", {}),
        ("", {"spark.databricks.delta.checkpoint.partSize": "3"}),
        (", 'delta.enableDeletionVectors' = true", {}),
    ],
    ids=["plain", "in parts", "with vectors"],
)
def test_every_version_has_its_files(spark, tmp_path: Path, properties: str, settings: dict[str, str]):
    path = tmp_path / "t"
    for key, value in settings.items():
        spark.conf.set(key, value)
    every = f"TBLPROPERTIES ('delta.checkpointInterval' = 3{properties})"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta {every}")
    for number in range(3):
        spark.range(number * 10, number * 10 + 10, 1, 2).write.format("delta").mode("append").save(str(path))
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id = {number * 10 + 3}")
    newest = DeltaTable(str(path)).version()
    assert list((path / "_delta_log").glob("*.checkpoint*"))
    for version in range(newest + 1):
        assert found(path, version) == told(path, version), version
    assert sum(one.rows or 0 for one in held_files(path, newest)) == 27
    for file in (path / "_delta_log").glob("0000000000000000000[0-2].json"):
        file.unlink()
    assert found(path, newest) == told(path, newest), "from the checkpoint on"


def test_a_checkpoint_of_another_kind_is_passed_over(spark, tmp_path: Path):
    path = tmp_path / "t"
    other = "'delta.checkpointInterval' = 1, 'delta.checkpointPolicy' = 'v2'"
    spark.conf.set("spark.databricks.delta.checkpointV2.topLevelFileFormat", "parquet")
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ({other})")
    spark.range(0, 5, 1, 2).write.format("delta").mode("append").save(str(path))
    assert list((path / "_delta_log").glob("*.checkpoint*.parquet"))
    assert len(found(path, 1)) == 2 and found(path, 1) == told(path, 1)


def test_half_of_a_checkpoint_is_none(spark, tmp_path: Path):
    path = tmp_path / "t"
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", "3")
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ('delta.checkpointInterval' = 2)")
    for number in range(4):
        spark.range(number, number + 5, 1, 2).write.format("delta").mode("append").save(str(path))
    expected = found(path, 4)
    parts = sorted((path / "_delta_log").glob("*.checkpoint.*.parquet"))
    assert len(parts) > 2
    parts[-1].unlink()
    assert found(path, 4) == expected


@pytest.mark.parametrize(
    ("values", "may"), [([1, 5], False), ([1, 10], True), ([20], True), ([21], False), ([15], True), ([1, None], True)]
)
def test_a_file_that_can_t_hold_a_key_is_passed_over(values: list, may: bool):
    file = Held("f", 1, '{"numRecords": 3, "minValues": {"k": 10}, "maxValues": {"k": 20}}', None)
    assert file.may_hold("k", values) is may
    assert file.may_hold("other", values), "nothing is known of it"
