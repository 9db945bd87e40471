"""An exact SUM of doubles against Spark's own sum(double), over the same rows in the same session.

    python benchmarks/float_sums.py [--rows 5000000] [--repeat 3]

The same for AVG and STDDEV, and for numbers so large that they need the wide form. Ends with 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import above, end

from velo_dagster.engine.floats import exact_calls
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.sql.floats import Edits
from velo_dagster.sql.parse import parse_select
from velo_dagster.sql.spark import spark_select

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = 1000
CASES = {
    "SUM": ("SELECT k, SUM(x) AS v FROM t GROUP BY k", False, 3.0),
    "SUM, wide": ("SELECT k, SUM(x) AS v FROM t GROUP BY k", True, 15.0),
    "SUM, one group": ("SELECT SUM(x) AS v FROM t", False, 3.0),
    "AVG": ("SELECT k, AVG(x) AS v FROM t GROUP BY k", False, 3.0),
    "STDDEV": ("SELECT k, STDDEV(x) AS v FROM t GROUP BY k", False, 20.0),
}
"""The statement, whether in the wide form, and how many times Spark's own time it may take."""


def exactly(spark: SparkSession, sql: str, wide: bool) -> str:
    """The statement as tables run it."""
    query = parse_select(sql)

    def rendered(floats: Edits) -> str:
        return spark_select(query, {"t": "t"}, floats=floats)

    edits = exact_calls(spark, query, rendered, wide=wide)
    assert edits is not None
    return rendered(edits)


def seconds(run: Callable[[], object]) -> float:
    started = time.monotonic()
    run()
    return time.monotonic() - started


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=5_000_000)
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    engine = EmbeddedEngine()
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as folder, engine.session() as spark:
        rows = f"SELECT id % {GROUPS} AS k, hash(id) / 7919 AS x FROM range(0, {given.rows}, 1, 4)"
        spark.sql(rows).write.parquet(f"{folder}/t")
        spark.read.parquet(f"{folder}/t").createOrReplaceTempView("t")
        for name, (sql, wide, at_most) in CASES.items():
            texts = {"ours": exactly(spark, sql, wide), "peer": sql}
            took: dict[str, list[float]] = {"ours": [], "peer": []}
            for round_ in range(given.repeat + 1):
                for side, text in texts.items():
                    once = seconds(lambda text=text: spark.sql(text).toArrow())
                    if round_:
                        took[side].append(once)
            ours, peer = (statistics.median(took[side]) for side in ("ours", "peer"))
            print(
                f"exact {name} of {given.rows:,} doubles: {ours / peer:.2f}x Spark's own (at most {at_most}x); "
                f"{ours:.2f} s against {peer:.2f} s, medians of {given.repeat}"
            )
            missed += above(f"exact {name}", ours / peer, at_most)
    engine.stop()
    end(missed)


if __name__ == "__main__":
    main()
