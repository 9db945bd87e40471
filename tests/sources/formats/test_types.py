"""The lattice of types. If its laws fail, a table's types depend on how its input was cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from velo_dagster.sources.formats import types
from velo_dagster.sources.formats.ddl import UnreadableType, to_arrow, to_ddl
from velo_dagster.sources.formats.types import Evidence, integer, join_types, number

scalars = st.one_of(
    st.sampled_from([types.NOTHING, types.BOOLEAN, types.ON_DATE, types.AT_TIME, types.TEXT, types.DOUBLE]),
    st.builds(integer, st.integers(0, 45), st.booleans()),
    st.builds(number, st.integers(0, 45), st.integers(0, 45)),
)
evidences = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(types.record, st.dictionaries(st.sampled_from(["a", "A", "b", "c d"]), inner, max_size=3)),
        st.builds(types.array, st.lists(inner, max_size=2)),
    ),
    max_leaves=6,
)


@given(evidences, evidences, evidences)
def test_join_is_a_least_upper_bound(a: Evidence, b: Evidence, c: Evidence) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) == a
    assert a.join(types.NOTHING) == a
    assert a.join(types.TEXT) == types.TEXT or a.kind == "null"


@given(evidences, evidences)
def test_more_evidence_never_narrows_a_type(a: Evidence, b: Evidence) -> None:
    """Once STRING, always STRING; once decided, never undecided."""
    if a.type() is not None:
        assert a.join(b).type() is not None
    if a.type() == "STRING":
        assert a.join(b).type() == "STRING"


@given(evidences)
def test_evidence_survives_json(a: Evidence) -> None:
    assert Evidence.from_json(json.loads(json.dumps(a.to_json()))) == a


@given(evidences)
def test_a_type_text_means_the_same_after_a_round_trip(a: Evidence) -> None:
    text = a.type()
    if text is not None:
        assert to_ddl(to_arrow(text)) == text


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (types.NOTHING, None),
        (integer(19), "BIGINT"),
        (integer(19, wide=True), "DECIMAL(38,0)"),
        (integer(39, wide=True), "STRING"),
        (number(16, 2), "DECIMAL(18,2)"),
        (number(17, 2), "DECIMAL(38,2)"),
        (number(1, 2).join(integer(17)), "DECIMAL(38,2)"),
        (number(20, 19), "STRING"),
        (types.ON_DATE.join(types.AT_TIME), "TIMESTAMP"),
        (types.ON_DATE.join(integer(1)), "STRING"),
        (types.BOOLEAN.join(integer(1)), "STRING"),
        (types.DOUBLE.join(integer(3)), "DOUBLE"),
        (types.DOUBLE.join(integer(39, wide=True)), "STRING"),
        (types.record({}), None),
        (types.array([]), None),
        (types.record({}).join(types.array([])), None),
        (types.record({}).join(types.array([])).join(types.record({"a": integer(1)})), "STRING"),
        (types.record({"a": types.NOTHING, "b": integer(1)}), "STRUCT<b: BIGINT>"),
        (types.record({"a": integer(1), "A": integer(1)}), "STRING"),
        (types.record({"a b": integer(1)}), "STRUCT<`a b`: BIGINT>"),
        (types.array([integer(1), number(1, 1)]), "ARRAY<DECIMAL(18,1)>"),
        (types.record({"a": integer(1)}).join(integer(1)), "STRING"),
    ],
)
def test_the_least_type(evidence: Evidence, expected: str | None) -> None:
    assert evidence.type() == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (None, None, None),
        (None, "INT", "INT"),
        ("INT", "BIGINT", "BIGINT"),
        ("FLOAT", "DOUBLE", "DOUBLE"),
        ("INT", "DOUBLE", "DOUBLE"),
        ("SMALLINT", "FLOAT", "FLOAT"),
        ("INT", "FLOAT", "DOUBLE"),
        ("BIGINT", "DOUBLE", "STRING"),
        ("DECIMAL(10,2)", "DECIMAL(8,4)", "DECIMAL(12,4)"),
        ("BIGINT", "DECIMAL(10,2)", "DECIMAL(21,2)"),
        ("DECIMAL(38,0)", "DECIMAL(38,10)", "STRING"),
        ("DATE", "TIMESTAMP", "TIMESTAMP"),
        ("DATE", "TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("BOOLEAN", "INT", "STRING"),
        ("STRUCT<a: INT>", "STRUCT<a: BIGINT, b: STRING>", "STRUCT<a: BIGINT, b: STRING>"),
        ("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<BIGINT>"),
    ],
)
def test_types_of_typed_files_join(a: str | None, b: str | None, expected: str | None) -> None:
    assert join_types(a, b) == expected
    assert join_types(b, a) == expected


typed = st.sampled_from(
    [
        *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "STRING", "BINARY"),
        *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<INT>", "ARRAY<DOUBLE>"),
        *("DECIMAL(5,2)", "DECIMAL(18,4)", "DECIMAL(38,0)", "DECIMAL(38,37)"),
    ]
)


@given(typed, typed, typed)
def test_the_order_of_typed_files_does_not_matter(a: str, b: str, c: str) -> None:
    assert join_types(join_types(a, b), c) == join_types(a, join_types(b, c))


@pytest.mark.parametrize(
    "text", ["", "FOO", "DECIMAL(39,0)", "DECIMAL(5,6)", "ARRAY<", "STRUCT<a>", "INT INT", "ARRAY<INT>>"]
)
def test_a_type_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(UnreadableType, match="E321"):
        to_arrow(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("varchar(20)", "STRING"),
        ("NUMERIC(10, 2)", "DECIMAL(10,2)"),
        ("decimal", "DECIMAL(10,0)"),
        ("ARRAY(INT)", "ARRAY<INT>"),
        ("MAP(STRING, INT)", "MAP<STRING, INT>"),
        ("STRUCT(a INT, `b``c` STRING)", "STRUCT<a: INT, `b``c`: STRING>"),
    ],
)
def test_spellings_of_the_language_are_read(text: str, expected: str) -> None:
    assert to_ddl(to_arrow(text)) == expected
