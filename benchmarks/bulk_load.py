"""A bulk load against a hand-written PySpark script that writes the same Delta table with an explicit schema.

    python benchmarks/bulk_load.py [--rows 5000000] [--repeat 3] [--formats csv,jsonl,parquet]

Both sides run in a fresh process each, with a warm session: the time is that of the load, not of the JVM's start. Both
have the same cores and the same memory for the JVM. Ends with 1 if a limit is missed; limits are those of 5 M rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, parquet

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import Figure, compare, end, run

SCHEMA = "id BIGINT, account STRING, amount DECIMAL(18,2), status STRING, category STRING, at TIMESTAMP"
TIMES = {"csv": 1.0, "jsonl": 1.0, "parquet": 1.15}
MEMORY = 1.6
RATES = {"csv": 300_000}
"""Rows per second, at least."""


def table(start: int, rows: int) -> pa.Table:
    """Rows of cases.md, with a time."""
    numbers = np.arange(start, start + rows)
    cents = (137 * numbers + 50000) % 1_000_000
    words = np.array(["active", "pending", "completed", "cancelled"])
    return pa.table(
        {
            "id": numbers,
            "account": pa.array(np.char.add("ACC", (numbers % 1000).astype(str))),
            "amount": pa.array([f"{c // 100}.{c % 100:02}" for c in cents.tolist()]).cast(pa.decimal128(18, 2)),
            "status": pa.array(words[numbers % 4]),
            "category": pa.array(np.char.add("CAT_", (numbers % 10).astype(str))),
            "at": pa.array(1_750_000_000_000_000 + numbers * 1_000_000).cast(pa.timestamp("us")),
        }
    )


def generate(folder: Path, kind: str, rows: int, step: int = 250_000) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        with parquet.ParquetWriter(folder / "rows.parquet", table(0, 1).schema) as writer:
            for start in range(0, rows, step):
                writer.write_table(table(start, min(step, rows - start)))
        return
    with (folder / f"rows.{kind}").open("wb") as file:
        if kind == "csv":
            file.write(b"id,account,amount,status,category,at\n")
        for start in range(0, rows, step):
            batch = table(start, min(step, rows - start))
            if kind == "csv":
                options = csv.WriteOptions(include_header=False, quoting_style="none")
                csv.write_csv(with_written_times(batch), file, options)
            else:
                file.write(json_lines(batch))


def with_written_times(batch: pa.Table) -> pa.Table:
    at = compute.call_function("strftime", [batch["at"]], compute.StrftimeOptions("%Y-%m-%dT%H:%M:%S"))
    return batch.set_column(5, "at", compute.call_function("utf8_slice_codeunits", [at], compute.SliceOptions(0, 19)))


def json_lines(batch: pa.Table) -> bytes:
    batch = with_written_times(batch)
    columns = [column.to_pylist() for column in batch.columns]
    line = '{{"id":{},"account":"{}","amount":{},"status":"{}","category":"{}","at":"{}"}}\n'
    return "".join(line.format(*row) for row in zip(*columns, strict=True)).encode()


def ours(kind: str, data: Path, target: Path) -> float:
    from velo_dagster.engine.load import Loader
    from velo_dagster.engine.session import EmbeddedEngine
    from velo_dagster.engine.source_load import LoadOptions
    from velo_dagster.plan.project import load_project
    from velo_dagster.store.table import Warehouse

    project_folder = Path(tempfile.mkdtemp(dir=data.parent))
    (project_folder / "t.sql").write_text(f"CREATE TABLE t AS SELECT * FROM file://{data}/rows.{kind};")
    (project_folder / "warm.sql").write_text(f"CREATE TABLE warm AS SELECT * FROM file://{data}-small/rows.{kind};")
    project = load_project(project_folder)
    loader = Loader(project, Warehouse(str(target)), EmbeddedEngine())
    seconds = 0.0
    for plan in sorted(project.tables, key=lambda plan: plan.name == "t"):
        started = time.monotonic()
        report = loader.load(plan, LoadOptions())
        seconds = time.monotonic() - started
        if report.error:
            raise report.error
    return seconds


def peer(kind: str, data: Path, target: Path) -> float:
    from pyspark.sql import SparkSession

    from velo_dagster.engine.session import static_settings

    same = static_settings()
    spark = (
        SparkSession.builder.master(same["spark.master"])
        .config("spark.driver.memory", same["spark.driver.memory"])
        .config("spark.jars", same["spark.jars"])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    seconds = 0.0
    for folder, name in ((f"{data}-small", "warm"), (str(data), "t")):
        started = time.monotonic()
        reader = spark.read.schema(SCHEMA).format("json" if kind == "jsonl" else kind)
        frame = reader.option("header", True).load(folder)
        frame.write.format("delta").save(f"{target}/{name}")
        seconds = time.monotonic() - started
    return seconds


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--formats", default="csv,jsonl,parquet")
    options.add_argument("--side", nargs=4)
    given = options.parse_args()
    if given.side:
        side, kind, data, target = given.side
        seconds = {"ours": ours, "peer": peer}[side](kind, Path(data), Path(target))
        print(json.dumps({"seconds": seconds}))
        return
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in given.formats.split(","):
            missed += measure(Path(folder), kind, given.rows, given.repeat)
    end(missed)


def measure(folder: Path, kind: str, rows: int, repeat: int) -> list[str]:
    """Both sides in turn over files of one format; returns which limits were missed."""
    data, target = folder / kind, folder / "target"
    generate(data, kind, rows)
    generate(Path(f"{data}-small"), kind, 1000)
    sides: dict[str, list[Figure]] = {"ours": [], "peer": []}
    for _ in range(repeat):
        for side, figures in sides.items():
            figures.append(run(__file__, "--side", side, kind, str(data), str(target)))
            shutil.rmtree(target)
    shutil.rmtree(data)
    what = f"bulk load of {rows:,} rows of {kind}"
    missed = compare(what, sides["ours"], sides["peer"], time_at_most=TIMES[kind], memory_at_most=MEMORY)
    return missed + slow(what, rows / statistics.median(one.seconds for one in sides["ours"]), RATES.get(kind))


def slow(what: str, rate: float, at_least: int | None) -> list[str]:
    """Print the rate; the limit, told, if there is one and it was missed."""
    print(f"  {rate:,.0f} rows/s" + (f" (at least {at_least:,})" if at_least else ""), flush=True)
    return [f"{what}: {rate:,.0f} rows/s, at least {at_least:,}"] if at_least and rate < at_least else []


if __name__ == "__main__":
    main()
