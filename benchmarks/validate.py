"""How much CPU `velo-dagster validate` takes on a project of many statements, next to one of a single statement.

    python benchmarks/validate.py [--statements 500] [--repeat 3]

The single one shows what the start of the process costs. Ends with 1 if the limit is missed, which is that of 500.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import end

AT_MOST = 5.0
"""Seconds of CPU for 500 statements."""
PER_FILE = 10

# Every kind of statement that is checked in its own way; {n} is the statement's number, {t} a table before it.
SHAPES = (
    "CREATE TABLE t{n} AS SELECT id PRIMARY KEY, user_id, amount, at FROM file://data/orders-{n}-*.csv"
    " WHERE amount > 0;",
    "CREATE TABLE t{n} AS SELECT t.id, t.user_id, t.amount, t.at FROM t{t} t JOIN t0 u ON t.user_id = u.id;",
    "CREATE TABLE t{n} AS SELECT user_id AS id, user_id, SUM(amount) AS amount, MAX(at) AS at FROM t{t}"
    " GROUP BY user_id;",
    "CREATE TABLE t{n} AS SELECT id, user_id, amount, at FROM t{t} o WHERE amount >= ALL"
    " (SELECT i.amount FROM t{t} i WHERE i.user_id = o.user_id);",
    "CREATE TABLE t{n} AS WITH ranked AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY at DESC, id) AS r"
    " FROM t{t}) SELECT id, user_id, amount, at FROM ranked WHERE r = 1;",
    "CREATE TABLE t{n} AS SELECT MAX(id) AS id, user_id, SUM(amount) AS amount, window_start AS at FROM t{t}"
    " WINDOW TUMBLING(at, 1h) GROUP BY user_id;",
    "CREATE TABLE t{n} AS SELECT id, user_id, CASE WHEN amount > 100 THEN amount * 0.95 ELSE amount END AS amount, at"
    " FROM t{t} UNION ALL SELECT id, user_id, amount, at FROM t0;",
)


def write_project(folder: Path, statements: int) -> None:
    lines = [SHAPES[n % len(SHAPES)].format(n=n, t=max(n - 1, 0)) for n in range(statements)]
    for start in range(0, statements, PER_FILE):
        (folder / f"part_{start:05}.sql").write_text("\n".join(lines[start : start + PER_FILE]) + "\n")


def cpu_seconds(folder: Path) -> float:
    """User and system time of one `validate`, which must find nothing wrong."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "velo_dagster.cli", "validate", folder], capture_output=True, text=True, check=False
    )
    after = os.times()
    if done.returncode:
        sys.exit(f"validate ended with {done.returncode}:\n{done.stderr}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def median_of(statements: int, repeat: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder), statements)
        return statistics.median(cpu_seconds(Path(folder)) for _ in range(repeat))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--statements", type=int, default=500)
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    many, one = median_of(given.statements, given.repeat), median_of(1, given.repeat)
    print(
        f"validate of {given.statements} statements: {many:.2f} s of CPU (at most {AT_MOST:.0f} s), "
        f"{many / one:.1f}x a project of one ({one:.2f} s), medians of {given.repeat}"
    )
    end([f"validate: {many:.2f} s of CPU, at most {AT_MOST:.0f} s"] if many > AT_MOST else [])


if __name__ == "__main__":
    main()
