"""A million weather readings, `station;temperature` of 408 stations: the least, mean and greatest of each.

    python benchmarks/weather.py [--rows 1000000] [--repeat 5]

The first load of the table in a warm session: the file is read, its rows land, and the groups are computed and
committed. The start of the JVM is not in it; one load of the same before, into another table, is not either. Ends with
1 if the limit is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import end

from velo_dagster.engine.load import Loader
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.engine.source_load import LoadOptions
from velo_dagster.plan.project import load_project
from velo_dagster.store.table import Warehouse

STATIONS = 408
AT_MOST = 2.66
STATEMENT = """
CREATE TABLE weather_{number} AS
    SELECT column_0 AS station, MIN(column_1) AS low, AVG(column_1) AS mean, MAX(column_1) AS high
    FROM file://readings.txt GROUP BY column_0
WITH ("format" = "csv_no_header", "delimiter" = ";");
"""


def generate(file: Path, rows: int) -> None:
    chance = np.random.default_rng(1)
    stations = chance.integers(0, STATIONS, rows)
    tenths = chance.integers(-400, 450, rows)
    lines = (f"Station {station};{tenth / 10:.1f}\n" for station, tenth in zip(stations, tenths, strict=True))
    with file.open("w") as out:
        out.writelines(lines)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--repeat", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "readings.txt", given.rows)
        (folder / "t.sql").write_text("".join(STATEMENT.format(number=n) for n in range(given.repeat + 1)))
        project = load_project(folder)
        engine = EmbeddedEngine()
        loader = Loader(project, Warehouse(str(folder / "warehouse")), engine)
        seconds = []
        for plan in project.tables:
            started = time.monotonic()
            report = loader.load(plan, LoadOptions())
            if report.error:
                raise report.error
            seconds.append(time.monotonic() - started)
            assert report.rows_changed == min(STATIONS, given.rows), report
        engine.stop()
    middle = statistics.median(seconds[1:])
    print(
        f"{given.rows:,} readings of {STATIONS} stations: {middle:.2f} s (at most {AT_MOST} s), "
        f"{given.rows / middle:,.0f} rows/s, median of {given.repeat}; from {min(seconds[1:]):.2f} to {max(seconds[1:]):.2f} s, the first, cold, "
        f"{seconds[0]:.2f} s"
    )
    end([f"weather: {middle:.3f} s, at most {AT_MOST} s"] if middle > AT_MOST else [])


if __name__ == "__main__":
    main()
