"""Reading tables without a JVM: their columns, their row count, their rows.

Our tables keep to what the JVM-free reader knows in full (no column mapping), so what it returns is what Spark would.
Hidden columns are left out everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from velo_dagster.errors import Terminal, VeloError
from velo_dagster.sql.names import is_hidden
from velo_dagster.sql.problems import nearest
from velo_dagster.store.log import held_files
from velo_dagster.store.table import LANDING, REJECTED, Table, Warehouse
from velo_dagster.store.vectors import staying

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

ATTEMPT = "attempt"


class UnknownTable(Terminal, VeloError):
    """A name that no table of the warehouse has."""

    code = "Q601"

    def __init__(self, name: str, warehouse: Warehouse) -> None:
        known = warehouse.names()
        near = nearest(name, known)
        where = f"the warehouse {warehouse.root}"
        if not warehouse.root.is_dir():
            what = f"There is no table '{name}', because {where} does not exist."
        elif not known:
            what = f"There is no table '{name}' in {where}. It is empty."
        else:
            more = " and more" if len(known) > 20 else ""
            what = f"There is no table '{name}' in {where}. It holds {', '.join(known[:20])}{more}."
        super().__init__(
            what,
            steps=(
                *((f"Perhaps you mean {' or '.join(near)}.",) if near else ()),
                "Load it first: velo-dagster load PATH",
                "Or name its project: velo-dagster query SQL PATH. Or the warehouse that load and status show first: "
                "--warehouse DIR, or VELO_WAREHOUSE.",
            ),
        )


@dataclass(frozen=True)
class Column:
    """A column that users see, with Delta's name for its type (`long`, `decimal(18,2)`, `struct`, ...)."""

    name: str
    type: str


@dataclass(frozen=True)
class Remaining:
    """The rows of files some of which have deletion vectors (`staying`: by file, whether a row is still there). It is
    read anew whenever it is asked for, as a stream: DuckDB may scan it twice."""

    files: ds.Dataset
    staying: Mapping[str, np.ndarray]

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._read(columns).read_all()

    def count_rows(self) -> int:
        return self._read([]).read_all().num_rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._read().__arrow_c_stream__(requested_schema)

    def _read(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        import pyarrow as pa

        names = self.files.schema.names if columns is None else columns
        schema = pa.schema([self.files.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(list(names)))

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for file in self.files.get_fragments():
            mask, first = self.staying.get(Path(file.path).name), 0
            for batch in file.to_batches(schema=self.files.schema, columns=columns):
                there = None if mask is None else pa.array(mask[first : first + batch.num_rows])
                first += batch.num_rows
                yield batch if there is None else batch.filter(there)


@dataclass(frozen=True)
class OpenTable:
    """A table at one version: whatever is committed meanwhile, all reads of it agree."""

    name: str
    delta: DeltaTable
    attempts: frozenset[str] | None = None

    @property
    def path(self) -> Path:
        return Path(unquote(urlsplit(self.delta.table_uri).path))

    @property
    def version(self) -> int:
        return self.delta.version()

    @property
    def columns(self) -> tuple[Column, ...]:
        fields = self.delta.schema().fields
        return tuple(Column(one.name, _type_name(one.type)) for one in fields if not is_hidden(one.name))

    def dataset(self) -> ds.Dataset | Remaining:
        """All rows, hidden columns included, read only as far as they are asked for.

        Made from the files alone: the dataset that deltalake makes also carries the log's statistics as guarantees, and
        with those Arrow lets rows through that a filter excludes (`r <= 0` over a file with NaN), or drops others.
        """
        import pyarrow as pa
        import pyarrow.dataset as ds

        assert not self.delta.metadata().partition_columns, "tables of ours are not partitioned"
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        schema = pa.schema(self.delta.schema().to_arrow())
        files = [str(self.path / unquote(one.path)) for one in held_files(self.path, self.version)]
        whole = ds.dataset(files, schema=schema, format=ds.ParquetFileFormat(read_options=options))
        if self.attempts is not None:
            return whole.filter(ds.field(ATTEMPT).isin(sorted(self.attempts)))
        gone = staying(self.delta)
        return Remaining(whole, gone) if gone else whole

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows, in no particular order; all visible columns, or those named."""
        names = [column.name for column in self.columns]
        return self.dataset().to_table(columns=names if columns is None else list(columns))

    def count(self) -> int:
        """How many rows there are: from the log, where every file's commit says so; else by reading the files' ends."""
        if self.attempts is not None:
            return self.dataset().count_rows()
        counts = [one.rows for one in held_files(self.path, self.version)]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else self.dataset().count_rows()


def open_table(path: Path | str, version: int | None = None) -> OpenTable:
    """The Delta table in a folder, at its newest version or the one given."""
    from deltalake import DeltaTable

    return OpenTable(Path(path).name, DeltaTable(str(path), version=version))


def open_named(warehouse: Warehouse, name: str) -> OpenTable:
    """A table of the warehouse by its name, in any case. Of rejected rows only those of committed loads are there."""
    known = {one.lower(): one for one in warehouse.names()}
    base = name.lower().removesuffix(REJECTED)
    if base not in known:
        raise UnknownTable(name, warehouse)
    if base == name.lower():
        return open_table(warehouse.table(name).path)
    if warehouse.rejected(base).opened() is None:
        raise UnknownTable(name, warehouse)
    return OpenTable(name, open_table(warehouse.rejected(base).path).delta, committed_attempts(warehouse, base))


def committed_attempts(warehouse: Warehouse, name: str) -> frozenset[str]:
    """The attempts whose rejected rows count: those that the table's newest load names, itself or by its landings."""
    record = warehouse.table(name).record()
    if record is None:
        return frozenset()
    attempts = set(record.rejects)
    for position in record.positions.values():
        if LANDING in position.get("table", ""):
            history = warehouse.table(position["table"]).history()
            attempts.update(*(one.rejects for one in history if one.load == position["load"]))
    return frozenset(attempts)


def rejected_rows(table: Table) -> pa.Table:
    """The bad rows that were kept for a table, each with its reason; none that the table has not committed."""
    import pyarrow as pa

    warehouse = Warehouse(str(table.path.parent))
    if warehouse.rejected(table.name).opened() is None:
        return pa.table({ATTEMPT: pa.array([], pa.string())})
    return open_named(warehouse, f"{table.name}{REJECTED}").to_arrow()


def visible_columns(path: Path | str) -> tuple[str, ...]:
    """The names of a table's columns as `SELECT *` shows them."""
    return tuple(column.name for column in open_table(path).columns)


def to_arrow(path: Path | str, version: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """A table's rows at a version, without the hidden columns."""
    return open_table(path, version).to_arrow(columns)


def _type_name(type_: object) -> str:
    """Delta's own word for a primitive type; only its kind for a nested one."""
    told = getattr(type_, "type", None)
    return told if isinstance(told, str) else type(type_).__name__
