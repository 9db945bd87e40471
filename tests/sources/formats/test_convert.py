"""Reading a column at once must mean the same as reading it value by value.

If these fail, the type of a user's column, or a number in it, depends on how the input was cut into blocks.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velo_dagster.sources.formats import convert, lexical, types
from velo_dagster.sources.formats.ddl import to_arrow
from velo_dagster.sources.formats.types import Evidence

NASTY = [
    *("+5", " 42", "42 ", "\t42", "42\n", "007", "-007", "00", "0", "-0", "-", "+", "--5", "5-", "-.5", ".-5", ".", "-."),
    *("1e3", "1E+3", "1e-3", "1.", ".5", "1..2", "1.2.3", "-0.0", "\u22120.0", "0.00", "00.5", "1.50", "1.5", "12.345"),
    *("NaN", "nan", "inf", "-Infinity", "1e400", "1e-400", "1e", "e5", ".e5", "1.e5", "0x1F", "0X1f", "0x.1", "1e99999999999"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1" * 60, "9" * 38),
    *("1" * 16 + ".25", "1" * 17 + ".25", "9" * 18, "0." + "1" * 18, "1." + "1" * 18, "0." + "0" * 40, "1_000", "1,000"),
    *("\u0661\u0662", "\uff11", "1\u00a0", "TRUE", "tRuE", "false", " true", "t", "1", "yes", "", " ", "null"),
    *("2025-1-1", "2025-02-30", "2024-02-29", "2025-06-15", " 2025-06-15", "0000-01-01", "0001-01-01", "9999-12-31"),
    *("2025-06-15T14:30:00Z", "2025-06-15T14:30:00+02:00", "2025-06-15 14:30:00-0230", "2025-06-15T14:30:00+02"),
    *("2025-06-15T14:30", "2025-06-15 14", "2025-06-15T14+02", "2025-06-15T14:30:00.5", "2025-06-15T14:30:00.123456"),
    *("2025-06-15T14:30:00.1234567", "2025-06-15T14:30:00.", "2025-06-15t14:30:00z", "2025-06-15T24:00:00", "24:00"),
    *("2025-06-15T23:59:60", "2025-06-15T14:30:00 +02:00", "2025-06-15T14:30:00+24:00", "2025-06-15T14:30:00+02:60"),
    *("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00", "9999-12-31T23:59:59.999999", "2025-06-15T", "20250615"),
    *("12025-06-15", "+2025-06-15", "2025-06-15T14:30:00.5Z", "2025-06-15 14:30:00.5-01", "2025-06-15T143000"),
]
TYPES = [
    *("BIGINT", "INT", "SMALLINT", "DOUBLE", "FLOAT", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING", "BINARY"),
    *("DECIMAL(18,2)", "DECIMAL(18,0)", "DECIMAL(18,18)", "DECIMAL(38,2)", "DECIMAL(38,0)", "DECIMAL(10,1)"),
]

numbers = st.from_regex(r"-?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
times = st.from_regex(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,7})?)?)?(Z|[+-][0-2][0-9](:?[0-6][0-9])?)?)?",
    fullmatch=True,
)
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


@settings(max_examples=600, deadline=None)
@given(columns, st.sampled_from(TYPES), st.booleans())
def test_a_column_converts_as_its_values_do(values: list[str | None], type_text: str, declared: bool) -> None:
    check(values, type_text, declared)


@settings(max_examples=600, deadline=None)
@given(columns, st.sampled_from(["decimal", "double"]))
def test_the_evidence_of_a_column_is_that_of_its_values(values: list[str | None], number_format) -> None:
    expected = types.NOTHING
    for value in values:
        expected = expected.join(types.NOTHING if value is None else lexical.observe(value, number_format))
    assert convert.observe(pa.array(values, pa.string()), number_format) == expected


@settings(max_examples=600, deadline=None)
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
