"""A commit of few rows, made without Spark.

Spark takes seconds to plan and run a MERGE of a hundred rows, and one to append them: the log's state is made anew, and
several jobs run. Here Arrow writes the files, and one line of JSON per action is the commit.

Why it is as safe as a commit of Spark's.
- Let V be the version that is read. If V's token says that this load, or a later one, was made, nothing is written.
- Files are written first; no reader sees them. The commit is the file of version V+1, which is linked into place: that
  fails if there is one. So it is made only if nobody has committed since V, and what it replaces is what V held. Killed
  before the link, it has changed nothing; after it, it is made.
- Rows that go are told by all of their values, as bits: of equal rows all go, and none that is only alike. The files
  of a large table are not read for that and not written anew: whoever found the rows says in which files they are, and
  at which places (`Places`), and Delta's deletion vectors take them out. Places hold for one version only, and the
  commit is made only if that is V.
- A commit that takes some rows of a file has its changes written out beside it for the change feed. Of one that only
  adds or only takes whole files, the feed is those files.

Why the log is not written by deltalake, which reads it here: of columns with NaN it records a maximum without it, and
of decimals with many digits one that is rounded, and by both Spark would pass over files that hold what it looks for.
Here only values are recorded that Spark and Arrow put in the same order.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute

from velo_dagster.crash import crash_point
from velo_dagster.store.actions import TakenVersion, described, new_table, now, publish, removed, token, with_vectors
from velo_dagster.store.leftovers import DATA
from velo_dagster.store.log import LOG, Held, held_files
from velo_dagster.store.places import Places
from velo_dagster.store.record import FOLDER
from velo_dagster.store.values import row_values
from velo_dagster.store.vectors import FEATURE, staying, write_vectors

if TYPE_CHECKING:
    import numpy as np
    from deltalake import DeltaTable

pc: Any = pyarrow.compute  # its functions are made at run time, out of a type checker's sight
KNOWN_FEATURES = frozenset({"changeDataFeed", "invariants", "appendOnly", FEATURE})
"""What a commit made here keeps to. With any other, Spark makes it."""
LONGEST = 32
"""So many characters a text may have to be recorded as a file's least or greatest."""
CHECKPOINT_EVERY = 10


@dataclass(frozen=True)
class FewRows:
    """What one commit changes. `came` and `gone` have all columns of the table, hidden ones too; how each row changes,
    as Delta's change feed tells it, is in `came_as` and `gone_as`. `whole`: all that the table holds goes, and `gone`
    is empty; `schema`: its columns are these from now on, as Delta writes them; `places`: where the rows of `gone` are,
    each exactly once, if the table's rows are told by their places."""

    came: pa.Table
    gone: pa.Table | None = None
    came_as: Sequence[str] = ()
    gone_as: Sequence[str] = ()
    whole: bool = False
    schema: str | None = None
    codec: str = "snappy"
    places: Places | None = None

    def commit(self, path: Path, app: str, load: int, metadata: str) -> None:
        """Make the commit, unless the load was made before: whoever calls looks which attempt made it."""
        from deltalake import DeltaTable

        if not any((path / LOG).glob("*.json")):
            self._make(path, app, load, metadata)
            return
        table = DeltaTable(str(path))
        if (table.transaction_version(app) or 0) >= load:
            return
        if self.places is not None and self.places.version != table.version():
            raise TakenVersion(f"version {table.version()} is there; rows are known at {self.places.version}")
        held = held_files(path, table.version())
        files = _Files(path, _arrow_schema(self.schema or table.schema().to_json()), self.codec)
        actions: list[dict[str, Any]] = [token(app, load)]
        if self.schema is not None:
            actions.append({"metaData": described(table, self.schema)})
        if self.whole:
            actions += [removed(one) for one in held]
        elif self.gone is not None and self.gone.num_rows:
            without = files.without(held, self.gone) if self.places is None else _marked(path, table, held, self.places)
            actions += [*without, files.changes(self)]
        actions += [files.added(self.came)] if self.came.num_rows else []
        version = table.version() + 1
        crash_point("before-version")
        publish(path / LOG, version, [self._info(metadata, version - 1), *actions])
        if version % CHECKPOINT_EVERY == 0:
            table = DeltaTable(str(path))
            table.create_checkpoint()
            table.cleanup_metadata()

    def _make(self, path: Path, app: str, load: int, metadata: str) -> None:
        """The first commit: it says what the table is, too."""
        assert self.whole and self.schema is not None
        actions = [*new_table(self.schema), token(app, load)]
        if self.came.num_rows:
            actions.append(_Files(path, _arrow_schema(self.schema), self.codec).added(self.came))
        (path / LOG).mkdir(exist_ok=True)
        crash_point("before-version")
        publish(path / LOG, 0, [self._info(metadata, None), *actions])

    def _info(self, metadata: str, read: int | None) -> dict[str, Any]:
        metrics = {"numOutputRows": self.came.num_rows}
        operation, mode = "WRITE", "Overwrite" if self.whole else "Append"
        if self.gone is not None:
            operation, mode = "MERGE", "Merge"
            updated = sum(kind == "update_preimage" for kind in self.gone_as)
            metrics |= {
                "numTargetRowsUpdated": updated,
                "numTargetRowsInserted": self.came.num_rows - updated,
                "numTargetRowsDeleted": self.gone.num_rows - updated,
            }
        return {
            "commitInfo": {
                "timestamp": now(),
                "operation": operation,
                "operationParameters": {"mode": mode},
                **({} if read is None else {"readVersion": read}),
                "isolationLevel": "Serializable",
                "isBlindAppend": operation == "WRITE" and not self.whole,
                "operationMetrics": {name: str(count) for name, count in metrics.items()},
                "userMetadata": metadata,
                "engineInfo": "velo-dagster",
                "txnId": str(uuid.uuid4()),
            }
        }


