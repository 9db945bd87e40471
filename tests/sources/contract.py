"""What every source must do, as one suite: a source's tests subclass `SourceContract` and say how rows get into it.

Each test names the promise of `velo_dagster.sources.contract` that it holds a source to, and what a user loses else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from velo_dagster.errors import VeloError
from velo_dagster.sources.contract import ERROR, ID, Position, Scan, Schema, Source
from velo_dagster.sources.errors import MissingSource

Row = Mapping[str, Any]
Rows = dict[tuple, dict[str, Any]]

FIRST: list[Row] = [
    {
        "id": 1,
        "name": "Ann",
        "amount": Decimal("299.99"),
        "day": date(2025, 1, 1),
        "seen": datetime(2025, 6, 15, 14, 30),
    },
    {"id": 2, "name": 'it\'s "Bob"', "amount": Decimal("24.10"), "day": None, "seen": datetime(2025, 6, 15, 14, 31)},
    {"id": 3, "name": None, "amount": None, "day": date(2025, 1, 3), "seen": None},
]
SECOND: list[Row] = [
    {"id": 4, "name": "Dañ\\", "amount": Decimal("-0.01"), "day": date(1969, 12, 31), "seen": datetime(1969, 12, 31)},
    {"id": 5, "name": "two\nlines, one value", "amount": Decimal("0.00"), "day": None, "seen": None},
]
THIRD: list[Row] = [
    {"id": 6, "name": " blanks ", "amount": Decimal("149.99"), "day": date(2025, 1, 1), "seen": datetime(2025, 1, 1)}
]


class World(ABC):
    """Something outside that a source reads. `add` puts rows in; they are delivered in the order of adding."""

    @abstractmethod
    def source(
        self, properties: Mapping[str, str] | None = None, declared: Mapping[str, str] | None = None
    ) -> Source: ...

    @abstractmethod
    def add(self, rows: Sequence[Row]) -> None: ...

    def replace(self, rows: Sequence[Row]) -> None:
        """Everything that was delivered so far becomes these rows. Only where `can_replace`."""
        raise NotImplementedError

    def expected(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The rows as the source's format can carry them; timestamps are UTC."""
        return [{key: _utc(value) for key, value in row.items()} for row in rows]


