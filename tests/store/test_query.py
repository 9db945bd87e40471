"""`velo-dagster query` answers many SELECTs without Spark. If DuckDB's answer were not Spark's, a user would get one
number from the shell and another from the table that the same SELECT defines, depending on a detail of its wording."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from velo_dagster.store.plain_select import UnknownColumn
from velo_dagster.store.plain_types import NeedsSpark
from velo_dagster.store.query import query
from velo_dagster.store.reader import UnknownTable, open_table, to_arrow, visible_columns
from velo_dagster.store.table import Warehouse

FIXTURES = Path(__file__).parents[1] / "fixtures" / "query"


def cases(name: str) -> list[str]:
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("--")]


@pytest.fixture(scope="module")
def warehouse(engine, tmp_path_factory) -> Warehouse:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("warehouse")))
    with engine.session() as spark:
        things = spark.sql((FIXTURES / "things.sql").read_text(encoding="utf-8"))
        things.write.format("delta").save(str(warehouse.table("things").path))
        others = spark.sql("VALUES (1, 'Ann', 0), (1, 'x', 1), (3, NULL, 2), (99, 'z', 3) AS o(thing, label, _velo_id)")
        others.write.format("delta").save(str(warehouse.table("others").path))
    return warehouse


@pytest.fixture(scope="module")
def by_spark(engine, warehouse: Warehouse):
    with engine.session() as spark:
        for name in ("things", "others"):
            spark.read.format("delta").load(str(warehouse.table(name).path)).drop("_velo_id").createOrReplaceTempView(
                name
            )
        yield lambda sql: spark.sql(sql).toArrow()


def plain(value: Any) -> Any:
    """A value that equals another only if a user could not tell them apart; DECIMALs keep their digits."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return tuple((key, plain(one)) for key, one in value.items())
    if isinstance(value, list):
        return tuple(plain(one) for one in value)
    return value


def rows(table: pa.Table, ordered: bool) -> list[str]:
    # pylist by column: two columns may have one name.
    columns = [
        column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
        for column in table.columns
    ]
    listed = [repr(tuple(plain(value) for value in row)) for row in zip(*columns, strict=True)]
    return listed if ordered else sorted(listed)


def bare(type_: pa.DataType) -> str:
    """A type without the name that an engine gives to a list's elements."""
    return str(type_).replace("element:", "item:").replace("l:", "item:").replace(" not null", "")


@pytest.mark.parametrize("sql", cases("plain.sql"))
def test_answer_is_sparks(sql: str, warehouse: Warehouse, by_spark):
    ours, sparks = query(sql, warehouse), by_spark(sql)
    assert ours.column_names == sparks.column_names
    assert [bare(field.type) for field in ours.schema] == [bare(field.type) for field in sparks.schema]
    ordered = "ORDER BY" in sql
    assert rows(ours, ordered) == rows(sparks, ordered)


@pytest.mark.parametrize("case", cases("needs_spark.sql"))
def test_what_may_differ_is_left_to_spark(case: str, warehouse: Warehouse):
    sql = case.rsplit(" -- ", 1)[0]
    with pytest.raises(NeedsSpark):
        query(sql, warehouse)


def test_unknown_names_are_told_with_the_nearest(warehouse: Warehouse):
    with pytest.raises(UnknownTable, match=r"(?s)no table 'thngs'.*It holds others, things.*Perhaps you mean things"):
        query("SELECT * FROM thngs", warehouse)
    with pytest.raises(UnknownColumn, match=r"(?s)no column 'amuont'.*Did you mean amount"):
        query("SELECT amuont FROM things", warehouse)
    with pytest.raises(UnknownColumn, match=r"(?s)no column 'amount'.*Name the table that has it: FROM"):
        query("SELECT amount", warehouse)


def test_names_that_delta_refuses_are_those_of_the_table(warehouse: Warehouse):
    """`Order ID` of a CSV header is stored as `Order_ID`; a user who asks for either must get it, under one name."""
    assert query("SELECT id AS `Order ID` FROM things ORDER BY `Order ID`", warehouse).column_names == ["Order_ID"]


def test_hidden_columns_are_no_columns(warehouse: Warehouse):
    """A user who sees `_velo_id` builds on it, and it changes with every full refresh."""
    path = warehouse.table("things").path
    assert "_velo_id" not in query("SELECT * FROM things", warehouse).column_names
    assert "_velo_id" not in visible_columns(path)
    assert "_velo_id" not in to_arrow(path).column_names
    with pytest.raises(UnknownColumn):
        query("SELECT _velo_id FROM things", warehouse)


def test_count_comes_from_the_log(engine, warehouse: Warehouse, tmp_path: Path):
    """`status` counts tables of any size: it may not read them."""
    path = tmp_path / "counted"
    with engine.session() as spark:
        spark.range(10).write.format("delta").save(str(path))
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 3")
    for file in path.glob("*.parquet"):
        file.unlink()
    assert open_table(path).count() == 7


def test_older_version_is_read_as_it_was(engine, tmp_path: Path):
    path = tmp_path / "versions"
    with engine.session() as spark:
        spark.range(2).write.format("delta").save(str(path))
        spark.range(5).write.format("delta").mode("overwrite").save(str(path))
    assert to_arrow(path, version=0).num_rows == 2
    assert to_arrow(path, columns=["id"]).num_rows == 5
