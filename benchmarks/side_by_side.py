"""What the benchmarks share: sides run in processes of their own, in turn, and figures are ratios of medians."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One run of one side: seconds as it measured them itself, and the most memory its processes had at once."""

    seconds: float
    megabytes: float


def run(script: str, *arguments: str) -> Figure:
    """Run one side: the script with `--side`, which prints its seconds as JSON on its last line."""
    process = subprocess.Popen([sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True)
    peak = [0.0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak[0] = max(peak[0], sum(_memory(pid) for pid in family(process.pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    done.set()
    watcher.join()
    if process.returncode:
        sys.exit(f"{script} {' '.join(arguments)} ended with {process.returncode}")
    return Figure(json.loads(output.splitlines()[-1])["seconds"], peak[0])


def compare(
    what: str, ours: Sequence[Figure], peer: Sequence[Figure], *, time_at_most: float, memory_at_most: float
) -> list[str]:
    """Print the ratios of the medians and the two sides' own figures; returns which limits were missed."""
    mine, theirs = (statistics.median(one.seconds for one in side) for side in (ours, peer))
    memory, other = (statistics.median(one.megabytes for one in side) for side in (ours, peer))
    print(
        f"{what}: {mine / theirs:.2f}x the time (at most {time_at_most}x), "
        f"{memory / other:.2f}x the memory (at most {memory_at_most}x); "
        f"{mine:.1f} s and {memory:.0f} MB against {theirs:.1f} s and {other:.0f} MB, medians of {len(ours)}",
        flush=True,
    )
    return [
        *above(f"{what}, time", mine / theirs, time_at_most),
        *above(f"{what}, memory", memory / other, memory_at_most),
    ]


def above(what: str, ratio: float, at_most: float) -> list[str]:
    """The limit, told, if it was missed: by the figure itself, not by what is left of it after rounding."""
    return [f"{what}: {ratio:.3f}x, at most {at_most}x"] if ratio > at_most else []


def end(missed: Sequence[str]) -> None:
    """End the script: with 1 and the limits that were missed, if any, on stderr."""
    sys.exit("\n".join(f"missed: {one}" for one in missed) or None)


def _memory(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in fields if line.startswith("Pss:")), 0.0)


def family(root: int) -> list[int]:
    """The process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family
