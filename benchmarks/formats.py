"""How fast files become Arrow on one core, next to Arrow's own readers over the same bytes.

    python benchmarks/formats.py [rows]

Ours also says where each record starts, finds bad records and holds every value against its type.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from velo_dagster.sources.formats import FormatOptions, open_format

STATUS = ("active", "pending", "completed", "cancelled")
TYPES = {
    "id": pa.int64(),
    "account": pa.string(),
    "amount": pa.decimal128(18, 2),
    "status": pa.string(),
    "category": pa.string(),
    "ts": pa.timestamp("us"),
}


def row(number: int) -> tuple[str, ...]:
    cents = (137 * number + 50000) % 1_000_000
    day = f"2025-{number % 12 + 1:02}-{number % 28 + 1:02}"
    clock = f"{number % 24:02}:{number % 60:02}:{number // 7 % 60:02}"
    amount = f"{cents // 100}.{cents % 100:02}"
    return str(number), f"ACC{number % 1000}", amount, STATUS[number % 4], f"CAT_{number % 10}", f"{day}T{clock}"


def csv(rows: int, quote: str = "") -> bytes:
    lines = [",".join(TYPES)]
    lines += [",".join(quote + field + quote for field in row(number)) for number in range(rows)]
    return "\n".join(lines).encode() + b"\n"


def jsonl(rows: int) -> bytes:
    form = '{"id": %s, "account": "%s", "amount": %s, "status": "%s", "category": "%s", "ts": "%s"}\n'
    return "".join(form % row(number) for number in range(rows)).encode()


def read_csv(data: bytes) -> int:
    options = pyarrow.csv.ConvertOptions(column_types=TYPES, strings_can_be_null=True)
    serial = pyarrow.csv.ReadOptions(use_threads=False)
    return pyarrow.csv.read_csv(io.BytesIO(data), read_options=serial, convert_options=options).num_rows


def read_json(data: bytes) -> int:
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(TYPES.items())))
    serial = pyarrow.json.ReadOptions(use_threads=False)
    return pyarrow.json.read_json(io.BytesIO(data), read_options=serial, parse_options=options).num_rows


def seconds(work: Callable[[], object]) -> float:
    """The best of three, in seconds of this process."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def compare(label: str, name: str, data: bytes, rows: int, plain: Callable[[bytes], int]) -> None:
    format_ = open_format(name, FormatOptions())
    found = format_.sample(lambda: io.BytesIO(data), 0, len(data), {})
    schema = [(column, evidence.type()) for column, evidence in found.columns.items()]

    def ours() -> int:
        batches = format_.batches(lambda: io.BytesIO(data), 0, len(data), None, schema, frozenset(), "fail")
        return sum(batch.num_rows for batch in batches)

    assert ours() == plain(data) == rows
    took, peer = seconds(ours), seconds(lambda: plain(data))
    survey = seconds(lambda: format_.survey(lambda: io.BytesIO(data), 0, len(data), {}))
    speed = f"{len(data) / took / 1e6:6.0f} MB/s {rows / took / 1e6:5.2f} M rows/s"
    sys.stdout.write(f"{label:12} {speed}   {took / peer:5.2f}x Arrow alone   survey {survey / took:5.2f}x reading\n")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    compare("csv", "csv", csv(count), count, read_csv)
    compare("csv quoted", "csv", csv(count, '"'), count, read_csv)
    compare("json lines", "jsonl", jsonl(count), count, read_json)
