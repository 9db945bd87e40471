"""CSV under declared and inferred types. If these fail, values are lost, rounded or put into the wrong column."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from tests.sources.formats.reading import opener, rows_of
from velo_dagster.sources.formats import BadRecord, FormatOptions, Misfit, open_format

CSV = open_format("csv", FormatOptions())


def test_columns_are_bound_by_name_and_missing_ones_are_null() -> None:
    rows = rows_of(CSV, b"b,a\n1,x\n", [("a", "STRING"), ("c", "BIGINT"), ("b", "BIGINT")])
    assert [(row["a"], row["c"], row["b"]) for row in rows] == [("x", None, 1)]


def test_names_may_be_given_by_place() -> None:
    data = b"Order ID,x\n1,2\n"
    schema = [("order_id", "BIGINT"), ("x", "BIGINT")]
    batch = next(CSV.batches(opener(data), 0, None, ("order_id", "x"), schema, frozenset(), "fail"))
    assert batch.to_pylist()[0]["order_id"] == 1


@pytest.mark.parametrize(
    ("data", "schema", "column", "offset", "value"),
    [
        (b"a\n1\nx\n", [("a", "BIGINT")], "a", 4, "x"),
        (b"a\n1.5\n1.50\n", [("a", "DECIMAL(18,1)")], "a", 6, "1.50"),
        (b"a\n1\n007\n", [("a", "BIGINT")], "a", 4, "007"),
        (b"a,b\n1,\n2,x\n", [("a", "BIGINT"), ("b", None)], "b", 7, "x"),
        (b"a,b\n1,\n2,x\n", [("a", "BIGINT")], "b", 7, "x"),
    ],
)
def test_a_value_that_does_not_fit_is_named(data: bytes, schema, column: str, offset: int, value: str) -> None:
    with pytest.raises(Misfit) as caught:
        rows_of(CSV, data, schema)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.column, error.offset, error.value) == (column, offset, value)


def test_unknown_columns_are_left_out_only_on_request() -> None:
    format_ = open_format("csv", FormatOptions(ignore_unknown=True))
    assert [row["a"] for row in rows_of(format_, b"a,b\n1,x\n", [("a", "BIGINT")])] == [1]


def test_a_value_that_does_not_fit_its_declared_type_makes_its_row_bad() -> None:
    data = b"a,b,c\n1,x,1.25\n2,y,1.255\nz,y,1\n007,w,+3\n"
    schema = [("a", "INT"), ("b", "STRING"), ("c", "DECIMAL(10,2)")]
    rows = rows_of(CSV, data, [*schema], declared=frozenset({"a", "c"}))
    assert [(row["a"], row["b"], row["c"], row["_velo_reason"], row["_velo_text"]) for row in rows] == [
        (1, "x", Decimal("1.25"), None, None),
        (None, None, None, "'1.255' in column 'c' is not a DECIMAL(10,2)", "2,y,1.255"),
        (None, None, None, "'z' in column 'a' is not an INT", "z,y,1"),
        (7, "w", Decimal("3.00"), None, None),
    ]
    survey = CSV.survey(opener(data), 0, None, {"a": "INT", "c": "DECIMAL(10,2)"})
    assert [row.offset for row in survey.bad_rows] == [row["_velo_at"] for row in rows if row["_velo_reason"]]
    assert survey.records == 4
    with pytest.raises(BadRecord) as caught:
        rows_of(CSV, data, [*schema], declared=frozenset({"a", "c"}), on_bad="fail")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.offset, error.text) == (15, "2,y,1.255")


def test_values_of_bad_rows_do_not_widen_a_type() -> None:
    survey = CSV.survey(opener(b"a,b\n1,1\nx,y\n"), 0, None, {"a": "INT"})
    assert survey.columns["b"].type() == "BIGINT"


def test_many_bad_rows_are_counted_and_some_shown() -> None:
    survey = CSV.survey(opener(b"a,b\n" + b"1\n" * 100), 0, None, {})
    assert (survey.bad_count, len(survey.bad_rows), survey.records) == (100, 20, 100)
    assert [row.line for row in survey.bad_rows] == list(range(20))


@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_a_half_written_header_waits(size: int) -> None:
    data = b"a,b\n1,2\n"[:size]
    assert CSV.body(opener(data), len(data)) == size
    assert rows_of(CSV, data, [("a", "BIGINT")]) == []
    assert CSV.names(opener(data)) == (("a", "b") if size == 4 else ())
