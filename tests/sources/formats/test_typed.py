"""Files that bring their own types. If these fail, a type of a Parquet, ORC or Avro file is read as another."""

from __future__ import annotations

import gzip
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from tests.sources.formats.reading import opener, rows_of
from velo_dagster.sources.formats import BrokenFile, FormatOptions, Misfit, open_format, typed

PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])
TABLE = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "amount": pa.array([Decimal("1.10"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
        "day": pa.array([date(2025, 1, 1), date(2024, 2, 29), None], pa.date32()),
        "at": pa.array([datetime(2025, 1, 1, 10, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
        "pair": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], PAIR),
    }
)
TYPES = {
    "id": "INT",
    "amount": "DECIMAL(10,2)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "tags": "ARRAY<STRING>",
    "pair": "STRUCT<x: BIGINT, y: STRING>",
}
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": ["null", "int"]},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {
            "name": "pair",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "pair",
                    "fields": [{"name": "x", "type": ["null", "long"]}, {"name": "y", "type": ["null", "string"]}],
                },
            ],
        },
    ],
}


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, row_group_size=2)
    return sink.getvalue()


def orc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pyarrow.orc.write_table(table, sink)
    return sink.getvalue()


def avro(table: pa.Table, schema: dict[str, Any] = AVRO) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, table.to_pylist(), sync_interval=20)
    return sink.getvalue()


WRITERS = {"parquet": parquet, "orc": orc, "avro": avro}


@pytest.mark.parametrize("name", WRITERS)
def test_types_and_values_are_those_of_the_file(name: str) -> None:
    data = WRITERS[name](TABLE)
    format_ = open_format(name, FormatOptions())
    assert dict(format_.typed_schema(opener(data)) or ()) == TYPES
    rows = rows_of(format_, data, [*TYPES.items()])
    assert [{column: row[column] for column in TYPES} for row in rows] == TABLE.to_pylist()
    assert [row["_velo_at"] for row in rows] == [0, 1, 2]
    assert format_.tail(opener(data), 0, len(data)).complete == 3
    assert format_.limit(opener(data), 0, None, 2) == (2, 2)
    assert [row["_velo_at"] for row in rows_of(format_, data, [*TYPES.items()], start=1, stop=2)] == [1]
    assert format_.survey(opener(data), 0, None, {}).records == 3


@pytest.mark.parametrize("name", WRITERS)
def test_a_wider_type_of_the_table_is_exact(name: str) -> None:
    wider = {"id": "DECIMAL(21,2)", "amount": "STRING", "day": "TIMESTAMP", "new": "INT"}
    schema: list[tuple[str, str | None]] = [*wider.items()]
    format_ = open_format(name, FormatOptions(ignore_unknown=True))
    row = rows_of(format_, WRITERS[name](TABLE), schema)[0]
    assert (row["id"], row["amount"], row["new"]) == (Decimal("1.00"), "1.10", None)
    assert row["day"] == datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("name", WRITERS)
def test_a_new_column_is_a_misfit(name: str) -> None:
    with pytest.raises(Misfit, match="'amount'"):
        rows_of(open_format(name, FormatOptions()), WRITERS[name](TABLE), [("id", "INT")])


@pytest.mark.parametrize("name", WRITERS)
def test_a_value_that_does_not_fit_its_declared_type_makes_its_row_bad(name: str) -> None:
    table = TABLE.set_column(0, "id", pa.array([1, 300, None], pa.int32()))
    format_ = open_format(name, FormatOptions(ignore_unknown=True))
    rows = rows_of(format_, WRITERS[name](table), [("id", "TINYINT")], declared=frozenset({"id"}))
    assert [(row["id"], row["_velo_reason"]) for row in rows] == [
        (1, None),
        (None, "'300' in column 'id' is not a TINYINT"),
        (None, None),
    ]
    assert format_.survey(opener(WRITERS[name](table)), 0, None, {"id": "TINYINT"}).bad_count == 1


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * 100])
def test_a_damaged_file_is_refused(name: str, damage: Any) -> None:
    with pytest.raises(BrokenFile, match="not a readable"):
        rows_of(open_format(name, FormatOptions()), damage(WRITERS[name](TABLE)), [*TYPES.items()])


@pytest.mark.parametrize("name", WRITERS)
def test_compressed_ones_are_unpacked(name: str) -> None:
    data = gzip.compress(WRITERS[name](TABLE))
    assert len(rows_of(open_format(name, FormatOptions(compression="gzip")), data, [*TYPES.items()])) == 3


def test_nanoseconds_that_would_be_lost_make_a_row_bad() -> None:
    table = pa.table({"t": pa.array([1_000, 1_001], pa.timestamp("ns"))})
    rows = rows_of(open_format("orc", FormatOptions()), orc(table), [("t", "TIMESTAMP")])
    assert [row["_velo_reason"] is None for row in rows] == [True, False]


def test_avro_unions_references_and_texts() -> None:
    schema = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "n", "type": ["int", "long"]},
            {"name": "mixed", "type": ["null", "int", "string", "boolean"]},
            {"name": "color", "type": {"type": "enum", "name": "color", "symbols": ["RED", "BLUE"]}},
            {"name": "other", "type": "color"},
            {"name": "map", "type": {"type": "map", "values": "double"}},
            {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        ],
    }
    uuid = "00000000-0000-0000-0000-000000000001"
    row = {"n": 1, "mixed": True, "color": "RED", "other": "BLUE", "map": {"x": 1.5}, "uuid": uuid}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [row, {**row, "mixed": 5}])
    format_ = open_format("avro", FormatOptions())
    types = format_.typed_schema(opener(sink.getvalue())) or []
    assert [text for _, text in types] == ["BIGINT", "STRING", "STRING", "STRING", "MAP<STRING, DOUBLE>", "STRING"]
    rows = rows_of(format_, sink.getvalue(), [*types])
    assert [rows[0][name] for name, _ in types] == [1, "true", "RED", "BLUE", [("x", 1.5)], uuid]
    assert rows[1]["mixed"] == "5"


def test_text_lines_are_rows() -> None:
    format_ = open_format("text", FormatOptions())
    data = b"a\r\n\n 5\nlast"
    sample = format_.sample(opener(data), 0, None, {}).columns
    assert {name: seen.type() for name, seen in sample.items()} == {"value": "STRING"}
    rows = rows_of(format_, data, [("value", "STRING")])
    assert [(row["value"], row["_velo_at"]) for row in rows] == [("a", 0), ("", 3), (" 5", 4), ("last", 7)]
    rows = rows_of(format_, b"1\nx\n", [("value", "BIGINT")], declared=frozenset({"value"}))
    assert [(row["value"], row["_velo_reason"]) for row in rows] == [(1, None), (None, "'x' is not a BIGINT")]
    with pytest.raises(Misfit):
        rows_of(format_, data, [("other", "STRING")])


def test_a_cast_that_does_not_exist_fits_no_value_also_where_there_is_none() -> None:
    """A batch without rows would be halved for ever."""
    for count in (0, 1, 3):
        array, misfits = typed._cast(pa.array([[1]] * count, pa.list_(pa.int64())), pa.date32())
        assert (len(array), array.null_count, list(misfits)) == (count, count, [True] * count)
