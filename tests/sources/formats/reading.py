"""Helpers of the format tests: bytes to open, and everything a format says about them in one value."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO

from velo_dagster.sources.formats.base import FileFormat, FileSurvey, OnBad


def opener(data: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)


def rows_of(
    format_: FileFormat,
    data: bytes,
    schema: list[tuple[str, str | None]],
    *,
    start: int = 0,
    stop: int | None = None,
    declared: frozenset[str] = frozenset(),
    on_bad: OnBad = "mark",
) -> list[dict[str, Any]]:
    """All rows in the order of their offsets, good and bad."""
    batches = format_.batches(opener(data), start, stop, None, schema, declared, on_bad)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["_velo_at"])


def schema_of(survey: FileSurvey) -> list[tuple[str, str | None]]:
    return [(name, evidence.type()) for name, evidence in survey.columns.items()]
