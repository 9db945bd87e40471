"""Declared columns and keys of a result: types are held exactly, keys are unique, or the load fails.

A text is read as a file's own column of the declared type is read: it is taken if that takes it, and means the same
value. Of any other value Spark's cast is taken, if that, cast back, is the value again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velo_dagster.engine.errors import DuplicateKey, InexactCast
from velo_dagster.plan.project import TablePlan
from velo_dagster.sources.formats.convert import convert
from velo_dagster.sources.formats.ddl import struct_ddl, to_arrow
from velo_dagster.sql.names import quote, sanitise_all
from velo_dagster.sql.statements import Column, CreateTableAs
from velo_dagster.store.table import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

EXAMPLES = 3
BARE = "DECIMAL"
WIDEST = "DECIMAL(38,18)"
MISFIT = " does not hold the value "


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
        *(_exactly(frame, name, named[name]) if name in named else frame[quote(name)] for name in frame.columns)
    )


def _exactly(frame: DataFrame, name: str, column: Column) -> SparkColumn:
    return Declared(frame, name, column).exactly().alias(column.name)


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


def type_text(type_: DataType) -> str:
    """The type as SQL takes it: names inside of it in quotes where they need them."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, ArrayType):
        return f"ARRAY<{type_text(type_.elementType)}>"
    if isinstance(type_, MapType):
        return f"MAP<{type_text(type_.keyType)}, {type_text(type_.valueType)}>"
    if isinstance(type_, StructType):
        return struct_ddl((one.name, type_text(one.dataType)) for one in type_)
    return type_.simpleString()


def holds_floats(type_: DataType) -> bool:
    """Whether it has values that are equal and not the same: 0.0 and -0.0."""
    return any(word in type_.simpleString() for word in ("double", "float"))


def exact_text(value: str, type_: DataType) -> str:
    """SQL for a text that is another one for every value of a type that holds floats."""
    from pyspark.sql.types import DoubleType, FloatType

    plain = isinstance(type_, DoubleType | FloatType)
    return f"CAST({value} AS STRING)" if plain else f"to_json(struct({value} AS x))"


def same_value(one: str, other: str, type_: DataType) -> str:
    """A condition that holds where two values are the same, the sign of a zero included. Maps can't be compared: no."""
    if not orderable(type_):
        return "false"
    equal = f"{one} <=> {other}"
    return f"{equal} AND {exact_text(one, type_)} <=> {exact_text(other, type_)}" if holds_floats(type_) else equal


def comparable_rows(frame: DataFrame) -> DataFrame:
    """The frame with values that Spark can compare: what it has no order for as JSON."""
    from pyspark.sql import functions as f

    return frame.select(
        *(
            f.col(quote(field.name))
            if orderable(field.dataType)
            else f.to_json(f.struct(f.col(quote(field.name)))).alias(field.name)
            for field in frame.schema
        )
    )


def _mismatch(statement: CreateTableAs, shown: list[str]) -> InexactCast:
    names = ", ".join(column.name for column in statement.columns)
    return InexactCast(
        f"Table '{statement.name}' declares the columns {names}, but its SELECT gives {', '.join(shown)}.",
        where=statement.columns[0].span,
        steps=["Declare the columns that the SELECT gives, or give its items those names with AS."],
    )


class Declared:
    """A column of a frame in its declared type: `value`, which counts only where it `fits`."""

    def __init__(self, frame: DataFrame, name: str, column: Column) -> None:
        from pyspark.sql import functions as f
        from pyspark.sql.types import DataType, StringType

        self.column = column
        self.given = frame[quote(name)]
        given = frame.schema[name].dataType
        self.type = _bare_decimal(given) if column.type.upper() == BARE else column.type
        type_ = DataType.fromDDL(self.type)
        self.checked = type_.simpleString() != given.simpleString()
        if not self.checked:
            self.value, self.fits = self.given, f.lit(True)
        elif isinstance(given, StringType):
            self.value, self.fits = _read(self.given, self.type)
        else:
            self.value, self.fits = _cast(self.given, given, type_)

    def exactly(self) -> SparkColumn:
        """The value; one that does not fit is an error, never a rounded value."""
        from pyspark.sql import functions as f

        if not self.checked:
            return self.value
        problem = f.concat(f.lit(f"Column {self.column.name} {self.type}{MISFIT}"), self.given.cast("string"))
        return f.when(self.fits, self.value).otherwise(f.raise_error(problem).cast(self.type))


def _read(text: SparkColumn, target: str) -> tuple[SparkColumn, SparkColumn]:
    from pyspark.sql.functions import arrow_udf

    type_ = to_arrow(target)

    def read(texts: pa.Array) -> pa.Array:
        return convert(texts, type_, declared=True)[0]

    # Its declared overloads want the kind of function as well; given that, it warns that type hints say it better.
    value = arrow_udf(read, target)(text)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return value, text.isNull() | value.isNotNull()


def _cast(value: SparkColumn, given: DataType, target: DataType) -> tuple[SparkColumn, SparkColumn]:
    from pyspark.sql import functions as f
    from pyspark.sql.types import DoubleType, FloatType, LongType

    # Spark has no try_cast for the keys of maps.
    cast = value.try_cast(target) if orderable(target) else value.cast(target)
    back = cast.try_cast(given) if orderable(given) else cast.cast(given)
    same = _comparable(back, given).eqNullSafe(_comparable(value, given))
    if isinstance(target, LongType) and isinstance(given, DoubleType | FloatType):
        # The least float beyond BIGINT is cast to the greatest BIGINT, and that back to it.
        same &= value < f.lit(2.0**63)
    return cast, value.isNull() | same


def _comparable(value: SparkColumn, type_: DataType) -> SparkColumn:
    """The value in a form that Spark compares: maps as arrays of their entries, whose order a cast keeps."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if orderable(type_):
        return value
    if isinstance(type_, ArrayType):
        return f.transform(value, lambda one: _comparable(one, type_.elementType))
    if isinstance(type_, MapType):
        entry = StructType().add("key", type_.keyType).add("value", type_.valueType)
        return f.transform(f.map_entries(value), lambda one: _comparable(one, entry))
    if isinstance(type_, StructType):
        parts = [_comparable(value.getField(one.name), one.dataType).alias(one.name) for one in type_]
        return f.when(value.isNotNull(), f.struct(*parts))
    return value


def _bare_decimal(given: DataType) -> str:
    """DECIMAL without digits keeps all digits that a value of the type can have; those of a text or float, as far as
    one type can."""
    from pyspark.sql.types import ByteType, DecimalType, IntegerType, LongType, ShortType

    if isinstance(given, DecimalType):
        return f"DECIMAL({given.precision},{given.scale})"
    digits = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}.get(type(given))
    return WIDEST if digits is None else f"DECIMAL({digits},0)"


def check_unique(rows: DataFrame, plan: TablePlan) -> None:
    """A key that several rows share fails the load, naming some of them."""
    keys = plan.refresh.keys
    if not keys:
        return
    from pyspark.sql import functions as f

    named = [quote(key) for key in keys]
    doubled = rows.groupBy(*named).agg(f.count(f.lit(1)).alias("_velo_count")).where("_velo_count > 1")
    found = doubled.orderBy(*named).limit(EXAMPLES).collect()
    if found:
        examples = [
            ", ".join(f"{key}={row[key]!r}" for key in keys) + f" has {row['_velo_count']} rows" for row in found
        ]
        raise DuplicateKey(plan.name, keys, examples, plan.statement.span)
