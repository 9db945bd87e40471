"""Tables as assets whose op is the one load of the engine, and increments as partitions that are its receipts."""

# No `from __future__ import annotations` here: Dagster reads the annotations of ops as objects.

from collections.abc import Iterator
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetMaterialization,
    AssetsDefinition,
    Backoff,
    DataVersion,
    MaterializeResult,
    RetryPolicy,
    multi_asset,
)

from velo_dagster.engine.report import LoadReport, Outcome
from velo_dagster.orchestration.checks import evaluate, evaluation
from velo_dagster.orchestration.load import VeloLoadConfig, load_increment, load_table, nothing_loaded, record_of
from velo_dagster.orchestration.metadata import load_metadata, report_metadata, table_metadata
from velo_dagster.orchestration.processes import own_tags
from velo_dagster.orchestration.resources import SPARK
from velo_dagster.orchestration.specs import ProjectSpecs, TableSpecs, outdated, partitions_of

RETRIES = RetryPolicy(max_retries=3, delay=5, backoff=Backoff.EXPONENTIAL)


def table_asset(specs: ProjectSpecs, table: TableSpecs) -> AssetsDefinition:
    """Materialize is load: bulk the first time, afterwards all that is new as one increment."""

    @multi_asset(
        name=table.op_name,
        specs=[table.spec],
        pool=pool_of(table),
        retry_policy=RETRIES,
        required_resource_keys={SPARK},
    )
    def load(context: AssetExecutionContext, config: VeloLoadConfig) -> Iterator[MaterializeResult]:
        _tell_process(context)
        if context.has_partition_key:
            report = load_increment(context, specs, table.plan, int(context.partition_key))
            number = int(context.partition_key)
        else:
            report = load_table(context, specs, table.plan, config.options())
            number = report.load
        if report is not None and nothing_loaded(report):
            context.log.info(f"{table.plan.name}: no rows yet; it is loaded when there are.")
            return
        if table.increments is not None and number:
            _give_receipt(context, specs, table, number, report)
        yield MaterializeResult(
            asset_key=table.key,
            metadata=table_metadata(context, specs, table, report),
            data_version=_data_version(specs, table),
        )

    return load


def increments_asset(specs: ProjectSpecs, table: TableSpecs) -> AssetsDefinition:
    """The receipts of increments. Launched alone, for one that failed, it makes the load itself."""
    assert table.increments is not None
    key = table.increments.key

    @multi_asset(
        name=f"{table.op_name}__increments",
        specs=[table.increments],
        pool=pool_of(table),
        retry_policy=RETRIES,
        required_resource_keys={SPARK},
    )
    def receive(context: AssetExecutionContext) -> Iterator[MaterializeResult]:
        number = int(context.partition_key)
        if table.key in (context.run.asset_selection or ()):
            context.log.info(f"{table.plan.name}: the table's own step has given the receipt of load {number}.")
            return
        _tell_process(context)
        report = load_increment(context, specs, table.plan, number)
        if report is not None and report.version is not None:
            _tell_table(context, specs, table, report)
        receipt = _receipt(specs, table, number, report)
        if receipt is None:
            context.log.info(f"{table.plan.name}: nothing is new, so there is no load {number} yet.")
            return
        yield MaterializeResult(asset_key=key, metadata=receipt)

    return receive


def _give_receipt(
    context: AssetExecutionContext, specs: ProjectSpecs, table: TableSpecs, number: int, report: LoadReport | None
) -> None:
    """A partition for one increment, whoever asked for it: given as soon as it is committed, whatever checks say."""
    assert table.increments is not None
    name = str(partitions_of(table.key).name)
    known = context.instance.get_dynamic_partitions(name)
    receipt = _receipt(specs, table, number, report)
    bulk = report is not None and report.outcome is not Outcome.INCREMENT
    if receipt is None or (bulk and str(number) not in known):
        return
    context.instance.add_dynamic_partitions(name, [str(number)])
    for old in outdated([*known, str(number)]):
        context.instance.delete_dynamic_partition(name, old)
    context.log_event(AssetMaterialization(table.increments.key, partition=str(number), metadata=receipt))


def _receipt(specs: ProjectSpecs, table: TableSpecs, number: int, report: LoadReport | None) -> dict[str, Any] | None:
    """What is known of a load; None if there is no such load."""
    record = record_of(specs.warehouse.table(table.plan.name), number)
    if record is None:
        return None
    told = report_metadata(report) if report is not None and report.load == number else {}
    return load_metadata(record) | told | {"dagster/partition_row_count": record.rows_changed}


def _tell_table(context: AssetExecutionContext, specs: ProjectSpecs, table: TableSpecs, report: LoadReport) -> None:
    """A load made by the receipt's own op is the table's: its event and its blocking checks are, too.

    What reads the table waits for both.
    """
    context.log_event(AssetMaterialization(table.key, metadata=table_metadata(context, specs, table, report)))
    for check, finding in evaluate(context, specs, table):
        context.log_event(evaluation(table, check, finding))  # pyright: ignore[reportArgumentType] - it takes these


def pool_of(table: TableSpecs) -> str:
    """One run at a time loads a table, where the instance limits pools to one; two would do no harm, but no good."""
    return f"velo/{'/'.join(table.key.path)}"


def _data_version(specs: ProjectSpecs, table: TableSpecs) -> DataVersion | None:
    record = specs.warehouse.table(table.plan.name).record()
    return DataVersion(f"{record.table_id}:{record.load}") if record is not None else None


def _tell_process(context: AssetExecutionContext) -> None:
    context.instance.add_run_tags(context.run.run_id, own_tags())