def no_rows() -> pa.Table:
    """For a commit that changes nothing but up to where inputs were read."""
    return pa.table({})


def takes_few_rows(path: Path, table: DeltaTable) -> bool:
    """Whether a commit of few rows can be made here."""
    return _features(table) <= KNOWN_FEATURES and not table.metadata().partition_columns and can_link(path)


def needs_feature(schema: str) -> bool:
    """Whether a table with these columns, as Delta writes them, must name a feature that is not known here."""
    return '"timestamp_ntz"' in schema


def needs_places(path: Path, table: DeltaTable, above: int) -> bool:
    """Whether rows that go must be told by their places: the table has more bytes than that, so that looking for their
    values would take long, or it has deletion vectors."""
    return FEATURE in _features(table) or sum(one.size for one in held_files(path, table.version())) > above


def _features(table: DeltaTable) -> set[str]:
    protocol = table.protocol()
    return {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def can_link(path: Path) -> bool:
    """Whether a file can be linked on the table's file system."""
    folder = path / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    one, other = (folder / f"{uuid.uuid4().hex}.link" for _ in range(2))
    try:
        one.touch()
        os.link(one, other)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            return False
        raise
    finally:
        for file in (one, other):
            file.unlink(missing_ok=True)
    return True


# -- files ------------------------------------------------------------------------------------------------------


@dataclass
class _Files:
    """Files of one commit, written below the table's folder."""

    path: Path
    schema: pa.Schema
    codec: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    _count: int = 0

    def added(self, rows: pa.Table) -> dict[str, Any]:
        cast = rows.select(self.schema.names).cast(self.schema)
        file = self._write(cast, f"{DATA}/part")
        return {"add": {**file, "modificationTime": now(), "dataChange": True, "stats": json.dumps(_statistics(cast))}}

    def changes(self, few: FewRows) -> dict[str, Any]:
        """The rows that went and came, for the change feed."""
        assert few.gone is not None
        rows = pa.concat_tables(one.select(self.schema.names).cast(self.schema) for one in (few.gone, few.came))
        kinds = pa.array([*few.gone_as, *few.came_as], pa.string())
        return {
            "cdc": {**self._write(rows.append_column("_change_type", kinds), "_change_data/cdc"), "dataChange": False}
        }

    def without(self, held: Sequence[Held], gone: pa.Table) -> list[dict[str, Any]]:
        """The files that hold rows that go, taken away, and what is left of them, written again."""
        cast = gone.select(self.schema.names).cast(self.schema)
        values = set(row_values(cast))
        actions: list[dict[str, Any]] = []
        found = 0
        for one in held:
            rows = _read(self.path / unquote(one.path), self.schema)
            going = _among(rows, cast, values)
            if not len(going):
                continue
            found += len(going)
            actions.append(removed(one))
            if len(going) < rows.num_rows:
                import numpy as np

                staying = np.ones(rows.num_rows, dtype=bool)
                staying[going] = False
                actions.append(self.added(rows.filter(pa.array(staying))))
        assert found == gone.num_rows, f"{gone.num_rows} rows were to go, {found} are there"
        return actions

    def _write(self, rows: pa.Table, prefix: str) -> dict[str, Any]:
        import pyarrow.parquet as pq

        relative = f"{prefix}-{self._count:05}-{self.name}.parquet"
        self._count += 1
        file = self.path / relative
        file.parent.mkdir(exist_ok=True)
        # A footer's least and greatest float leave NaN out, too.
        told = [one.name for one in rows.schema if _is_ordered(one.type) or pa.types.is_decimal(one.type)]
        sums: Any = told or False  # it takes names, too
        pq.write_table(rows, file, compression=self.codec, write_statistics=sums, store_schema=False)
        return {"path": relative, "partitionValues": {}, "size": file.stat().st_size}


def _marked(path: Path, table: DeltaTable, held: Sequence[Held], places: Places) -> list[dict[str, Any]]:
    """The files that rows go from, taken away as they were and added with those rows marked as gone."""
    import numpy as np

    files = {Path(unquote(one.path)).name: one for one in held}
    before = staying(table)
    gone: dict[str, np.ndarray] = {}
    for name, rows in places.by_file().items():
        old = np.flatnonzero(~before[name]) if name in before else np.array([], np.int64)
        gone[name] = np.union1d(old, rows)
        assert len(gone[name]) == len(old) + len(rows), f"of {name}, rows were to go that are gone, or twice"
    actions = [] if FEATURE in _features(table) else with_vectors(table, _features(table))
    vectors = write_vectors(path, gone)
    for name, vector in vectors.items():
        one = files[name]
        stats = {**json.loads(one.stats or "{}"), "tightBounds": False}
        actions.append(removed(one))
        if stats.get("numRecords") != vector["cardinality"]:
            file = {"path": one.path, "partitionValues": {}, "size": one.size, "modificationTime": now()}
            actions.append(
                {"add": {**file, "dataChange": True, "stats": json.dumps(stats), "deletionVector": dict(vector)}}
            )
    return actions


def _read(file: Path, schema: pa.Schema) -> pa.Table:
    """All rows of a file; columns that came to the table later are NULL in it."""
    import pyarrow.dataset as ds

    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    return ds.dataset([str(file)], schema=schema, format=ds.ParquetFileFormat(read_options=options)).to_table()


def _among(rows: pa.Table, gone: pa.Table, values: set[Any]) -> np.ndarray:
    """The places of rows that are among those that go. First by single columns, which is quick, then by all of it."""
    likely: Any = None
    for name in rows.column_names:
        if not _is_ordered(rows.schema.field(name).type):
            continue
        one = pc.is_in(rows[name], value_set=pc.unique(gone[name]))
        likely = one if likely is None else pc.and_(likely, one)
    import numpy as np

    places = np.arange(rows.num_rows) if likely is None else np.flatnonzero(likely.to_numpy())
    same = [value in values for value in row_values(rows.take(pa.array(places)))]
    return places[np.array(same, dtype=bool)]


def _is_ordered(type_: pa.DataType) -> bool:
    """Whether Arrow and Spark put its values in the same order, and take the same ones for equal."""
    return pa.types.is_integer(type_) or pa.types.is_date32(type_) or pa.types.is_string(type_)


def _statistics(rows: pa.Table) -> dict[str, Any]:
    """What Delta records of a file, so that readers can pass over it: of top-level columns with an order, the least and
    the greatest value."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in rows.column_names:
        if not _is_ordered(rows.schema.field(name).type):
            continue
        ends = [_told(pc.min(rows[name])), _told(pc.max(rows[name]))]
        if None not in ends:
            least[name], greatest[name] = ends
    nulls = {one.name: rows[one.name].null_count for one in rows.schema if not pa.types.is_nested(one.type)}
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _told(value: pa.Scalar) -> Any:
    """The value as JSON tells it; None if it can't, or if it is a text that is too long."""
    try:
        found = value.as_py()
    except (ValueError, OverflowError):
        # A text that is none (UnicodeDecodeError is a ValueError), or a day that Python does not know.
        return None
    if isinstance(found, str):
        return found if len(found) <= LONGEST else None
    return found if found is None or isinstance(found, int) else found.isoformat()


def _arrow_schema(schema: str) -> pa.Schema:
    """The columns as files hold them. Whether NULL may be there is the log's to say."""
    from deltalake import Schema

    found = pa.schema(Schema.from_json(schema).to_arrow())
    return pa.schema([pa.field(one.name, one.type) for one in found])
