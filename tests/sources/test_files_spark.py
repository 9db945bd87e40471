"""What only a run on Spark can show: bad rows with their places, system columns, Parquet files that differ."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from velo_dagster.sources.contract import ERROR, ID, BadRow, Field
from velo_dagster.sources.errors import SchemaRefused
from velo_dagster.sources.files import FileSource


def source_of(folder: Path, written: str, declared: dict[str, str] | None = None, **properties: str) -> FileSource:
    raw = {key.replace("__", "."): value for key, value in properties.items()}
    return FileSource(written, raw, root=folder, declared=declared or {})


def test_bad_rows_come_with_file_line_reason_and_text(tmp_path: Path, spark: Any) -> None:
    """A user who keeps bad rows aside must be able to find and mend each of them."""
    (tmp_path / "a.csv").write_bytes(b'id,name\n1,"two\nlines"\n2\n3,x,y\n4,\xff\n5,five\n')
    source = source_of(tmp_path, "a.csv", failure_strategy="SendToDLQ")
    scan = source.scan(None, source.end(None))
    schema = source.schema(scan, ())
    frame = source.read(spark, scan, schema, ["_file", "_line"]).orderBy(ID)
    found = [(row["id"], row["_line"], row[ERROR] and row[ERROR]["place"]) for row in frame.collect()]
    path = str(tmp_path / "a.csv")
    assert found == [
        (1, 2, None),
        (None, 4, f"{path}:4"),
        (None, 5, f"{path}:5"),
        (None, 6, f"{path}:6"),
        (5, 7, None),
    ]
    assert {row["_file"] for row in frame.collect()} == {path}
    survey = source.survey(spark, scan, ())
    assert survey.bad_count == 3 and [row.place for row in survey.bad_rows] == [f"{path}:{n}" for n in (4, 5, 6)]
    assert survey.bad_rows[0].text == "2" and survey.schema == schema


def test_a_column_of_nothing_but_nulls_stays_undecided(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "a.csv").write_text("id,later\n1,\n")
    source = source_of(tmp_path, "a.csv")
    scan = source.scan(None, source.end(None))
    schema = source.schema(scan, ())
    assert schema == (Field("id", "BIGINT"), Field("later", None))
    frame = source.read(spark, scan, schema)
    assert frame.columns == ["id", "later", ID, ERROR] and frame.collect()[0]["later"] is None


def test_a_json_record_that_fills_a_column_twice_is_surveyed_as_bad(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 1, "ID": 2}\n')
    source = source_of(tmp_path, "a.jsonl")
    scan = source.scan(None, source.end(None))
    survey = source.survey(spark, scan, ())
    assert survey.schema == (Field("id", "BIGINT"),) and survey.bad_count == 1
    assert survey.bad_rows[0].place == f"{tmp_path / 'a.jsonl'}:2"


def write(path: Path, **columns: Any) -> None:
    parquet.write_table(pa.table(columns), path)


def test_parquet_files_whose_names_have_a_colon(tmp_path: Path, spark: Any) -> None:
    """Files named by the time of their writing are read like all others, together with them."""
    write(tmp_path / "2025-01-01T10:00:00.parquet", ID=[1, 2])
    write(tmp_path / "b.parquet", id=[3])
    source = source_of(tmp_path, "*.parquet")
    scan = source.scan(None, source.end(None))
    found = source.read(spark, scan, source.schema(scan, ())).orderBy(ID).collect()
    assert [(row[0], row[ID]["file"]) for row in found] == [
        (1, "2025-01-01T10:00:00.parquet"),
        (2, "2025-01-01T10:00:00.parquet"),
        (3, "b.parquet"),
    ]


def test_parquet_files_with_different_columns_and_types(tmp_path: Path, spark: Any) -> None:
    """Files written by different versions of a job: none of their rows may be lost or bent."""
    write(tmp_path / "a [1]{x}.parquet", id=pa.array([1, 2], pa.int32()), price=pa.array([Decimal("1.50"), None]))
    write(tmp_path / "b+c %41.parquet", **{"Order ID": pa.array(["x"]), "ID": pa.array([2**40])})
    source = source_of(tmp_path, "*.parquet")
    scan = source.scan(None, source.end(None))
    schema = source.schema(scan, ())
    assert schema == (Field("id", "BIGINT"), Field("price", "DECIMAL(3,2)"), Field("Order_ID", "STRING"))
    rows = [tuple(row) for row in source.read(spark, scan, schema, ["_file"]).drop(ERROR).orderBy(ID).collect()]
    first, second = str(tmp_path / "a [1]{x}.parquet"), str(tmp_path / "b+c %41.parquet")
    assert rows == [
        (1, Decimal("1.50"), None, first, ("a [1]{x}.parquet", 0)),
        (2, None, None, first, ("a [1]{x}.parquet", 1)),
        (2**40, None, "x", second, ("b+c %41.parquet", 0)),
    ]


def test_parquet_values_that_a_declared_type_does_not_hold_are_bad_rows(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "a.parquet", id=pa.array(["1", "x"]), price=pa.array([Decimal("1.50"), Decimal("1.25")]))
    declared = {"ID": "INT", "price": "DECIMAL(10,1)"}
    source = source_of(tmp_path, "a.parquet", declared, failure_strategy="SendToDLQ")
    scan = source.scan(None, source.end(None))
    schema = source.schema(scan, ())
    assert schema == (Field("id", "INT"), Field("price", "DECIMAL(10,1)"))
    good, bad = source.read(spark, scan, schema).orderBy(ID).collect()
    assert (good["id"], good["price"], good[ERROR]) == (1, Decimal("1.5"), None)
    assert bad[ERROR]["place"] == f"{tmp_path / 'a.parquet'}: row 2" and "'x'" not in bad[ERROR]["place"]
    survey = source.survey(spark, scan, ())
    assert survey.bad_count == 1 and isinstance(survey.bad_rows[0], BadRow)
    failing = source_of(tmp_path, "a.parquet", declared)
    with pytest.raises(Exception, match=r"row 2: column id INT does not hold the value x"):
        failing.read(spark, scan, schema).collect()


def test_parquet_columns_that_differ_only_in_case_are_refused(tmp_path: Path, spark: Any) -> None:
    write(tmp_path / "a.parquet", id=pa.array([1]), ID=pa.array([2]))
    source = source_of(tmp_path, "a.parquet")
    scan = source.scan(None, source.end(None))
    with pytest.raises(SchemaRefused, match="differ only in case"):
        source.read(spark, scan, source.schema(scan, ()))


def test_many_files_are_read_by_few_tasks(tmp_path: Path, spark: Any) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}.csv").write_text(f"id\n{number}\n")
    source = source_of(tmp_path, "*.csv")
    scan = source.scan(None, source.end(None))
    frame = source.read(spark, scan, source.schema(scan, ()))
    assert [row["id"] for row in frame.orderBy(ID).collect()] == list(range(300))


def test_a_scan_that_only_takes_rows_away_reads_none(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    source = source_of(tmp_path, "a.csv")
    since = source.end(None)
    schema = source.schema(source.scan(None, since), ())
    (tmp_path / "a.csv").write_text("")
    scan = source.scan(since, source.end(since))
    assert scan.removed and not scan.parts
    assert source.read(spark, scan, schema).collect() == []
    assert source.survey(spark, scan, schema).schema == schema


def test_parquet_with_nanoseconds_as_pandas_writes_it(tmp_path: Path, spark: Any) -> None:
    """Spark's reader refuses such files; a user has them all the same."""
    moment = datetime(2025, 1, 1, 12, 30, 0, 123456)
    write(tmp_path / "a.parquet", t=pa.array([moment], pa.timestamp("ns")), **{"Order ID": pa.array([1])})
    write(tmp_path / "b.parquet", t=pa.array([moment], pa.timestamp("us")), **{"Order ID": pa.array([2])})
    source = source_of(tmp_path, "*.parquet")
    scan = source.scan(None, source.end(None))
    schema = source.schema(scan, ())
    assert schema == (Field("t", "TIMESTAMP_NTZ"), Field("Order_ID", "BIGINT"))
    assert source.survey(spark, scan, ()).schema == schema
    rows = source.read(spark, scan, schema).orderBy(ID).collect()
    assert [(row["t"], row["Order_ID"], row[ERROR]) for row in rows] == [(moment, 1, None), (moment, 2, None)]
