"""An increment of 1,000 appended lines to a large table against the same increment to a small one.

    python benchmarks/increment.py [--large 5000000] [--small 50000] [--repeat 5]

Both tables are loaded first; then lines are appended and loaded in turn, in one warm session. Ends with 1 if the limit
is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from bulk_load import generate, json_lines, table
from side_by_side import above, end

from velo_dagster.engine.load import Loader
from velo_dagster.engine.progress import Progress
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.plan.project import load_project
from velo_dagster.sources.contract import Source
from velo_dagster.sources.meter import noted
from velo_dagster.store.table import Warehouse

LINES = 1000
AT_MOST = 1.3


@dataclass
class Metered(Progress):
    """How a load stands, and how many bytes its tasks have read."""

    bytes: int = 0

    @contextmanager
    def reads(self, source: Source, size: int) -> Iterator[None]:
        with super().reads(source, size):
            yield
            assert self.reading is not None
            self.bytes = noted(self.reading.folder)[1]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--large", type=int, default=5_000_000)
    options.add_argument("--small", type=int, default=50_000)
    options.add_argument("--repeat", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in ("large", "small"):
            generate(folder / side, "jsonl", getattr(given, side))
            (folder / f"{side}.sql").write_text(f"CREATE TABLE {side} AS SELECT * FROM file://{side}/rows.jsonl;")
        project = load_project(folder)
        engine = EmbeddedEngine()
        metered = Metered()
        loader = Loader(project, Warehouse(str(folder / "warehouse")), engine, progress=metered)
        plans = {plan.name: plan for plan in project.tables}
        seconds: dict[str, list[float]] = {"large": [], "small": []}
        for round_ in range(given.repeat + 2):
            for side, plan in plans.items():
                appended = json_lines(table(10**9 + round_ * LINES, LINES)) if round_ else b""
                with (folder / side / "rows.jsonl").open("ab") as file:
                    file.write(appended)
                started = time.monotonic()
                report = loader.load(plan, LoadOptions())
                if report.error:
                    raise report.error
                if round_ > 1:
                    assert report.rows_read == LINES, report
                    assert metered.bytes == len(appended), (metered.bytes, len(appended))
                    seconds[side].append(time.monotonic() - started)
        engine.stop()
    large, small = (statistics.median(seconds[side]) for side in ("large", "small"))
    print(
        f"increment of {LINES} lines: {large / small:.2f}x the time on {given.large:,} rows as on {given.small:,} "
        f"(at most {AT_MOST}x); {large:.2f} s against {small:.2f} s, medians of {given.repeat}; "
        f"{LINES} rows, and no byte but theirs, read by each"
    )
    end(above(f"increment of {LINES} lines", large / small, AT_MOST))


if __name__ == "__main__":
    main()
