"""A row's event time: which column holds it, and how that column's values become timestamps.

A value that is no time in the given format fails the load: guessed times would put rows into wrong windows. A text
must begin with a date, because of a time alone Spark makes one of today, another one at each load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from velo_dagster.errors import Span
from velo_dagster.sql.names import quote, sanitise
from velo_dagster.sql.problems import Problem, StatementError, error

_MICROSECONDS = {"epoch_seconds": 1_000_000, "epoch_millis": 1_000}
_TIMES = ("timestamp", "timestamp_ntz", "date")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "decimal", "double", "float")
_DATE_FIRST = "^\\\\s*[+-]?[0-9]{4,}(-|\\\\s*$)"


@dataclass(frozen=True)
class EventTime:
    """What an input's properties say: the column (or a path into one), its format, how late is late, and what then."""

    field: str
    format: str | None = None
    allowance: Decimal = Decimal(0)
    late: str = "include"


@dataclass(frozen=True)
class Shown:
    """Which windows a table shows, in microseconds since 1970: none that ends after `until` or before `since`.

    Without a bound that is asked for (`final`, `retained`), because no row has a time yet, there is no window either.
    """

    final: bool = False
    until: int | None = None
    retained: bool = False
    since: int | None = None


@dataclass(frozen=True)
class Times:
    """What a rendering knows of times: by input its event time, and by input and column (in lower case) Spark's types.

    `shown` bounds the windows of the statement's own SELECT.
    """

    fields: Mapping[str, EventTime] = field(default_factory=dict)
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shown: Shown = field(default_factory=Shown)

    def of_input(self, name: str, alias: str | None, where: Span) -> str:
        """The event time of an input's row, as Spark SQL, where the query calls the input `alias`."""
        time = self.fields[name]
        return self.of_column(name, alias, time.field, where)

    def of_column(self, name: str, alias: str | None, column: str, where: Span) -> str:
        """The same of any column of the input. The input's format is meant for its event time, or for whichever
        column a statement names, if the input names none."""
        time = self.fields.get(name)
        known = self.types.get(name, {})
        own = time is not None and column.casefold() in (time.field.casefold(), sanitise(time.field).casefold())
        format_ = time.format if time is not None and (own or not time.field) else None
        parts = [column] if sanitise(column).lower() in known else column.split(".")
        prefix = f"{quote(sanitise(alias))}." if alias else ""
        text = prefix + ".".join(quote(sanitise(part)) for part in parts)
        return as_timestamp(text, known.get(sanitise(column).lower(), ""), format_, where)


def as_timestamp(column: str, type_: str, format_: str | None, where: Span) -> str:
    """Spark SQL for the time that a column of this type holds in this format; an unknown type is taken as it comes.

    >>> as_timestamp("ts", "timestamp", None, Span("a.sql", 1, 1))
    'ts'
    >>> as_timestamp("ts", "bigint", "epoch_millis", Span("a.sql", 1, 1))
    'timestamp_micros(CAST(floor(CAST(ts AS DECIMAL(38, 6)) * 1000) AS BIGINT))'
    """
    kind = type_.partition("(")[0]
    format_ = None if format_ == "iso8601" else format_
    if kind in _TIMES and (format_ is None or _reads_as_iso(format_)):
        return column if kind != "date" else f"CAST({column} AS TIMESTAMP)"
    if kind in ("string", *_NUMBERS, "") and format_ in _MICROSECONDS:
        factor = _MICROSECONDS[format_]
        return f"timestamp_micros(CAST(floor(CAST({column} AS DECIMAL(38, 6)) * {factor}) AS BIGINT))"
    if kind in ("string", *_NUMBERS, "") and format_ is not None:
        escaped = format_.replace("\\", "\\\\").replace("'", "\\'")
        return f"to_timestamp(CAST({column} AS STRING), '{escaped}')"
    if kind == "":
        return column
    if kind == "string":
        failed = f"CAST(raise_error(concat('This is no time in ISO 8601: ', {column})) AS TIMESTAMP)"
        fits = f"{column} IS NULL OR {column} RLIKE '{_DATE_FIRST}'"
        return f"CASE WHEN {fits} THEN CAST({column} AS TIMESTAMP) ELSE {failed} END"
    raise StatementError(_misfit(column, type_, format_, where))


def _reads_as_iso(pattern: str) -> bool:
    """Whether what a source has recognised as an ISO date or timestamp means the same in this pattern."""
    return pattern.replace("u", "y").startswith("yyyy-MM-dd")


def _misfit(column: str, type_: str, format_: str | None, where: Span) -> Problem:
    as_ = f"in the format '{format_}'" if format_ else "as it is"
    if type_.partition("(")[0] in _NUMBERS:
        step = "Say what the number means: WITH ('event.time.format' = 'epoch_millis'), or epoch_seconds, or a pattern."
    elif format_ in _MICROSECONDS:
        step = "Leave 'event.time.format' out: the column already holds times."
    else:
        step = "Declare the column STRING in a table that reads the source, and read that table."
    return error("E137", f"The column {column} is {type_.upper()}, which can't be read as a time {as_}.", where, step)
