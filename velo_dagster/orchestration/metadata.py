"""What Dagster shows of a load. Collecting it never fails a load: what can't be told is left out, and logged."""

from __future__ import annotations

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

from velo_dagster.engine.report import LoadReport
from velo_dagster.orchestration.specs import ProjectSpecs, TableSpecs
from velo_dagster.plan.lineage import column_lineage
from velo_dagster.store.reader import OpenTable, open_table, visible_columns
from velo_dagster.store.record import Record


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
    for number, one in enumerate(table.plan.inputs):
        if one.table is not None:
            keys[one.name] = specs.tables[one.table].key
            columns[one.name] = list(visible_columns(specs.warehouse.table(one.table).path))
            continue
        keys[one.name] = next(
            source.key for source in specs.sources if any(other is one for _, other in source.node.readers)
        )
        landing = specs.warehouse.landing(table.plan.name, number)
        record = specs.warehouse.table(table.plan.name).record()
        if landing.opened() is not None:
            columns[one.name] = list(visible_columns(landing.path))
        elif record is not None:
            columns[one.name] = [name for name, _ in record.schema]
    names = visible_columns(specs.warehouse.table(table.plan.name).path)
    deps = {
        column: [TableColumnDep(keys[name], source) for name, source in found if name in keys]
        for column, found in column_lineage(table.plan.statement, columns, names).items()
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
        "velo/positions": MetadataValue.json(dict(record.positions)),
        "velo/rejected": sum(record.rejects.values()),
        "velo/ready": record.ready,
    }


def report_metadata(report: LoadReport) -> dict[str, Any]:
    told: dict[str, Any] = {
        "velo/outcome": str(report.outcome),
        "velo/rows_read": report.rows_read,
        "velo/seconds": round(report.seconds, 3),
    }
    told |= {f"velo/seconds/{step}": round(seconds, 3) for step, seconds in report.steps.items()}
    if report.skipped:
        told["velo/skipped"] = report.skipped
    if report.notes:
        told["velo/notes"] = MetadataValue.md("\n".join(f"- {note}" for note in report.notes))
    if report.retries:
        told["velo/retries"] = MetadataValue.json({name: dict(one) for name, one in report.retries.items()})
    return told
