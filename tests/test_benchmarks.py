"""That a missed limit is noticed. If one of these fails, `make bench` ends well although a claim about speed is wrong.

Nothing is measured here.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by its name.
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(autouse=True)
def no_module_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("side_by_side", "bulk_load"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize(
    ("seconds", "megabytes", "missed"),
    [
        (10.0, 1600.0, []),
        (10.01, 1600.0, ["rows, time: 1.001x, at most 1.0x"]),
        (9.0, 1601.0, ["rows, memory: 1.601x, at most 1.6x"]),
        (20.0, 3200.0, ["rows, time: 2.000x, at most 1.0x", "rows, memory: 3.200x, at most 1.6x"]),
    ],
)
def test_both_ratios_have_their_limits(
    seconds: float, megabytes: float, missed: list[str], capsys: pytest.CaptureFixture[str]
):
    sides = module("side_by_side")
    ours, peer = [sides.Figure(seconds, megabytes)], [sides.Figure(10.0, 1000.0)]
    assert sides.compare("rows", ours, peer, time_at_most=1.0, memory_at_most=1.6) == missed
    assert "the time (at most 1.0x)" in (shown := capsys.readouterr().out) and "the memory (at most 1.6x)" in shown


def test_the_rate_of_csv_has_its_limit(capsys: pytest.CaptureFixture[str]):
    module("side_by_side")
    bulk = module("bulk_load")
    assert bulk.slow("csv", 300_000, bulk.RATES["csv"]) == []
    assert bulk.slow("csv", 299_999, bulk.RATES["csv"]) == ["csv: 299,999 rows/s, at least 300,000"]
    assert bulk.slow("parquet", 10, bulk.RATES.get("parquet")) == []
    assert "300,000 rows/s (at least 300,000)" in capsys.readouterr().out


def test_a_missed_limit_ends_the_script_with_one(capsys: pytest.CaptureFixture[str]):
    sides = module("side_by_side")
    with pytest.raises(SystemExit) as end:
        sides.end(["a", "b"])
    assert end.value.code == "missed: a\nmissed: b"  # Python prints a text to stderr and ends with 1.
    with pytest.raises(SystemExit) as end:
        sides.end([])
    assert end.value.code is None


def test_make_bench_runs_every_script_and_remembers_what_failed():
    recipe = subprocess.run(["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loop = recipe.splitlines()[-1]
    scripts = {path.name for path in BENCHMARKS.glob("*.py")} - {"side_by_side.py"}
    assert {name for name in scripts if f"benchmarks/{name}" not in loop} == set()
    assert "side_by_side" not in loop and loop.endswith("|| failed=1; done; exit $failed")


def test_validate_is_measured_on_statements_that_are_right():
    """A small run: what it measures would be worth nothing if statements were refused early."""
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "validate.py", "--statements", "21", "--repeat", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "validate of 21 statements" in done.stdout, done.stderr
