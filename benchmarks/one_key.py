"""What is read and written when one key of a large table changes, and what is loaded when nothing changes at all.

    python benchmarks/one_key.py [--rows 20000000] [--keys 4000000]

`totals` has a row per key, and is laid out by it. A row for one key comes: shown are the bytes that all processes read
and wrote during that load, beside those of the table and of a full refresh. Then a row comes that no WHERE lets pass,
at the head of a chain of five tables: shown is which of them are loaded. Ends with 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import above, end, family

from velo_dagster.engine.load import Loader
from velo_dagster.engine.report import LoadReport, Outcome
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.plan.project import load_project
from velo_dagster.store.table import Warehouse

STATEMENTS = """
CREATE TABLE readings AS SELECT * FROM file://readings/*.parquet;
CREATE TABLE totals AS SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS high FROM readings GROUP BY k;
CREATE TABLE one AS SELECT k, v FROM readings WHERE v > 990;
CREATE TABLE two AS SELECT k, COUNT(*) AS n FROM one GROUP BY k;
CREATE TABLE three AS SELECT n, COUNT(*) AS keys FROM two GROUP BY n;
CREATE TABLE four AS SELECT n FROM three WHERE keys > 1;
CREATE TABLE five AS SELECT MAX(n) AS most FROM four;
"""
CHAIN = ("one", "two", "three", "four", "five")
AT_MOST = 0.25
"""So much of what a full refresh reads, and of what it writes."""


class Project:
    def __init__(self, folder: Path, rows: int, keys: int) -> None:
        self.folder, self.keys = folder, keys
        (folder / "readings").mkdir()
        (folder / "t.sql").write_text(STATEMENTS)
        self.write(np.arange(rows) % keys, (np.arange(rows) * 7919) % 1000)
        project = load_project(folder)
        self.engine = EmbeddedEngine()
        self.loader = Loader(project, Warehouse(str(folder / "warehouse")), self.engine)
        self.plans = {plan.name: plan for plan in project.tables}

    def write(self, keys: np.ndarray, values: np.ndarray) -> None:
        number = len(list((self.folder / "readings").iterdir()))
        pq.write_table(pa.table({"k": keys, "v": values}), self.folder / "readings" / f"{number:06}.parquet")

    def load(self, table: str, *, full: bool = False) -> LoadReport:
        report = self.loader.load(self.plans[table], LoadOptions(full_refresh=full))
        if report.error:
            raise report.error
        return report

    def measured(self, table: str, *, full: bool = False) -> tuple[LoadReport, int, int]:
        """The load, and how many bytes were read and written."""
        before = _moved()
        report = self.load(table, full=full)
        after = _moved()
        return report, after[0] - before[0], after[1] - before[1]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--keys", type=int, default=4_000_000)
    given = options.parse_args()
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name), given.rows, given.keys)
        for table in ("readings", "totals", *CHAIN):
            project.load(table)
        whole = project.measured("totals", full=True)
        for _ in range(2):
            project.write(np.array([given.keys // 3]), np.array([7]))
            project.load("readings")
            part = project.measured("totals")
        assert (part[0].method, part[0].rows_changed) == ("merge", 1), part[0]
        for what, one, all_ in (("read", part[1], whole[1]), ("written", part[2], whole[2])):
            print(
                f"one key of {given.keys:,}: {one / 2**20:.1f} MB {what} by {part[0].method}, "
                f"{all_ / 2**20:.1f} MB by a full refresh; {one / all_:.3f}x (at most {AT_MOST}x)"
            )
            missed += above(f"bytes {what}", one / all_, AT_MOST)
        for table in CHAIN:
            project.load(table)
        project.write(np.array([1]), np.array([5]))
        project.load("readings")
        loads = {table: project.load(table) for table in CHAIN}
        print("; ".join(f"{table}: {report.outcome.name.lower()}" for table, report in loads.items()))
        loaded = [table for table in CHAIN[1:] if loads[table].outcome is not Outcome.UNCHANGED]
        missed += [f"loaded although nothing changed: {', '.join(loaded)}"] if loaded else []
        project.engine.stop()
    end(missed)


def _moved() -> tuple[int, int]:
    """Bytes that this process, and those that it started, have read and written so far."""
    found = [0, 0]
    for pid in family(os.getpid()):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            for place, word in enumerate(("rchar:", "wchar:")):
                if line.startswith(word):
                    found[place] += int(line.split()[1])
    return found[0], found[1]


if __name__ == "__main__":
    main()
