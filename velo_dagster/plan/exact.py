"""Spark settings that results depend on: they are the same for every load, so that a reload gives the same rows.

What only decides how fast a load is, or how much memory it takes, is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping

from velo_dagster.sql.variables import has_variables

EXACT = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Where branches of a CASE or sides of a UNION meet in more than 38 digits: too large fails, instead of digits that
    # stand behind the point being rounded away.
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true",
    "spark.databricks.delta.stats.collect.using.tableSchema": "true",
    "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    "spark.databricks.delta.retentionDurationCheck.enabled": "true",
    # What a file says of itself knows neither that -0.0 is 0.0 nor that NaN is the greatest number: rows would be
    # found or not by which others share their file.
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.orc.filterPushdown": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
"""What every session needs for exact results, whichever engine runs it."""

_FAMILIES = (
    "spark.sql.ansi.",
    "spark.sql.legacy.",
    "spark.sql.catalog.",
    "spark.databricks.delta.properties.defaults.",
    "spark.databricks.delta.commitInfo.",
)
_OTHERS = frozenset(
    {
        "spark.jars",
        "spark.sql.extensions",
        "spark.sql.catalogImplementation",
        "spark.sql.caseSensitive",
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "spark.sql.groupByAliases",
        "spark.sql.groupByOrdinal",
        "spark.sql.mapKeyDedupPolicy",
        "spark.sql.orderByOrdinal",
        "spark.sql.storeAssignmentPolicy",
        "spark.sql.timestampType",
        "spark.sql.variable.substitute",
    }
)
"""Settings that stay as they are: they change what statements mean, or what stores rows."""


def is_refused(key: str, value: str) -> bool:
    """Whether the setting would change results. What comes from the environment is looked at when Spark is started.

    >>> is_refused("spark.sql.ansi.enabled", "false"), is_refused("spark.sql.ansi.enabled", "True")
    (True, False)
    >>> is_refused("spark.sql.shuffle.partitions", "8")
    False
    """
    if has_variables(value):
        return False
    if key in EXACT:
        return value.strip().casefold() != EXACT[key].casefold()
    return key in _OTHERS or key.startswith(_FAMILIES)


def refused_settings(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of those settings that would change results."""
    return tuple(key for key, value in settings.items() if is_refused(key, value))


def why_refused(key: str) -> tuple[str, str]:
    """What to say about such a setting, and what to do."""
    fixed = f" It is always {EXACT[key]}." if key in EXACT else ""
    return f"'{key}' can't be set: what tables hold depends on it.{fixed}", "Leave it out."
