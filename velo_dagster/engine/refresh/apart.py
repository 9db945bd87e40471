"""A statement's SELECT over its inputs, taken apart so that it can be computed in parts: see `plan.deltas`.

The SQL that finds out what changed is made from a tree, not from the user's own text. So Spark is asked whether that
tree, written out again, means the same as the text. Where it says no, the table is computed whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from velo_dagster.engine.columns import orderable
from velo_dagster.engine.inputs import visible
from velo_dagster.engine.refresh.full import Selected, selected
from velo_dagster.engine.refresh.work import Work
from velo_dagster.plan.blocks import ROW_MARK
from velo_dagster.plan.deltas import Deltas, Parts
from velo_dagster.plan.whole import ONE_PART, why_whole
from velo_dagster.sources.contract import ID
from velo_dagster.sql.dialect import Velo
from velo_dagster.sql.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANALYSED, OPTIMISED, PHYSICAL = (f"== {word} Plan ==" for word in ("Analyzed Logical", "Optimized Logical", "Physical"))
EXPLAINING = {
    "spark.sql.debug.maxToStringFields": str(2**31 - 1),
    # Delta would put today's counts and maxima in place of the aggregates that ask for them.
    "spark.databricks.delta.optimizeMetadataQuery.enabled": "false",
}
VIEW = re.compile(r"\bView \(`(\w+)`")
NUMBER = re.compile(r"#\d+|(?<=CTERelationDef )\d+|(?<=CTERelationRef )\d+")
UNSURE = "it is not certain that it means the same when it is taken apart"


@dataclass(frozen=True)
class Apart:
    """The SELECT as one query over the views `<view>_new`, with the names that its columns have in the user's text."""

    tree: exp.Expr
    views: Mapping[str, str]
    names: tuple[str, ...]
    hide: bool

    def parts(self, changed: frozenset[str]) -> Parts:
        """`changed`: the views of inputs that have changed rows."""
        return Deltas(frozenset(self.views.values()), changed, hide=self.hide).parts(self.tree)

    def named(self, frame: DataFrame) -> DataFrame:
        """The frame under the user's names; hidden columns behind them keep theirs."""
        return frame.toDF(*self.names, *frame.columns[len(self.names) :])


def take_apart(work: Work) -> Apart | str:
    """The SELECT, or why it can only be computed whole."""
    chosen = selected(work)
    if chosen.remark:
        return chosen.remark.removeprefix("; ")
    schema = MappingSchema(dialect="spark")
    for view in chosen.views.values():
        schema.add_table(view, dict.fromkeys(work.spark.table(view).columns, "string"))
    try:
        tree = sqlglot.parse_one(chosen.text, dialect=Velo)
        tree = qualify(tree, schema=schema, dialect="spark", validate_qualify_columns=False)
    except SqlglotError:
        return UNSURE
    reason = why_whole(tree)
    if reason is not None:
        return reason
    if not _means_the_same(work, chosen, tree):
        return UNSURE
    apart = Apart(tree, chosen.views, tuple(chosen.frame.columns), bool(work.plan.statement.columns))
    # What WITH defines is looked into only now.
    return apart if apart.parts(frozenset()).keys else ONE_PART


def _means_the_same(work: Work, chosen: Selected, tree: exp.Expr) -> bool:
    """Whether Spark plans the tree, written out, as it plans the text."""
    from pyspark.errors import AnalysisException, ParseException

    text = _unaliased(tree).sql(dialect="spark", identify=True)
    try:
        if work.spark.sql(chosen.text).sameSemantics(work.spark.sql(text)):
            return True
        planned = _planned(work, chosen.text)
        return planned is not None and planned == _planned(work, text)
    except (AnalysisException, ParseException):
        return False


def _unaliased(tree: exp.Expr) -> exp.Expr:
    """The tree without aliases that repeat a column's name: to Spark they are a step more."""
    tree = tree.copy()
    for alias in list(tree.find_all(exp.Alias)):
        if isinstance(alias.this, exp.Column) and alias.this.name == alias.alias and alias.arg_key == "expressions":
            alias.replace(alias.this)
    return tree


def _planned(work: Work, text: str) -> tuple[list[str], list[str], list[str]] | None:
    """What Spark makes of a query: the types of its columns, the views it reads, and the optimised plan, without the
    numbers that Spark gives anew each time to columns, parts of WITH and calls of Python functions. None: no plan."""
    before = {key: work.spark.conf.get(key, None) for key in EXPLAINING}
    for key, value in EXPLAINING.items():
        work.spark.conf.set(key, value)
    try:
        types = [kind for _, kind in work.spark.sql(text).dtypes]
        plan = work.spark.sql(f"EXPLAIN EXTENDED {text}").collect()[0][0]
    finally:
        for key, value in before.items():
            work.spark.conf.unset(key) if value is None else work.spark.conf.set(key, value)
    analysed, found, optimised = plan.partition(ANALYSED)[2].partition(OPTIMISED)
    if not found:
        return None
    numbers: dict[str, str] = {}
    steps = [
        NUMBER.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), line.lstrip(" :+-"))
        for line in optimised.partition(PHYSICAL)[0].strip().splitlines()
    ]
    return types, VIEW.findall(analysed), steps


def marked(rows: DataFrame) -> DataFrame:
    """The rows without hidden columns, each with a mark that tells it apart; equal rows may have equal marks.

    By its identity, where it has one, else by all of its columns: they are in no order that could change.
    """
    from pyspark.sql import functions as f

    shown = visible(rows)
    known = [one.name for one in shown.schema if orderable(one.dataType)]
    by = [ID] if ID in rows.columns else sorted(known, key=str.lower)
    mark = f.xxhash64(*(rows[quote(name)] for name in by)) if by else f.lit(0).cast("bigint")
    return rows.select(*(rows[quote(name)] for name in shown.columns), mark.alias(ROW_MARK))
