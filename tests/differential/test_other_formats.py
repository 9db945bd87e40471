"""Files of the other formats that are added, rewritten and removed: after every load DuckDB finds the same rows.

The files are read back for DuckDB by other readers than ours. If this fails, a user of that format has rows in a table
that its files no longer have, or lacks some.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tests.harness import Interpreting, Play, Rows, multiset
from velo_dagster.engine.session import EmbeddedEngine

Row = tuple[Any, ...]
Writer = Callable[[str, list[Row]], None]
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "amount": pa.decimal128(18, 2),
        "seen": pa.timestamp("us"),
        "ok": pa.bool_(),
    }
)
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": ["null", "long"]},
        {"name": "name", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}]},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "ok", "type": ["null", "boolean"]},
    ],
}
TYPES = {"id": "BIGINT", "name": "VARCHAR", "amount": "DECIMAL(18,2)", "seen": "TIMESTAMP", "ok": "BOOLEAN"}


def arrow(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    parquet.write_table(arrow(rows), path, row_group_size=2)


def write_orc(path: Path, rows: Sequence[Row]) -> None:
    orc.write_table(arrow(rows), path)


def write_avro(path: Path, rows: Sequence[Row]) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, AVRO, arrow(rows).to_pylist())


def write_json(path: Path, rows: Sequence[Row]) -> None:
    """An array; decimals as numbers with all their digits."""
    lines = []
    for row in arrow(rows).to_pylist():
        fields = (f'"{key}": {value if isinstance(value, Decimal) else spelled(value)}' for key, value in row.items())
        lines.append("{" + ", ".join(fields) + "}")
    path.write_text("[" + ",\n".join(lines) + "]")


def spelled(value: Any) -> str:
    return json.dumps(value.isoformat() if isinstance(value, datetime) else value)


def write_csv_gz(path: Path, rows: Sequence[Row]) -> None:
    out = io.StringIO()
    out.write(",".join(SCHEMA.names) + "\n")
    for number, name, amount, seen, ok in rows:
        fields = (number, name, amount, seen and seen.isoformat(), None if ok is None else str(ok).lower())
        out.write(",".join("" if field is None else str(field) for field in fields) + "\n")
    path.write_bytes(gzip.compress(out.getvalue().encode()))


def write_text(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(f"{number} {name}\n" for number, name, *_ in rows))


def by_duckdb(function: str, options: str = "") -> Callable[[Path], pa.Table]:
    def read(path: Path) -> pa.Table:
        columns = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in TYPES.items())
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            return connection.sql(f"SELECT {columns} FROM {function}('{path}'{options})").to_arrow_table()

    return read


def read_avro(path: Path) -> pa.Table:
    with path.open("rb") as file:
        return pa.Table.from_pylist(list(fastavro.reader(file)), SCHEMA)  # pyright: ignore[reportArgumentType]


def read_text(path: Path) -> pa.Table:
    return pa.table({"value": path.read_text().splitlines()})


@dataclass(frozen=True)
class Format:
    """How files of a format are written, and how they are read by somebody else than us."""

    write: Callable[[Path, Sequence[Row]], None]
    read: Callable[[Path], pa.Table]
    key: str = "id"


TEXTS = "{" + ", ".join(f"{name}: 'VARCHAR'" for name in TYPES) + "}"
FORMATS = {
    "parquet": Format(write_parquet, by_duckdb("read_parquet")),
    "orc": Format(write_orc, orc.read_table),
    "avro": Format(write_avro, read_avro),
    "json": Format(write_json, by_duckdb("read_json", f", format = 'array', columns = {TEXTS}")),
    "csv.gz": Format(write_csv_gz, by_duckdb("read_csv", ", all_varchar = true, header = true")),
    "txt": Format(write_text, read_text, key="value"),
}


def rows(first: int, count: int, version: int) -> list[Row]:
    """Rows with NULLs, non-ASCII texts and amounts with cents; of two versions of a row only the id is the same."""
    made: list[Row] = []
    for number in range(first, first + count):
        seen = datetime(2025, 6, 1 + version, number % 24, 5, 6, 123456)
        name = None if number % 5 == 0 else f"Zoë {number % 3} {version}"
        made.append((number, name, Decimal(137 * number + version) / 100, seen, (True, False, None)[number % 3]))
    return made


def started(write: Writer) -> None:
    write("c", rows(1, 8, 0))
    write("e", rows(6, 5, 1))


def added(write: Writer) -> None:
    """One file before all others and one after them; ids that were there, a row twice, and a NULL key."""
    write("a", rows(5, 4, 2))
    write("f", [*rows(10, 3, 3), *rows(10, 1, 3), (None, "nobody", None, None, None)])


def rewritten(write: Writer) -> None:
    """Other rows under the same name; the same ids with other values, and fewer of them."""
    write("e", rows(6, 3, 4))


STEPS = (started, added, rewritten)


def expected(folder: Path, extension: str, format_: Format) -> tuple[Rows, Rows]:
    """All rows, and the last row of each key in the order of file and line."""
    parts = []
    for place, path in enumerate(sorted(folder.glob(f"*.{extension}"))):
        table = format_.read(path)
        lines = range(table.num_rows)
        parts.append(table.append_column("file", [[place for _ in lines]]).append_column("line", [list(lines)]))
    given = pa.concat_tables(parts, promote_options="permissive")
    with duckdb.connect() as connection:
        connection.register("given", given)
        plain = multiset(connection.sql("SELECT * EXCLUDE (file, line) FROM given").to_arrow_table())
        last = f"QUALIFY row_number() OVER (PARTITION BY {format_.key} ORDER BY file DESC, line DESC) = 1"
        keyed = multiset(connection.sql(f"SELECT * EXCLUDE (file, line) FROM given {last}").to_arrow_table())
    return plain, keyed


@pytest.mark.parametrize("extension", FORMATS)
def test_every_step(extension: str, tmp_path: Path, engine: EmbeddedEngine):
    format_ = FORMATS[extension]
    play = Play(tmp_path, Interpreting(engine))
    columns = ", ".join(["value"] if format_.key == "value" else list(TYPES))
    source = f"FROM file://data/*.{extension} WITH ('file.deleted' = 'remove');\n"
    keyed = columns.replace(format_.key, f"{format_.key} PRIMARY KEY", 1)
    play.write("t.sql", f"CREATE TABLE plain AS SELECT {columns} {source}CREATE TABLE keyed AS SELECT {keyed} {source}")
    data = tmp_path / "data"
    data.mkdir()

    def check(step: str) -> None:
        play.loaded()
        plain, last = expected(data, extension, format_)
        assert play.rows("plain") == plain, f"plain after {step}"
        assert play.rows("keyed") == last, f"keyed after {step}"

    for step in STEPS:
        step(lambda name, given: format_.write(data / f"{name}.{extension}", given))
        check(step.__name__)
    (data / f"c.{extension}").unlink()
    (data / f"f.{extension}").unlink()
    check("two files are gone")
