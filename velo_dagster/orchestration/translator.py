"""How a table or a source becomes an asset: one hook that users override.

class Ours(VeloDagsterTranslator):
    def get_asset_spec(self, node):
        return super().get_asset_spec(node).replace_attributes(group_name="lake")
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster import (
    AssetKey,
    AssetSelection,
    AssetSpec,
    AutomationCondition,
    BetaWarning,
    CodeReferencesMetadataValue,
    LocalFileCodeReference,
)

from velo_dagster.errors import Span
from velo_dagster.plan.inputs import PlannedInput
from velo_dagster.plan.project import TablePlan
from velo_dagster.plan.references import exemption

DEFAULT_GROUP = "velo"
SOURCE_GROUP = "velo_sources"


@dataclass(frozen=True)
class VeloSource:
    """Something outside that tables read. `readers` are the tables, each with its own description of it."""

    name: str
    kind: str
    label: str
    readers: tuple[tuple[TablePlan, PlannedInput], ...]


@dataclass(frozen=True)
class VeloTable:
    """A table, where it lives, and the assets that it reads: sources and other tables."""

    plan: TablePlan
    uri: str
    sources: tuple[AssetKey, ...]
    tables: tuple[AssetKey, ...]
    optional: tuple[AssetKey, ...] = ()
    """Those of the tables that a load goes on without (`missing.reference`)."""

    @property
    def name(self) -> str:
        return self.plan.name


class VeloDagsterTranslator:
    """The assets that a project becomes. Override `get_asset_spec`; keys, groups, tags and all else follow it."""

    def get_asset_spec(self, node: VeloTable | VeloSource) -> AssetSpec:
        return _table(node) if isinstance(node, VeloTable) else _source(node)


def _source(source: VeloSource) -> AssetSpec:
    return AssetSpec(
        AssetKey([source.kind, plain(source.name)]),
        group_name=SOURCE_GROUP,
        kinds={source.kind},
        description=f"{source.label}, read by {', '.join(plan.name for plan, _ in source.readers)}.",
        metadata={"dagster/uri": source.label},
    )


def _table(table: VeloTable) -> AssetSpec:
    plan, said = table.plan, table.plan.annotations
    return AssetSpec(
        AssetKey(plain(plan.name)),
        deps=[*table.sources, *table.tables],
        group_name=said.group or DEFAULT_GROUP,
        owners=said.owners,
        tags=said.tags,
        kinds={"delta", "spark", *said.kinds},
        description=_description(plan),
        code_version=plan.fingerprint,
        automation_condition=automation(table),
        metadata=_definition_metadata(table),
        skippable=True,
    )


def _definition_metadata(table: VeloTable) -> Mapping[str, Any]:
    refresh = table.plan.refresh
    touches = [
        f"{one.label}: a changed row touches {refresh.touches[one.name]}"
        for one in table.plan.inputs
        if one.name in refresh.touches
    ]
    return {
        "dagster/table_name": table.plan.name,
        "dagster/storage_kind": "delta",
        "dagster/uri": table.uri,
        "dagster/code_references": _code_reference(table.plan.statement.span),
        "velo/refresh": f"{refresh.method}, because {refresh.reason}; {refresh.cost}",
        **({"velo/touches": touches} if touches else {}),
        **({"velo/exempt": exempt} if (exempt := exemption(table.plan)) else {}),
    }


def _code_reference(span: Span) -> CodeReferencesMetadataValue:
    file = Path(span.file)
    with warnings.catch_warnings():
        # Dagster marks them as beta, once per table; its range of versions is pinned.
        warnings.simplefilter("ignore", BetaWarning)
        reference = LocalFileCodeReference(
            file_path=str(file.absolute()), line_number=span.line, label=f"{file.name}:{span.line}"
        )
        return CodeReferencesMetadataValue(code_references=[reference])


def _description(plan: TablePlan) -> str:
    return f"{plan.annotations.description}\n\n{_fenced(plan)}".strip()


def _fenced(plan: TablePlan) -> str:
    return f"```sql\n{plan.statement.text}\n```"


def automation(table: VeloTable) -> AutomationCondition | None:
    """When Dagster loads the table by itself because of other tables; what comes from sources, sensors load.

    Observations never make a source's asset exist for Dagster, so sources are ignored as what must be there or be new;
    their readiness checks count.
    """
    asked = table.plan.annotations.automation
    if asked not in (None, "eager", "off"):
        return AutomationCondition.on_cron(asked).ignore(AssetSelection.assets(*table.sources)) & _ready(table)
    if asked == "off" or not table.tables:
        return None
    eager = AutomationCondition.eager()
    if table.sources:
        eager = eager.ignore(AssetSelection.assets(*table.sources))
    if table.optional:
        # What a load goes on without need not be there; it still starts a load when it is new.
        there = AutomationCondition.any_deps_missing().ignore(AssetSelection.assets(*table.sources, *table.optional))
        eager = eager.replace("any_deps_missing", there)
    # Dagster's own leaves a table alone whose statement changed.
    new = AutomationCondition.newly_missing() | AutomationCondition.code_version_changed()
    return eager.replace("newly_missing", new) & _ready(table)


def _ready(table: VeloTable) -> AutomationCondition:
    passed = AutomationCondition.all_deps_blocking_checks_passed()
    return passed.ignore(AssetSelection.assets(*table.optional)) if table.optional else passed


def plain(name: str) -> str:
    """A name as asset keys, ops and sensors may have it.

    >>> plain("data/orders-*.csv"), plain("Order lines")
    ('data_orders_csv', 'Order_lines')
    """
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "_"
