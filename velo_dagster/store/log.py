"""The files of a table, as its log names them: what deltalake does not tell of them is needed to take them away.

A file whose deletion vector grows is taken from the log under the old vector and added under the new one, so a file is
known by both (`key`).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG = "_delta_log"
VECTOR = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


@dataclass(frozen=True)
class Held:
    """A file of a table; `vector` describes which of its rows are gone, as the log writes it."""

    path: str
    size: int
    stats: str
    vector: Mapping[str, Any] | None

    def may_hold(self, column: str, values: Sequence[Any]) -> bool:
        """Whether a row of it may have one of the values, which are whole numbers or texts in their order, or None.

        Texts may be recorded cut short, the greatest with a character behind it that is greater than all.
        """
        told = json.loads(self.stats or "{}")
        least, greatest = (told.get(one, {}).get(column) for one in ("minValues", "maxValues"))
        if None in values or least is None or greatest is None:
            return True
        first = bisect_left(values, least)
        return first < len(values) and values[first] <= greatest

    @property
    def rows(self) -> int | None:
        """How many rows are there; None if its commit did not say."""
        told = json.loads(self.stats or "{}").get("numRecords")
        return None if told is None else told - (self.vector["cardinality"] if self.vector else 0)


def held_files(table: Path, version: int) -> list[Held]:
    """All files of a version that the log still reaches back to."""
    log = table / LOG
    start = max((one for one in _checkpoints(log) if one <= version), default=None)
    files: dict[tuple[str, str], Held] = {}
    if start is not None:
        files = {_key(one): _held(one) for one in _checkpointed(log, start)}
    for number in range(0 if start is None else start + 1, version + 1):
        actions = [json.loads(line) for line in (log / f"{number:020}.json").read_text(encoding="utf-8").splitlines()]
        for action in actions:
            if "remove" in action:
                files.pop(_key(action["remove"]), None)
        files |= {_key(action["add"]): _held(action["add"]) for action in actions if "add" in action}
    return list(files.values())


def _checkpoints(log: Path) -> Iterator[int]:
    return (int(file.name.partition(".")[0]) for file in log.glob("*.checkpoint*.parquet"))


def _checkpointed(log: Path, version: int) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet as pq

    for part in sorted(log.glob(f"{version:020}.checkpoint*.parquet")):
        yield from (one for one in pq.read_table(part, columns=["add"])["add"].to_pylist() if one and one["path"])


def _key(action: Mapping[str, Any]) -> tuple[str, str]:
    vector = action.get("deletionVector") or {}
    return action["path"], f"{vector.get('pathOrInlineDv')}@{vector.get('offset')}"


def _held(action: Mapping[str, Any]) -> Held:
    vector = action.get("deletionVector")
    told = {key: vector[key] for key in VECTOR if vector.get(key) is not None} if vector else None
    return Held(action["path"], action["size"], action.get("stats") or "", told)
