"""Reading a column at once must mean the same as reading it value by value.

If these fail, the type of a user's column, or a number in it, depends on how the input was cut into blocks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velo_dagster.sources.formats import convert, lexical, types
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sources.formats.types import Evidence

NASTY = json.loads((Path(__file__).parents[2] / "fixtures" / "formats" / "nasty_values.json").read_text())
TYPES = [
    *("BIGINT", "INT", "SMALLINT", "DOUBLE", "FLOAT", "BOOLEAN", "STRING", "BINARY"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
    *("DECIMAL(18,2)", "DECIMAL(18,0)", "DECIMAL(18,18)", "DECIMAL(38,2)", "DECIMAL(38,0)", "DECIMAL(10,1)"),
]

numbers = st.from_regex(r"-?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
zone = r"(Z|[+-][0-2][0-9](:?[0-6][0-9])?)?"
clock = r"[T ][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,7})?)?)?"
times = st.from_regex(rf"[0-9]{{4}}-[01][0-9]-[0-3][0-9]({clock}{zone})?", fullmatch=True)
letters = st.text("0123456789.-+eExT:Z \t_aN", max_size=12)
texts = st.one_of(st.sampled_from(NASTY), numbers, times, letters, st.text(max_size=5))
columns = st.one_of(
    st.lists(st.none() | texts, max_size=6),
    st.lists(st.none() | numbers, max_size=6),
    st.lists(st.none() | times, max_size=6),
    st.lists(st.none() | st.from_regex(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{0,4})?", fullmatch=True), max_size=6),
)


def one_by_one(values: list[str | None], type_: pa.DataType, declared: bool) -> tuple[pa.Array, list[bool]]:
    parsed = [None if value is None else lexical.parse(value, type_, declared) for value in values]
    misfits = [value is lexical.DOES_NOT_FIT for value in parsed]
    return pa.array([None if misfit else value for value, misfit in zip(parsed, misfits, strict=True)], type_), misfits


def check(values: list[str | None], type_text: str, declared: bool) -> None:
    type_ = to_arrow(type_text)
    array, misfits = convert.convert(pa.array(values, pa.string()), type_, declared)
    expected, expected_misfits = one_by_one(values, type_, declared)
    array.validate(full=True)
    assert (misfits.tolist() if misfits is not None else [False] * len(values)) == expected_misfits
    assert array.type == type_
    assert array.null_count == expected.null_count
    same = [str(left) == str(right) for left, right in zip(array.to_pylist(), expected.to_pylist(), strict=True)]
    assert all(same), (array, expected)


@pytest.mark.parametrize("type_text", TYPES)
@pytest.mark.parametrize("declared", [False, True])
def test_a_lone_value_converts_as_defined(type_text: str, declared: bool) -> None:
    for value in NASTY:
        check([value], type_text, declared)
        check([None, value, None], type_text, declared)


@settings(max_examples=300, deadline=None)
@given(columns, st.sampled_from(TYPES), st.booleans())
def test_a_column_converts_as_its_values_do(values: list[str | None], type_text: str, declared: bool) -> None:
    check(values, type_text, declared)


@settings(max_examples=300, deadline=None)
@given(columns, st.sampled_from(["decimal", "double"]))
def test_the_evidence_of_a_column_is_that_of_its_values(values: list[str | None], number_format) -> None:
    expected = types.NOTHING
    for value in values:
        expected = expected.join(types.NOTHING if value is None else lexical.observe(value, number_format))
    assert convert.observe(pa.array(values, pa.string()), number_format) == expected
    if any(value is not None for value in values):
        assert convert._observe_at_once(pa.array(values), number_format) in (None, expected)


def test_a_slash_makes_no_number() -> None:
    """A column of numbers and then 1/2 would be taken for numbers, and no load of it could ever end."""
    values = [*map(str, range(1000)), "1/2"]
    assert convert.observe(pa.array(values), "decimal") is types.TEXT


@settings(max_examples=300, deadline=None)
@given(columns, columns, st.sampled_from(["decimal", "double"]))
def test_the_type_of_a_sample_that_fits_all_is_the_type_of_all(some, more, number_format) -> None:
    """The lemma that lets a load read with the types of a sample."""

    def evidence(values: list[str | None]) -> Evidence:
        return convert.observe(pa.array(values, pa.string()), number_format)

    type_text = evidence(some).type()
    of_all = evidence(some).join(evidence(more)).type()
    if type_text is None:
        assert (of_all is None) == all(value is None for value in more)
        return
    _, misfits = convert.convert(pa.array(some + more, pa.string()), to_arrow(type_text))
    assert (misfits is None) == (type_text == of_all)
