"""Few rows, fetched from Spark: what is done with them here costs nothing, where Spark would plan a job each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

FEW = 10_000
"""So many rows are few."""
TOO_LARGE = "spark.driver.maxResultSize"
"""Named by Spark where rows are larger than what it hands over."""


def fetched(frame: DataFrame, most: int = FEW) -> pa.Table | None:
    """All rows of the frame, if there are at most so many and they can be carried: None if their types, or all of their
    values together, can't be. More than that are not computed."""
    if not all(is_plain(one.dataType) for one in frame.schema):
        return None
    try:
        found = frame.limit(most + 1).toArrow()
    except Exception as error:
        if TOO_LARGE in str(error):
            return None
        raise
    return found if found.num_rows <= most else None


def given(frame: DataFrame, rows: pa.Table) -> DataFrame:
    """A frame of rows that were fetched from this one: nothing is computed again."""
    return frame.sparkSession.createDataFrame(rows, schema=frame.schema)


def is_plain(type_: DataType, *, nested: bool = False) -> bool:
    """Whether Arrow carries the type both ways unchanged, and Python can tell all of its values apart.

    A date or a timestamp inside another value may be one that Python has none for.
    """
    from pyspark.sql import types as t

    if isinstance(type_, t.ArrayType):
        return is_plain(type_.elementType, nested=True)
    if isinstance(type_, t.StructType):
        return all(is_plain(one.dataType, nested=True) for one in type_)
    if isinstance(type_, t.DateType | t.TimestampType | t.TimestampNTZType):
        return not nested
    return isinstance(type_, t.NumericType | t.BooleanType | t.BinaryType) or type_ == t.StringType()
