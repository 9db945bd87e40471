"""A stream joined with reference tables of 5,000, 100,000 and 1,000,000 rows: rows of the stream per second.

    python benchmarks/joins.py [--rows 5000000] [--repeat 3]

The first load of each join table, all of its rows, in a warm session; stream and reference tables are loaded before.
Ends with 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import end

from velo_dagster.engine.load import Loader
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.plan.project import TablePlan, load_project
from velo_dagster.store.table import Warehouse

SIZES = (5_000, 100_000, 1_000_000)
AT_LEAST = 150_000


def generate(folder: Path, rows: int) -> None:
    chance = np.random.default_rng(1)
    users = {f"u{size}": chance.integers(0, size, rows) for size in SIZES}
    pq.write_table(
        pa.table({"id": np.arange(rows), **users, "v": chance.integers(0, 1000, rows)}), folder / "s.parquet"
    )
    statements = ["CREATE TABLE stream AS SELECT * FROM file://s.parquet;"]
    for size in SIZES:
        names = pa.array([f"name {number}" for number in range(size)])
        pyarrow.csv.write_csv(pa.table({"id": np.arange(size), "name": names}), folder / f"r{size}.csv")
        statements.append(f"CREATE TABLE r{size} AS SELECT id PRIMARY KEY, name FROM file://r{size}.csv;")
        statements.append(
            f"CREATE TABLE j{size} AS SELECT s.id, s.v, r.name FROM stream s JOIN r{size} r ON s.u{size} = r.id;"
        )
    (folder / "t.sql").write_text("\n".join(statements))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    missed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, given.rows)
        project = load_project(folder)
        engine = EmbeddedEngine()
        loader = Loader(project, Warehouse(str(folder / "warehouse")), engine)
        plans = {plan.name: plan for plan in project.tables}
        for table in ("stream", *(f"r{size}" for size in SIZES)):
            _load(loader, plans[table])
        rates: dict[int, list[float]] = {size: [] for size in SIZES}
        for round_ in range(given.repeat + 1):
            for size in SIZES:
                seconds = _load(loader, plans[f"j{size}"])
                if round_:
                    rates[size].append(given.rows / seconds)
        engine.stop()
        for size, found in rates.items():
            rate = statistics.median(found)
            print(
                f"a stream of {given.rows:,} rows joined with {size:,}: {rate:,.0f} rows/s (at least {AT_LEAST:,}), "
                f"median of {given.repeat}, from {min(found):,.0f} to {max(found):,.0f}"
            )
            missed += [f"join with {size}: {rate:,.0f} rows/s, at least {AT_LEAST:,}"] if rate < AT_LEAST else []
    end(missed)


def _load(loader: Loader, plan: TablePlan) -> float:
    started = time.monotonic()
    report = loader.load(plan, LoadOptions(full_refresh=True))
    if report.error:
        raise report.error
    return time.monotonic() - started


if __name__ == "__main__":
    main()
