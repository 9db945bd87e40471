"""Declared columns and keys of a result: types are held exactly, keys are unique, or the load fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velo_dagster.engine.errors import DuplicateKey, InexactCast
from velo_dagster.plan.project import TablePlan
from velo_dagster.sql.names import quote, sanitise_all
from velo_dagster.sql.statements import Column, CreateTableAs
from velo_dagster.store.table import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

EXAMPLES = 3


def output(frame: DataFrame, statement: CreateTableAs) -> DataFrame:
    """A SELECT's result as the table stores it: names that Delta takes, declared types, no column without a type."""
    return storable(_declared(frame.toDF(*sanitise_all(frame.columns, statement.span)), statement))


def _declared(frame: DataFrame, statement: CreateTableAs) -> DataFrame:
    """The frame with the columns that the statement declares cast to their types, without rounding.

    Declared names match by name; if none of them is in the result, by place, and then they also rename.
    """
    if not statement.columns:
        return frame
    shown = [name for name in frame.columns if not name.startswith(HIDDEN)]
    lower = {name.lower(): name for name in shown}
    named = {lower[column.name.lower()]: column for column in statement.columns if column.name.lower() in lower}
    if len(named) < len(statement.columns):
        if named or len(shown) != len(statement.columns):
            raise _mismatch(statement, shown)
        named = dict(zip(shown, statement.columns, strict=True))
    return frame.select(
        *[_exactly(frame, name, named[name]) if name in named else frame[quote(name)] for name in frame.columns]
    )


def storable(frame: DataFrame) -> DataFrame:
    """The frame with columns that hold only NULLs, and so have no type yet, as text: Delta stores no column without."""
    from pyspark.sql import functions as f

    typed = [f.col(quote(field.name)).cast(_decided(field.dataType)).alias(field.name) for field in frame.schema]
    decided = all(_decided(field.dataType) == field.dataType for field in frame.schema)
    return frame if decided else frame.select(*typed)


def _decided(type_: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, NullType, StringType, StructField, StructType

    if isinstance(type_, NullType):
        return StringType()
    if isinstance(type_, ArrayType):
        return ArrayType(_decided(type_.elementType), type_.containsNull)
    if isinstance(type_, MapType):
        return MapType(_decided(type_.keyType), _decided(type_.valueType), type_.valueContainsNull)
    if isinstance(type_, StructType):
        return StructType([StructField(one.name, _decided(one.dataType), one.nullable) for one in type_])
    return type_


def orderable(type_: DataType) -> bool:
    """Whether Spark can sort by the type: no map, no variant, nor anything that holds one."""
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(type_, ArrayType):
        return orderable(type_.elementType)
    if isinstance(type_, StructType):
        return all(orderable(one.dataType) for one in type_)
    return not isinstance(type_, MapType | VariantType)


def _mismatch(statement: CreateTableAs, shown: list[str]) -> InexactCast:
    names = ", ".join(column.name for column in statement.columns)
    return InexactCast(
        f"Table '{statement.name}' declares the columns {names}, but its SELECT gives {', '.join(shown)}.",
        where=statement.columns[0].span,
        steps=["Declare the columns that the SELECT gives, or give its items those names with AS."],
    )


def _exactly(frame: DataFrame, name: str, column: Column) -> SparkColumn:
    """The column in its declared type; a value that the type does not hold is an error, never a rounded value."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    given = frame.schema[name].dataType
    target = _bare_decimal(given) if column.type.upper() == "DECIMAL" else column.type
    value = frame[quote(name)]
    if given.simpleString() == target.lower().replace(", ", ","):
        return value.alias(column.name)
    if isinstance(given, StringType):
        cast, kept = _text_as(value, target)
    else:
        cast = value.cast(target)
        kept = cast.cast(given).eqNullSafe(value)
    problem = f.concat(f.lit(f"column {column.name} {column.type} does not hold the value "), value.cast("string"))
    return f.when(kept, cast).otherwise(f.raise_error(problem).cast(target)).alias(column.name)


def _text_as(text: SparkColumn, target: str) -> tuple[SparkColumn, SparkColumn]:
    """A text in another type, and whether that drops nothing of it. What is no such value, the cast itself refuses."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import DataType, DateType, DecimalType, IntegralType, TimestampNTZType, TimestampType

    type_ = DataType.fromDDL(target)
    cast = text.cast(target)
    if isinstance(type_, IntegralType | DecimalType):
        number = cast if isinstance(type_, DecimalType) else text.cast("decimal(38,0)").cast(target)
        # By its digits: there is no type in which all numbers of 38 digits could be compared. 1e3 has none to count.
        digits = f.length(f.regexp_extract(f.trim(text), r"^[+-]?\d*\.(\d*?)0*$", 1))
        counted = f.trim(text).rlike(r"^[+-]?\d*\.?\d*$")
        scale = type_.scale if isinstance(type_, DecimalType) else 0
        same = f.when(counted, digits <= scale).otherwise(text.cast("decimal(38,18)") == number)
        return number, text.isNull() | same
    if isinstance(type_, DateType):
        return cast, text.cast("timestamp").eqNullSafe(cast.cast("timestamp"))
    if isinstance(type_, TimestampType | TimestampNTZType):
        return cast, text.isNull() | ~text.rlike(r"\.\d{6}\d*[1-9]")
    return cast, f.lit(True)


def _bare_decimal(given: DataType) -> str:
    """DECIMAL without digits keeps all digits there are."""
    from pyspark.sql.types import ByteType, DecimalType, IntegerType, LongType, ShortType

    if isinstance(given, DecimalType):
        return given.simpleString()
    return "decimal(18,0)" if isinstance(given, ByteType | ShortType | IntegerType | LongType) else "decimal(38,18)"


def check_unique(rows: DataFrame, plan: TablePlan) -> None:
    """A key that several rows share fails the load, naming some of them."""
    keys = plan.refresh.keys
    if not keys:
        return
    from pyspark.sql import functions as f

    doubled = rows.groupBy(*keys).agg(f.count(f.lit(1)).alias("_velo_count")).where("_velo_count > 1")
    found = doubled.orderBy(*keys).limit(EXAMPLES).collect()
    if found:
        examples = [
            ", ".join(f"{key}={row[key]!r}" for key in keys) + f" has {row['_velo_count']} rows" for row in found
        ]
        raise DuplicateKey(plan.name, keys, examples, plan.statement.span)
