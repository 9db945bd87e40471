"""Where the rows of a table are: in which file, as the how manieth.

Delta's own reader tells no places, so the files are read as what they are, and rows that are gone by now are left out
once the rest is here: whoever asks for places asks for few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from velo_dagster.store.log import held_files
from velo_dagster.store.vectors import staying

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FILE, NUMBER = "_velo_file", "_velo_number"


@dataclass(frozen=True)
class Places:
    """Where rows are at a version: for each the name of its file, and its number in that."""

    version: int
    files: Sequence[str]
    numbers: Sequence[int]

    def by_file(self) -> dict[str, np.ndarray]:
        """
        >>> {file: rows.tolist() for file, rows in Places(1, ["b", "a", "b"], [7, 1, 3]).by_file().items()}
        {'a': [1], 'b': [3, 7]}
        """
        import numpy as np

        files, numbers = np.asarray(self.files, dtype=object), np.asarray(self.numbers, dtype=np.int64)
        return {file: np.sort(numbers[files == file]) for file in sorted(set(self.files))}

    def of(self, some: Sequence[int]) -> Places:
        """Those of some of the rows."""
        return Places(self.version, [self.files[n] for n in some], [self.numbers[n] for n in some])


def placed(spark: SparkSession, table: Path, version: int, schema: StructType, keys: pa.Table | None) -> DataFrame:
    """All rows that were ever in the files of a version, with their places; `keys`: rows without one of these keys may
    be missing."""
    held = held_files(table, version)
    for name in keys.column_names if keys is not None else ():
        values = keys[name].unique()
        # Only of these Delta records what Python puts in the same order.
        if pa.types.is_integer(values.type) or pa.types.is_string(values.type):
            listed = values.sort().to_pylist()
            held = [one for one in held if one.may_hold(name, listed)]
    if not held:
        nothing = spark.createDataFrame([], schema)
        return nothing.selectExpr("*", f"'' AS {FILE}", f"0L AS {NUMBER}")
    files = spark.read.schema(schema).parquet(*(str(table / unquote(one.path)) for one in held))
    return files.selectExpr("*", f"_metadata.file_name AS {FILE}", f"_metadata.row_index AS {NUMBER}")


def still_there(rows: pa.Table, table: Path, version: int) -> tuple[pa.Table, Places]:
    """Of rows with their places those that are not gone, and where they are."""
    from deltalake import DeltaTable

    masks = staying(DeltaTable(str(table), version=version))
    places = Places(version, rows[FILE].to_pylist(), rows[NUMBER].to_pylist())
    there = [
        n
        for n, (file, number) in enumerate(zip(places.files, places.numbers, strict=True))
        if file not in masks or masks[file][number]
    ]
    return rows.drop([FILE, NUMBER]).take(pa.array(there, pa.int64())), places.of(there)
