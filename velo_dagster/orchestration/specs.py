"""A project as asset specs: pure, without ops, Spark or a look at any source."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dagster import AssetKey, AssetSpec, DynamicPartitionsDefinition

from velo_dagster.orchestration.translator import VeloDagsterTranslator, VeloSource, VeloTable, plain
from velo_dagster.plan.inputs import PlannedInput
from velo_dagster.plan.project import Project, TablePlan
from velo_dagster.plan.references import missing_of
from velo_dagster.store.table import Warehouse

INCREMENTS = "increments"
INCREMENTS_GROUP = "velo_increments"
KEPT = 5000
"""So many partitions of increments are kept, the newest."""


@dataclass(frozen=True)
class TableSpecs:
    """One table: its node, its asset, and the asset whose partitions are its increments, if it reads a source."""

    node: VeloTable
    spec: AssetSpec
    increments: AssetSpec | None

    @property
    def plan(self) -> TablePlan:
        return self.node.plan

    @property
    def key(self) -> AssetKey:
        return self.spec.key

    @property
    def op_name(self) -> str:
        return plain("__".join(self.key.path))


@dataclass(frozen=True)
class SourceSpecs:
    node: VeloSource
    spec: AssetSpec

    @property
    def key(self) -> AssetKey:
        return self.spec.key


@dataclass(frozen=True)
class ProjectSpecs:
    """All assets of a project; tables in dependency order, by name."""

    project: Project
    warehouse: Warehouse
    sources: tuple[SourceSpecs, ...]
    tables: Mapping[str, TableSpecs]

    @property
    def loaded(self) -> list[AssetKey]:
        """The keys of all that a run may load."""
        tables = self.tables.values()
        return [*(one.key for one in tables), *(one.increments.key for one in tables if one.increments is not None)]


def build_specs(project: Project, warehouse: Warehouse, translator: VeloDagsterTranslator) -> ProjectSpecs:
    sources = [SourceSpecs(node, translator.get_asset_spec(node)) for node in source_nodes(project)]
    tables: dict[str, TableSpecs] = {}
    for plan in project.tables:
        node = VeloTable(
            plan,
            warehouse.table(plan.name).path.as_uri(),
            tuple(one.key for one in sources if any(reader is plan for reader, _ in one.node.readers)),
            tuple(dict.fromkeys(tables[one.table].key for one in plan.inputs if one.table in tables)),
            tuple(tables[one.table].key for one in plan.inputs if one.table in tables and missing_of(one).goes_on),
        )
        spec = translator.get_asset_spec(node)
        tables[plan.name] = TableSpecs(node, spec, _increments(spec, plan) if node.sources else None)
    return ProjectSpecs(project, warehouse, tuple(sources), tables)


def source_nodes(project: Project) -> list[VeloSource]:
    """What is read from outside, each place once; two places that would get one name get a mark each."""
    places: dict[tuple[str, str], list[tuple[TablePlan, PlannedInput]]] = {}
    for plan in project.tables:
        for one in plan.inputs:
            if one.kind == "source":
                places.setdefault((one.source_type or "source", _place(one)), []).append((plan, one))
    names = [plain(_name(readers[0][1])) for readers in places.values()]
    nodes = []
    for ((kind, place), readers), name in zip(places.items(), names, strict=True):
        if names.count(name) > 1:
            name = f"{name}_{hashlib.sha256(place.encode()).hexdigest()[:6]}"
        nodes.append(VeloSource(name, kind, readers[0][1].label, tuple(readers)))
    return nodes


def _place(planned: PlannedInput) -> str:
    """As written, so that variables stay what they are."""
    return planned.uri or planned.properties.get("path") or f"{planned.name} {planned.fingerprint}"


def _name(planned: PlannedInput) -> str:
    """
    The name that a project gives its source, else what its URI says behind the scheme.
    """
    if planned.uri is None or not planned.name.startswith("_input_"):
        return planned.name
    return planned.label.partition("://")[2] or planned.label


def _increments(spec: AssetSpec, plan: TablePlan) -> AssetSpec:
    return AssetSpec(
        AssetKey([*spec.key.path, INCREMENTS]),
        deps=[spec.key],
        group_name=INCREMENTS_GROUP,
        kinds={"delta"},
        description=f"One partition per increment of {plan.name}, named by its load number.",
        partitions_def=partitions_of(spec.key),
        skippable=True,
    )


def outdated(keys: Collection[str]) -> list[str]:
    """Partitions of increments that are forgotten: all but the newest."""
    numbers = sorted((key for key in keys if key.isdigit()), key=int)
    return numbers[: max(0, len(numbers) - KEPT)]


def partitions_of(key: AssetKey) -> DynamicPartitionsDefinition:
    return DynamicPartitionsDefinition(name="/".join(["velo", *key.path, INCREMENTS]))
