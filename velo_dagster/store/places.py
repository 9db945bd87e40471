"""Where the rows of a table are: in which file, as the how manieth.

Delta's own reader tells no places, so the files are read as what they are, and rows that are gone by now are left out
once the rest is here: whoever asks for places asks for few rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from velo_dagster.store.log import Held, held_files
from velo_dagster.store.values import Row, row_values
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
    held = held if keys is None else _with_keys(held, keys)
    if not held:
        nothing = spark.createDataFrame([], schema)
        return nothing.selectExpr("*", f"'' AS {FILE}", f"0L AS {NUMBER}")
    files = spark.read.schema(schema).parquet(*(str(table / unquote(one.path)) for one in held))
    return files.selectExpr("*", f"_metadata.file_name AS {FILE}", f"_metadata.row_index AS {NUMBER}")


def located(table: Path, version: int, keys: pa.Table) -> tuple[pa.Table, Places] | None:
    """The keys of all rows that have one of these, each with its place; None if they are no whole numbers or texts."""
    from deltalake import DeltaTable

    if not all(_is_ordered(one.type) for one in keys.schema):
        return None
    masks = staying(DeltaTable(str(table), version=version))
    files = [table / unquote(one.path) for one in _with_keys(held_files(table, version), keys)]
    looking = _Looking(keys, frozenset(row_values(keys)))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        found = list(pool.map(looking.within, files, (masks.get(file.name) for file in files)))
    names = [file.name for file, (rows, _) in zip(files, found, strict=True) for _ in range(rows.num_rows)]
    numbers = [number for _, some in found for number in some]
    return pa.concat_tables([keys.slice(0, 0), *(rows for rows, _ in found)]), Places(version, names, numbers)


@dataclass(frozen=True)
class _Looking:
    """Rows with certain keys are looked for."""

    keys: pa.Table
    values: frozenset[Row]

    def within(self, file: Path, staying: np.ndarray | None) -> tuple[pa.Table, list[int]]:
        """The keys that are found, and the numbers of their rows; `staying`: for each row whether it is still there."""
        import numpy as np
        import pyarrow.compute
        import pyarrow.dataset as ds

        pc: Any = pyarrow.compute  # its functions are made at run time, out of a type checker's sight
        rows = ds.dataset([str(file)], schema=self.keys.schema).to_table()
        likely = staying
        for name in self.keys.column_names:
            one = pc.is_in(rows[name], value_set=self.keys[name].unique()).to_numpy()
            likely = one if likely is None else likely & one
        places = np.arange(rows.num_rows) if likely is None else np.flatnonzero(likely)
        some = rows.take(pa.array(places))
        same = np.fromiter((value in self.values for value in row_values(some)), dtype=bool, count=len(places))
        return some.filter(pa.array(same)), places[same].tolist()


def _with_keys(held: Sequence[Held], keys: pa.Table) -> Sequence[Held]:
    """Those files that may hold a row with one of the keys, by columns that Delta and Python order in the same way."""
    for name in keys.column_names:
        if _is_ordered(keys[name].type):
            listed = keys[name].unique().sort().to_pylist()
            held = [one for one in held if one.may_hold(name, listed)]
    return held


def _is_ordered(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_string(type_)


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
