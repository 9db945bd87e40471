"""What Dagster shows of a load. Collecting it never fails a load: what can't be told is left out, and logged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    MetadataValue,
    TableColumn,
    TableColumnDep,
    TableColumnLineage,
    TableSchema,
)

from velo_dagster.engine.exempt import rows_without_reference
from velo_dagster.engine.landings import landings
from velo_dagster.engine.report import LoadReport
from velo_dagster.orchestration.specs import ProjectSpecs, TableSpecs
from velo_dagster.plan.event_time import time_field
from velo_dagster.plan.lineage import column_lineage
from velo_dagster.store.reader import OpenTable, open_table, visible_columns
from velo_dagster.store.record import Record

LONGEST_POSITIONS = 50_000


def table_metadata(
    context: AssetExecutionContext, specs: ProjectSpecs, table: TableSpecs, report: LoadReport | None
) -> dict[str, Any]:
    """The metadata of a table's materialization: the table as it is now, and what the load that just ended did."""
    found: dict[str, Any] = {}

    def collect(what: str, part: Callable[[], Mapping[str, Any]]) -> None:
        try:
            found.update(part())
        except Exception as error:  # noqa: BLE001 - the rows are committed; metadata must not make that a failure
            context.log.warning(f"Metadata: {what} can't be told: {type(error).__name__}: {error}")

    place = specs.warehouse.table(table.plan.name)
    collect("rows and columns", lambda: _shape(open_table(place.path)))
    collect("column lineage", lambda: _lineage(specs, table))
    record = None
    try:
        record = place.record()
    except Exception as error:  # noqa: BLE001 - see above
        context.log.warning(f"Metadata: the load can't be told: {error}")
    if record is not None:
        collect("the load", lambda: load_metadata(record))
        collect("rows that wait for references", lambda: _waiting(specs, table, record))
    if report is not None:
        collect("the report", lambda: report_metadata(report))
    return found


def _shape(opened: OpenTable) -> dict[str, Any]:
    columns = [TableColumn(column.name, column.type) for column in opened.columns]
    return {"dagster/row_count": opened.count(), "dagster/column_schema": TableSchema(columns)}


def _lineage(specs: ProjectSpecs, table: TableSpecs) -> dict[str, Any]:
    """Columns of the table by those of what it reads, as far as statement and tables tell."""
    keys: dict[str, AssetKey] = {}
    columns: dict[str, list[str]] = {}
    landed = landings(specs.warehouse, table.plan)
    for number, one in enumerate(table.plan.inputs):
        if one.table is not None:
            keys[one.name] = specs.tables[one.table].key
            columns[one.name] = list(visible_columns(specs.warehouse.table(one.table).path))
            continue
        keys[one.name] = next(
            source.key for source in specs.sources if any(other is one for _, other in source.node.readers)
        )
        landing = landed[number]
        record = specs.warehouse.table(table.plan.name).record()
        if landing.opened() is not None:
            columns[one.name] = list(visible_columns(landing.path))
        elif record is not None:
            columns[one.name] = [name for name, _ in record.schema]
    names = visible_columns(specs.warehouse.table(table.plan.name).path)
    times = {one.name: field for one in table.plan.inputs if (field := time_field(one))}
    deps = {
        column: [TableColumnDep(keys[name], source) for name, source in found if name in keys]
        for column, found in column_lineage(table.plan.statement, columns, names, times).items()
    }
    return {"dagster/column_lineage": TableColumnLineage(deps)}


def load_metadata(record: Record) -> dict[str, Any]:
    return {
        "velo/load": record.load,
        "velo/mode": record.mode,
        "velo/method": record.method,
        "velo/reason": record.reason,
        "velo/rows_changed": record.rows_changed,
        "velo/version": record.version,
        "velo/loaded_at": MetadataValue.timestamp(record.at / 1000),
        "velo/positions": _positions(record),
        "velo/rejected": sum(record.rejects.values()),
        "velo/ready": record.ready,
        **_exempt(record),
    }


def _exempt(record: Record) -> dict[str, Any]:
    """References that the load did without, and rows that were filled in for them and stay so."""
    told: dict[str, Any] = {}
    if record.missing:
        told["velo/missing_references"] = MetadataValue.json(dict(record.missing))
    if record.filled:
        told["velo/rows_filled"] = record.filled
    return told


def _waiting(specs: ProjectSpecs, table: TableSpecs, record: Record) -> dict[str, Any]:
    rows = rows_without_reference(specs.warehouse, table.plan, record)
    return {"velo/rows_without_reference": rows} if rows else {}


def _positions(record: Record) -> MetadataValue:
    """Whole, unless there are very many files: every load's are kept by Dagster."""
    size = len(json.dumps(record.positions))
    if size > LONGEST_POSITIONS:
        return MetadataValue.text(f"{size:,} bytes; velo-dagster status --json shows them.")
    return MetadataValue.json(dict(record.positions))


def report_metadata(report: LoadReport) -> dict[str, Any]:
    told: dict[str, Any] = {"velo/outcome": str(report.outcome), "velo/seconds": round(report.seconds, 3)}
    if report.rows_read:
        # Rows of sources; what Spark reads of other tables is not counted.
        told["velo/rows_read"] = report.rows_read
    told |= {f"velo/seconds/{step}": round(seconds, 3) for step, seconds in report.steps.items()}
    if report.skipped:
        told["velo/skipped"] = report.skipped
    if report.notes:
        told["velo/notes"] = MetadataValue.md("\n".join(f"- {note}" for note in report.notes))
    if report.retries:
        told["velo/retries"] = MetadataValue.json({name: dict(one) for name, one in report.retries.items()})
    return told
