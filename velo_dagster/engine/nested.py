"""What a query's paths need to know of its inputs: the types of their columns, and what texts hold as JSON.

The type of a value inside of a text is the least one that holds that value in all rows, as in files; so the rows are
looked through once, and the values are then read with that type by a function of the session.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velo_dagster.sources.formats import json_paths
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sources.formats.json_paths import Seen
from velo_dagster.sources.formats.types import Evidence
from velo_dagster.sql.names import quote
from velo_dagster.sql.nested import TEXT, UNDECIDED, Type, read_type
from velo_dagster.sql.path_values import Nested, TextPath, TextValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JSON_TEXT = "a path reads JSON text, whose type is that of all its values"


def nested_types(frames: Mapping[str, DataFrame]) -> dict[str, dict[str, Type]]:
    """By input, the types of its columns."""
    return {
        name: {one.name: read_type(one.dataType.jsonValue()) for one in frame.schema} for name, frame in frames.items()
    }


def nested(
    spark: SparkSession, frames: Mapping[str, DataFrame], rendered: Callable[[Nested], object] | None = None
) -> Nested:
    """What paths over these inputs need to know. Texts are looked through when a path runs into one; all at once if
    `rendered`, which renders the query, shows the paths before."""
    types, texts = nested_types(frames), Texts(spark, frames)
    if rendered is not None:
        noted = Noted()
        rendered(Nested(types, noted))
        texts.look(noted.paths)
    return Nested(types, texts)


@dataclass
class Texts:
    """Gives the functions that read values out of texts. `look` looks through the rows for several paths at once."""

    spark: SparkSession
    frames: Mapping[str, DataFrame]
    known: dict[TextPath, TextValues] = field(default_factory=dict)
    seen: dict[TextPath, Seen] = field(default_factory=dict)

    def __call__(self, path: TextPath) -> TextValues:
        if path not in self.known:
            self.known[path] = self._made(path)
        return self.known[path]

    def _made(self, path: TextPath) -> TextValues:
        from pyspark.sql.functions import arrow_udf
        from pyspark.sql.types import DataType

        if path not in self.seen:
            self.look([path])
        found = json_paths.decided(self.seen[path], path.steps)
        if found is None:
            return TextValues("", UNDECIDED)
        steps, type_, plain_only = path.steps, to_arrow(found.type), found.plain_only

        def read(texts: pa.Array) -> pa.Array:
            return json_paths.values(texts.to_pylist(), steps, type_, plain_only)

        # The same path with the same type is the same function: over Spark Connect a frame asks for it by name, later.
        name = f"velo_json_{hashlib.sha256(repr((steps, found)).encode()).hexdigest()[:16]}"
        made = arrow_udf(read, f"ARRAY<{found.type}>")  # pyright: ignore[reportCallIssue, reportArgumentType]
        self.spark.udf.register(name, made)
        return TextValues(name, read_type(DataType.fromDDL(found.type).jsonValue()), found.many)

    def look(self, paths: Iterable[TextPath]) -> None:
        """Find out what the values of these paths are, in one pass over each input."""
        by_input: dict[str, list[TextPath]] = {}
        for path in dict.fromkeys(paths):
            by_input.setdefault(path.input, []).append(path)
        for name, asked in by_input.items():
            self.seen |= dict(zip(asked, _survey(self.frames[name], asked), strict=True))


def _survey(rows: DataFrame, paths: Sequence[TextPath]) -> list[Seen]:
    columns = list(dict.fromkeys(path.column for path in paths))
    asked = [(columns.index(path.column), path.steps) for path in paths]

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = (json_paths.survey(batch.column(number).to_pylist(), steps) for number, steps in asked)
            text = json.dumps([[seen.plain.to_json(), seen.nested.to_json(), seen.many] for seen in found])
            yield pa.RecordBatch.from_pydict({"seen": [text]})

    texts = [".".join(quote(name) for name in column) + f" AS c{n}" for n, column in enumerate(columns)]
    found = rows.selectExpr(*texts).mapInArrow(look, "seen STRING").distinct().collect()
    parts = [[_read(one) for one in json.loads(row.seen)] for row in found]
    return [reduce(Seen.join, (part[number] for part in parts), Seen()) for number in range(len(paths))]


def _read(parts: list[Any]) -> Seen:
    plain, nested, many = parts
    return Seen(Evidence.from_json(plain), Evidence.from_json(nested), many)


@dataclass
class Noted:
    """Stands in for the functions, and notes for which paths there would have to be one."""

    paths: list[TextPath] = field(default_factory=list)

    def __call__(self, path: TextPath) -> TextValues:
        self.paths.append(path)
        return TextValues("velo_json", TEXT)
