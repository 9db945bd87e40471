"""Files keep the promises of a source in every format."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pyarrow.orc as pyarrow_orc
import pyarrow.parquet as pyarrow_parquet
import pytest
import zstandard

from tests.sources.contract import Row, SourceContract, World
from velo_dagster.sources.files import FileSource

COLUMNS = ("id", "name", "amount", "day", "seen")
ARROW = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "amount": pa.decimal128(18, 2),
        "day": pa.date32(),
        "seen": pa.timestamp("us", tz="UTC"),
    }
)


AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {
            "name": "amount",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}],
        },
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}


def text_of(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.isoformat() if isinstance(value, date) else value


def csv_lines(rows: Sequence[Row], header: bool) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows([text_of(row[name]) for name in COLUMNS] for row in rows)
    return out.getvalue().encode()


def json_object(row: Row) -> str:
    """Numbers keep their digits: json.dumps knows no decimals."""
    fields = {key: f"#{value}#" if isinstance(value, Decimal) else text_of(value) for key, value in row.items()}
    return json.dumps(fields).replace('"#', "").replace('#"', "")


def json_lines(rows: Sequence[Row]) -> bytes:
    return "".join(json_object(row) + "\n" for row in rows).encode()


def json_array(rows: Sequence[Row]) -> bytes:
    return ("[" + ",\n".join(json_object(row) for row in rows) + "]").encode()


def arrow_table(rows: Sequence[Row]) -> pa.Table:
    utc = [
        {key: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for key, value in row.items()}
        for row in rows
    ]
    return pa.Table.from_pylist(utc, schema=ARROW)


def parquet(rows: Sequence[Row]) -> bytes:
    out = io.BytesIO()
    pyarrow_parquet.write_table(arrow_table(rows), out)
    return out.getvalue()


def orc(rows: Sequence[Row]) -> bytes:
    out = io.BytesIO()
    pyarrow_orc.write_table(arrow_table(rows), out)
    return out.getvalue()


class Folder(World):
    """A folder that files are put into: `grow` appends to one file, else each `add` makes a new file."""

    def __init__(
        self, path: Path, name: str, encode: Callable[[Sequence[Row]], bytes], header: bytes, grow: bool
    ) -> None:
        self.folder = path / "data it's +%20"
        self.name = name
        self.encode = encode
        self.header = header
        self.grow = grow

    def source(
        self, properties: Mapping[str, str] | None = None, declared: Mapping[str, str] | None = None
    ) -> FileSource:
        return FileSource(f"{self.folder.name}/*", properties or {}, root=self.folder.parent, declared=declared or {})

    def add(self, rows: Sequence[Row]) -> None:
        self.folder.mkdir(exist_ok=True)
        if self.grow:
            with self.path(0).open("ab") as file:
                file.write((self.header if file.tell() == 0 else b"") + self.encode(rows))
        else:
            self.path(len(list(self.folder.iterdir()))).write_bytes(self.encode(rows))

    def replace(self, rows: Sequence[Row]) -> None:
        for path in self.folder.iterdir():
            path.write_bytes(self.header + self.encode([]) if path != self.path(0) else self.header + self.encode(rows))

    def path(self, number: int) -> Path:
        stem, dot, suffix = self.name.partition(".")
        return self.folder / f"{stem} +%20-{number:02}{dot}{suffix}"


class FileContract(SourceContract):
    can_replace = True
    file: ClassVar[str]
    header: ClassVar[bytes] = b""
    grow: ClassVar[bool] = False

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        raise NotImplementedError

    @pytest.fixture
    def world(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path, self.file, self.encode, self.header, self.grow)


class TestGrowingCsv(FileContract):
    file, header, grow = "a.csv", (",".join(COLUMNS) + "\n").encode(), True

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        return csv_lines(rows, header=False)


class TestNewCsv(FileContract):
    file = "a.csv"

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        return csv_lines(rows, header=True)


class TestGrowingJsonLines(FileContract):
    file, grow = "a.jsonl", True
    encode = staticmethod(json_lines)


class TestGrowingJson(FileContract):
    file, grow = "a.json", True
    encode = staticmethod(json_lines)


class TestJsonArrays(FileContract):
    file = "a.json"
    encode = staticmethod(json_array)


class TestGzip(FileContract):
    file = "a.csv.gz"

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        return gzip.compress(csv_lines(rows, header=True))


class TestBzip2(FileContract):
    file = "a.jsonl.bz2"

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        return bz2.compress(json_lines(rows))


class TestZstandard(FileContract):
    file = "a.json.zst"

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        return zstandard.compress(json_array(rows))


class TestNoHeader(FileContract):
    file, grow = "a.csv", True
    types: ClassVar[Mapping[str, str]] = {
        f"column_{number}": type_ for number, type_ in enumerate(FileContract.types.values())
    }

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        return csv_lines(rows, header=False)

    @pytest.fixture
    def world(self, tmp_path: Path) -> Folder:
        return HeaderlessFolder(tmp_path, self.file, self.encode, self.header, self.grow)


class HeaderlessFolder(Folder):
    def source(
        self, properties: Mapping[str, str] | None = None, declared: Mapping[str, str] | None = None
    ) -> FileSource:
        return super().source({"format": "csv_no_header", **(properties or {})}, declared)

    def expected(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        return [{f"column_{n}": value for n, value in enumerate(row.values())} for row in super().expected(rows)]


class TestAvro(FileContract):
    file = "a.avro"

    @staticmethod
    def encode(rows: Sequence[Row]) -> bytes:
        out = io.BytesIO()
        fastavro.writer(out, AVRO, arrow_table(rows).to_pylist())
        return out.getvalue()


class TestParquet(FileContract):
    file = "a.parquet"
    encode = staticmethod(parquet)


class TestOrc(FileContract):
    file = "a.orc"
    encode = staticmethod(orc)
