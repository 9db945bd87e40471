"""Tables with loads that no Spark has made: for tests of whatever only looks at them."""

from __future__ import annotations

import os

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from velo_dagster.plan.project import Project, resolved_table_fingerprint
from velo_dagster.sources.registry import open_source
from velo_dagster.store.record import FOLDER, Record, encode
from velo_dagster.store.table import APP, Table, Warehouse


def commit(table: Table, record: Record) -> None:
    """One row more, as the load that `record` says."""
    said = CommitProperties(
        custom_metadata={"userMetadata": encode(record, table.path / FOLDER)},
        app_transactions=[Transaction(APP, record.load)],
    )
    rows = pa.table({"id": pa.array([record.load], pa.int64())})
    write_deltalake(str(table.path), rows, mode="append", commit_properties=said)


def load_all(project: Project, warehouse: Warehouse, load: int = 1) -> None:
    """A load of every table, each of one source, up to where that ends."""
    for plan in project.tables:
        position = open_source(plan.inputs[0], project.root, {}).end(None)
        mode = "bulk" if load == 1 else "increment"
        positions = {"source": position}
        mark = resolved_table_fingerprint(plan, os.environ)
        record = Record(load, "a", "load", mode, "append", "", mark, positions, (("id", "BIGINT"),))
        commit(warehouse.table(plan.name), record)
