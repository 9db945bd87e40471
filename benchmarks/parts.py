"""Tables that are computed in parts, against the same tables computed whole, after small changes of a large input.

    python benchmarks/parts.py [--rows 20000000] [--groups 100000] [--touched 100] [--repeat 3]

`kinds` counts different values per group, so touched groups are computed anew. `sums` adds new rows to its groups.
`named` joins every row with a reference table of as many rows as there are groups, one of which changes; 0.1 % of all
rows match it. Each is loaded after the change, and then by a full refresh, in turn, in one warm session; the time is
that of the load of the table itself. Ends with 1 if a limit is missed.
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
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import above, end

from velo_dagster.engine.load import Loader
from velo_dagster.engine.report import LoadReport
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.plan.project import load_project
from velo_dagster.store.table import Warehouse

STATEMENTS = """
CREATE TABLE readings AS SELECT * FROM file://readings/*.parquet;
CREATE TABLE devices AS SELECT device PRIMARY KEY, name FROM file://devices.csv;
CREATE TABLE kinds AS SELECT k, COUNT(*) AS n, COUNT(DISTINCT v) AS kinds FROM readings GROUP BY k;
CREATE TABLE sums AS SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS high, AVG(v) AS mean FROM readings GROUP BY k;
CREATE TABLE named AS SELECT r.id, r.k, r.v, d.name FROM readings r JOIN devices d ON r.device = d.device;
"""
AT_MOST = {"kinds": 0.2, "sums": 0.25, "named": 0.25}
METHODS = {"kinds": "groups", "sums": "merge", "named": "groups"}
SHARE = 1000
"""One in so many rows belongs to the device that changes."""
PER_FILE = 2_000_000


class Shop:
    """The project in a folder, with its inputs."""

    def __init__(self, folder: Path, rows: int, groups: int, engine: EmbeddedEngine | None = None) -> None:
        self.folder, self.rows, self.groups = folder, rows, groups
        (folder / "readings").mkdir(parents=True)
        (folder / "t.sql").write_text(STATEMENTS)
        for first in range(0, rows, PER_FILE):
            self._write(first, np.random.default_rng(first).integers(0, groups, min(PER_FILE, rows - first)))
        names = "".join(f"{number},name {number}\n" for number in range(groups))
        (folder / "devices.csv").write_text("device,name\n" + names)
        project = load_project(folder)
        self.engine = engine or EmbeddedEngine()
        self.loader = Loader(project, Warehouse(str(folder / "warehouse")), self.engine)
        self.plans = {plan.name: plan for plan in project.tables}

    def _write(self, first: int, keys: np.ndarray) -> None:
        ids = np.arange(first, first + len(keys))
        device = np.where(ids % SHARE == 0, 0, 1 + ids % (self.groups - 1))
        columns = {"id": ids, "k": keys, "device": device, "v": (ids * 7919) % 1000}
        pq.write_table(pa.table(columns), self.folder / "readings" / f"{first:012}.parquet")

    def load(self, table: str, *, full: bool = False) -> tuple[float, LoadReport]:
        started = time.monotonic()
        report = self.loader.load(self.plans[table], LoadOptions(full_refresh=full))
        if report.error:
            raise report.error
        return time.monotonic() - started, report

    def add(self, touched: int) -> None:
        """A row for each of some groups."""
        self._write(self.rows, np.arange(touched) * (self.groups // touched))
        self.rows += touched
        self.load("readings")

    def rename(self, round_: int) -> None:
        with (self.folder / "devices.csv").open("a") as file:
            file.write(f"0,another name {round_}\n")
        self.load("devices")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--groups", type=int, default=100_000)
    options.add_argument("--touched", type=int, default=100)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--tables", default=",".join(AT_MOST))
    given = options.parse_args()
    missed = []
    with tempfile.TemporaryDirectory() as name:
        shop = Shop(Path(name), given.rows, given.groups)
        tables = given.tables.split(",")
        for table in ("readings", "devices", *tables):
            shop.load(table)
        for table in tables:
            parts, whole = [], []
            for round_ in range(given.repeat + 1):
                shop.rename(round_) if table == "named" else shop.add(given.touched)
                seconds, report = shop.load(table)
                assert report.method == METHODS[table], (table, report.method, report.reason)
                refreshed, _ = shop.load(table, full=True)
                print(
                    f"{table}: {seconds:.2f} s by {report.method}, {refreshed:.2f} s whole; {report.steps}", flush=True
                )
                if round_:
                    parts.append(seconds)
                    whole.append(refreshed)
            ratio = statistics.median(a / b for a, b in zip(parts, whole, strict=True))
            print(
                f"{table}: {ratio:.2f}x the time by {METHODS[table]} as whole (at most {AT_MOST[table]}x); "
                f"{statistics.median(parts):.2f} s against {statistics.median(whole):.2f} s, medians of {given.repeat}"
            )
            missed += above(table, ratio, AT_MOST[table])
        shop.engine.stop()
    end(missed)


if __name__ == "__main__":
    main()
