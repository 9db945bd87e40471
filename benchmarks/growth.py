"""What 100 new rows cost that are added to sums, where the input has 2 M rows, and where it has 50 M.

    python benchmarks/growth.py [--small 2000000] [--large 50000000] [--groups 100000] [--touched 100] [--repeat 5]

Both are loaded first; then rows come and are loaded in turn, in one warm session; the time is that of the load of the
sums. Ends with 1 if the limit is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from parts import Shop
from side_by_side import above, end

from velo_dagster.engine.session import EmbeddedEngine

AT_MOST = 1.3


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--small", type=int, default=2_000_000)
    options.add_argument("--large", type=int, default=50_000_000)
    options.add_argument("--groups", type=int, default=100_000)
    options.add_argument("--touched", type=int, default=100)
    options.add_argument("--repeat", type=int, default=5)
    given = options.parse_args()
    engine = EmbeddedEngine()
    with tempfile.TemporaryDirectory() as name:
        shops = {rows: Shop(Path(name) / str(rows), rows, given.groups, engine) for rows in (given.small, given.large)}
        seconds: dict[int, list[float]] = {rows: [] for rows in shops}
        for shop in shops.values():
            shop.load("readings")
            shop.load("sums")
        for round_ in range(given.repeat + 2):
            for rows, shop in shops.items():
                shop.add(given.touched)
                took, report = shop.load("sums")
                assert (report.method, report.rows_changed) == ("merge", given.touched), report
                if round_ > 1:
                    seconds[rows].append(took)
        engine.stop()
    small, large = (statistics.median(one) for one in seconds.values())
    print(
        f"{given.touched} rows added to sums: {large / small:.2f}x the time at {given.large:,} rows as at "
        f"{given.small:,} (at most {AT_MOST}x); {large:.2f} s against {small:.2f} s, medians of {given.repeat}"
    )
    end(above("growth", large / small, AT_MOST))


if __name__ == "__main__":
    main()
