"""The kinds of values that random statements compute with: how both engines call them, and what may be asked of them.

`float` holds multiples of a quarter, so that its sums are exact in every engine; `wild` holds doubles of all sizes. A
`ratio` is what a division gives: engines round it each in its own way, so it is shown and goes nowhere else, where
DuckDB is to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """`values` are texts as they stand in files; `forms` are expressions of a column, of the same kind."""

    spark: str
    duckdb: str
    constant: str
    values: tuple[str, ...]
    forms: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    """Values that make sums too large, so that loads fail; not in every history."""


MINUTES = tuple(f"2024-05-01T{minute // 60:02}:{minute % 60:02}:00" for minute in range(0, 360, 10))
KINDS: Mapping[str, Kind] = {
    "int": Kind(
        "BIGINT",
        "BIGINT",
        "1",
        ("0", "1", "2", "3", "4"),
        ("{} + 1", "coalesce({}, 0)", "CASE WHEN {} > 1 THEN 1 ELSE {} END"),
        ("0", "1", "2", "3", "4"),
    ),
    "text": Kind(
        "STRING",
        "VARCHAR",
        "'c'",
        ("", "x", "y", "Zoë", "x y", "東京", 'a "b", c', "🚲"),
        ("upper({})", "{} || '!'", "coalesce({}, '')"),
        ("''", "'x'", "'Zoë'", "'東京'"),
    ),
    "money": Kind(
        "DECIMAL(18,2)",
        "DECIMAL(18,2)",
        "CAST(1.50 AS DECIMAL(18,2))",
        ("0.00", "0.01", "-0.01", "1.50", "19.99", "-250.00", "9999999999999999.99"),
        ("{} + 0.25", "coalesce({}, 0)", "- {}"),
        ("0", "1.50", "-250", "20.00"),
    ),
    "huge": Kind(
        "DECIMAL(38,4)",
        "DECIMAL(38,4)",
        "CAST(7 AS DECIMAL(38,4))",
        ("0.0000", "1.0001", "-1.0001", "123456789012345678901234567.8901", "-98765432109876543210987654.0001"),
        ("coalesce({}, 0)",),
        ("0", "1.0001", "12345678901234567890"),
        ("9999999999999999999999999999999999.9999", "-9999999999999999999999999999999999.9999"),
    ),
    "float": Kind(
        "DOUBLE",
        "DOUBLE",
        "CAST(0.5 AS DOUBLE)",
        ("0.0", "-0.0", "0.25", "-1.5", "3.0", "NaN", "Infinity", "-Infinity"),
        ("- {}", "{} * 0.5", "coalesce({}, 0.25)", "abs({})"),
        ("0", "0.25", "-1.5", "CAST('NaN' AS DOUBLE)"),
    ),
    "wild": Kind(
        "DOUBLE",
        "DOUBLE",
        "CAST(0.1 AS DOUBLE)",
        ("0.1", "0.2", "-0.3", "1e300", "-1e300", "1e-320", "0.0", "-0.0", "NaN", "Infinity", "12345678901.234567"),
        ("- {}", "abs({})"),
        ("0", "0.1", "1e300"),
    ),
    "day": Kind(
        "DATE",
        "DATE",
        "DATE '2024-02-29'",
        ("2024-02-29", "1969-12-31", "2024-03-01", "0001-01-01", "9999-12-31"),
        (),
        ("DATE '2024-02-29'", "DATE '1969-12-31'"),
    ),
    "time": Kind(
        "TIMESTAMP",
        "TIMESTAMP",
        "TIMESTAMP '2024-05-01 00:00:00'",
        ("2024-05-01T00:59:59.999999", "1969-12-31T23:30:00", *MINUTES),
        ("date_trunc('hour', {})",),
        ("TIMESTAMP '2024-05-01 02:00:00'", "TIMESTAMP '2024-05-01 01:10:00'"),
    ),
    "ratio": Kind("DOUBLE", "DOUBLE", "CAST(0.5 AS DOUBLE)", (), (), ("0", "1.5")),
}
ROUNDED = "a number that engines round each in its own way decides over rows"
WILD = "sums of doubles of all sizes: DuckDB's depend on the order of rows, ours are exact"
INFINITE = "deviations and medians where there is NaN or an infinity: DuckDB refuses them, or orders them otherwise"
FINAL = "EMIT FINAL: DuckDB knows no watermark"
TOO_MANY_DIGITS = (
    "deviations of numbers with more digits than a double: DuckDB rounds each number, ours only the result"
)
READS = "it reads a table that is left out"
LEFT_OUT = (ROUNDED, WILD, INFINITE, FINAL, TOO_MANY_DIGITS, READS)
"""Why a statement is not compared with DuckDB. Besides, numbers that were rounded, and averages of decimals, which
DuckDB gives as DOUBLE and Spark as DECIMAL, are compared to nine digits, and the sign of zero is not compared."""