class SourceContract(ABC):
    """Subclasses give a `world` fixture and say what their source can do."""

    can_replace: ClassVar[bool] = False
    can_bound: ClassVar[bool] = True
    types: ClassVar[Mapping[str, str]] = {
        "id": "BIGINT",
        "name": "STRING",
        "amount": "DECIMAL(18,2)",
        "day": "DATE",
        "seen": "TIMESTAMP",
    }

    @pytest.fixture
    @abstractmethod
    def world(self) -> World: ...

    def test_what_was_put_in_comes_out_exactly(self, world: World, spark: Any) -> None:
        """Promise 5: no value is rounded, cut, or NULLed."""
        world.add(FIRST)
        world.add(SECOND)
        source = world.source()
        until = source.end(None)
        scan = source.scan(None, until)
        schema = source.schema(scan, ())
        assert {field.name: field.type for field in schema} == self.types
        assert in_order(read(source, spark, scan, schema)) == world.expected([*FIRST, *SECOND])

    def test_the_end_is_fixed_before_anything_is_read(self, world: World, spark: Any) -> None:
        """Promise 1: rows that come during a load are neither lost nor delivered twice."""
        world.add(FIRST)
        source = world.source()
        until = source.end(None)
        scan = source.scan(None, until)
        schema = source.schema(scan, ())
        world.add(SECOND)
        first = read(source, spark, scan, schema)
        assert in_order(first) == world.expected(FIRST)
        assert read(world.source(), spark, scan, schema) == first
        source.verify(scan, until)
        later = source.scan(until, source.end(until))
        rest = read(source, spark, later, source.schema(later, schema))
        assert in_order(rest) == world.expected(SECOND)

    def test_ids_are_unique_and_in_the_sources_order(self, world: World, spark: Any) -> None:
        """Promise 2: with other ids an increment and a reload would pick different winners for a key."""
        source = world.source()
        positions: list[Position | None] = [None]
        rows: Rows = {}
        for batch in (FIRST, SECOND, THIRD):
            world.add(batch)
            positions.append(source.end(positions[-1]))
            added = read_all(source, spark, positions[-2], positions[-1])
            assert not rows.keys() & added.keys()
            rows |= added
        assert in_order(rows) == world.expected([*FIRST, *SECOND, *THIRD])
        assert read_all(source, spark, None, positions[-1]) == rows

    def test_steps_compose(self, world: World, spark: Any) -> None:
        """Promise 3: however the input is cut, the same rows come."""
        world.add(FIRST)
        source = world.source()
        a = source.end(None)
        world.add(SECOND)
        b = source.end(a)
        world.add(THIRD)
        c = source.end(b)
        two = read_all(source, spark, a, b) | read_all(source, spark, b, c)
        assert read_all(source, spark, a, c) == two
        assert read_all(source, spark, None, a) | two == read_all(source, spark, None, c)

    def test_positions_are_plain_json(self, world: World, spark: Any) -> None:
        """Promise 4: a position survives being written down, and nothing new means nothing to read."""
        world.add(FIRST)
        source = world.source()
        a = json.loads(json.dumps(source.end(None)))
        assert world.source().scan(a, world.source().end(a)).empty
        world.add(SECOND)
        b = world.source().end(a)
        assert in_order(read_all(world.source(), spark, a, b)) == world.expected(SECOND)
        assert json.loads(json.dumps(b)) == b

    def test_replaced_rows_go(self, world: World, spark: Any) -> None:
        """Promise 3 with removals: rows that the source no longer has don't stay in the table."""
        if not self.can_replace:
            pytest.skip("this source only ever adds rows")
        world.add(FIRST)
        source = world.source()
        a = source.end(None)
        rows = read_all(source, spark, None, a)
        world.replace(SECOND)
        b = source.end(a)
        scan = source.scan(a, b)
        assert scan.removed is not None
        rows = without(spark, rows, scan, source) | read(source, spark, scan, source.schema(scan, ()))
        assert in_order(rows) == world.expected(SECOND)
        assert source.lost(a) == source.lost(b) == ()

    @pytest.mark.parametrize("bound", [1, 2, 4])
    def test_a_bound_cuts_and_the_rest_follows(self, world: World, spark: Any, bound: int) -> None:
        """A bounded load takes no more than it may, and later ones take the rest."""
        if not self.can_bound:
            pytest.skip("this source can't be cut")
        world.add(FIRST)
        world.add(SECOND)
        source = world.source()
        goal, since, rows = source.end(None), None, Rows()
        schema = source.schema(source.scan(None, goal), ())
        for _ in range(len(FIRST) + len(SECOND)):
            until = source.end(since, bound)
            added = read(source, spark, source.scan(since, until), schema)
            assert len(added) <= bound and not added.keys() & rows.keys()
            rows |= added
            since = until
            if source.reached(until, goal):
                break
        assert since is not None and source.reached(since, goal)
        assert in_order(rows) == world.expected([*FIRST, *SECOND])

    def test_a_survey_finds_what_a_sample_does(self, world: World, spark: Any) -> None:
        """Promise 5: the types must not depend on which way they were found."""
        world.add([*FIRST, *SECOND])
        source = world.source()
        scan = source.scan(None, source.end(None))
        survey = source.survey(spark, scan, ())
        assert (survey.schema, survey.bad_rows, survey.bad_count) == (source.schema(scan, ()), (), 0)

    def test_a_missing_source_is_said_to_be_missing(self, world: World) -> None:
        """A user must learn that the source is not there, and what to do."""
        source = world.source()
        probe = source.probe()
        assert (probe.ready, probe.category) == (False, "missing") and probe.message
        with pytest.raises(MissingSource) as caught:
            source.end(None)
        assert caught.value.steps and "Original error: " in str(caught.value)

    def test_a_source_that_is_there_is_ready(self, world: World) -> None:
        world.add(FIRST)
        assert world.source().probe().ready

    def test_lost_is_nothing_while_all_is_there(self, world: World) -> None:
        world.add(FIRST)
        source = world.source()
        assert source.lost(source.end(None)) == ()


def read_all(source: Source, spark: Any, since: Position | None, until: Position | None) -> Rows:
    assert until is not None
    scan = source.scan(since, until)
    whole = source.scan(None, until)
    return read(source, spark, scan, source.schema(whole, ())) if scan.parts else {}


def read(source: Source, spark: Any, scan: Scan, schema: Schema) -> Rows:
    """The rows of a scan by id; a row that comes twice fails."""
    frame = source.read(spark, scan, schema)
    assert frame.columns == [*(field.name for field in schema), ID, ERROR]
    assert frame.schema[ID].dataType == spark.sql(f"SELECT CAST(NULL AS {source.id_type}) x").schema["x"].dataType
    found = frame.toArrow().to_pylist()
    rows = {tuple(row.pop(ID).values()): row for row in found}
    assert len(rows) == len(found), "an id came twice"
    assert all(row.pop(ERROR) is None for row in rows.values())
    return rows


def without(spark: Any, rows: Rows, scan: Scan, source: Source) -> Rows:
    """The rows that a scan's condition leaves, as Spark understands it."""
    frame = spark.createDataFrame([(key,) for key in rows], f"{ID} {source.id_type}")
    gone = {tuple(row[0]) for row in frame.where(scan.removed).collect()}
    return {key: row for key, row in rows.items() if key not in gone}


def in_order(rows: Rows) -> list[dict[str, Any]]:
    return [rows[key] for key in sorted(rows)]


def fails(action: Any, error: type[VeloError]) -> VeloError:
    with pytest.raises(error) as caught:
        action()
    return caught.value


def _utc(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
