"""Reading JSON at once must mean the same as reading it value by value.

If these fail, a number, a text or a missing field depends on which of the two ways a block happened to take.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sources.formats.reading import opener, rows_of, schema_of
from velo_dagster.sources.formats import BrokenFile, FormatOptions, Misfit, open_format
from velo_dagster.sources.formats import json as json_format
from velo_dagster.sources.formats.base import BadRecord
from velo_dagster.sources.formats.json_array import JsonArrayFormat, _Walk

numbers = st.one_of(
    st.integers(-5, 5).map(str),
    st.sampled_from(
        ["1.5", "1.50", "1.500", "0.10", "1e2", "1E-2", "150e-2", "-0", "-0.0", "NaN", "Infinity", "1e400"]
    ),
    st.sampled_from(["9223372036854775808", "1" * 18, "1" * 40, "007", "1.", "+1", "12345678901234567.5", "1e400"]),
)
texts = st.one_of(
    st.sampled_from(['"2025-01-01"', '"2025-02-30"', '"2025-01-01T10:00:00Z"', '"x"', '"1.5"', '"\\ud800"']),
    st.sampled_from(['"\\ud83d\\ude00"', '"2025-01-01 10:00"', '"true"']),
    st.sampled_from(['"\\u0000"', '"a\tb"', '"a\\"b"', '"\\\\"', '"}"', '"{"', '":1.555"', '"\xe9"', '""']),
)
plain = st.one_of(numbers, texts, st.sampled_from(["true", "false", "null"]))


def _objects(values: Any) -> Any:
    pair = st.tuples(st.sampled_from(['"a"', '"b"', '"c"', '"\\u0061"', '"d.e"']), values).map(" : ".join)
    return st.lists(pair, max_size=3).map(lambda pairs: "{" + ", ".join(pairs) + "}")


def _arrays(values: Any) -> Any:
    return st.lists(values, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")


values = st.recursive(plain, lambda inner: st.one_of(_objects(inner), _arrays(inner)), max_leaves=5)
lines = st.one_of(
    _objects(values),
    _objects(st.sampled_from(["1.5", "2.25", "1", "null"])),
    _objects(st.one_of(numbers, st.just('"2025-01-01"'))),
    _objects(_objects(numbers)),
    st.sampled_from(["null", "", " ", "[1]", "5", "1}", "{}", '{"a":1} ', '{"a":', '{"a":1}{"a":2}', '{"a":1,}']),
)
files = st.lists(lines, max_size=5).map(lambda rows: "".join(row + "\n" for row in rows).encode("latin-1", "replace"))


def everything(data: bytes, **options: Any) -> tuple[Any, ...]:
    """What a file gives: types, bad rows, and the rows under those types."""
    format_ = open_format("jsonl", FormatOptions(**options))
    survey = format_.survey(opener(data), 0, len(data), {})
    rows = rows_of(format_, data, schema_of(survey))
    return schema_of(survey), survey.bad_rows, survey.records, repr(rows)


@pytest.mark.parametrize("number_format", ["decimal", "double"])
@settings(max_examples=400, deadline=None)
@given(files)
@example(b'{"a":1.5}\n{"a":1.50}\n')
@example(b'{"a":1.5}\n{"a":"1.5"}\n')
@example(b'{"a":1.5}\n{"\\u0061":1.50}\n')
@example(b'{"a":[1.5]}\n{"a":[1.50]}\n')
@example(b'{"a":[1.5]}\n{"a":["1.5"]}\n')
@example(b'{"a":{"b":1}}\n{"a":{"b":1,"c":null}}\n{"a":{"c":{}}}\n')
@example(b'{"a":1.5}\n{"a":1e400}\n{"a":NaN}\n')
def test_both_ways_agree(number_format: Any, data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_format, "_FEW", 1)
        patch.setattr(json_format, "_GUESS", 1)
        quick = everything(data, number_format=number_format)
        patch.setattr(json_format.ColumnReader, "read", lambda *_: None)
        slow = everything(data, number_format=number_format)
    assert quick == slow


@settings(max_examples=300, deadline=None)
@given(files, files, st.sampled_from(["decimal", "double"]))
def test_the_type_of_a_sample_that_fits_all_is_the_type_of_all(some: bytes, more: bytes, number_format: Any) -> None:
    """The lemma that lets a load read with the types of a sample; a column that it lacks is found by reading, too."""
    format_ = open_format("jsonl", FormatOptions(number_format=number_format))
    schema = schema_of(format_.survey(opener(some), 0, None, {}))
    of_all = schema_of(format_.survey(opener(some + more), 0, None, {}))
    new = {name: type_ for name, type_ in of_all if name not in dict(schema)}
    same = all(type_ == dict(of_all)[name] for name, type_ in schema) and not new
    try:
        rows_of(format_, some + more, schema)
        fits = True
    except Misfit:
        fits = False
    assert fits == same


@pytest.mark.parametrize("depth", [150, 250, 5000, 200_000])
def test_deep_nesting_ends_a_record_not_the_process(depth: int) -> None:
    deep = b'{"a":1,"b":' + b"[" * depth + b"]" * depth + b"}\n"
    rows = rows_of(open_format("jsonl", FormatOptions()), b'{"a":1}\n' * 300 + deep, [("a", "BIGINT"), ("b", None)])
    assert len(rows) == 301
    assert rows[-1]["_velo_reason"] == (None if depth == 150 else "nested more than 200 levels deep")


def test_a_new_field_is_a_misfit_unless_told_to_ignore() -> None:
    data = b'{"a":1,"n":null}\n{"a":2,"b":{"x":1}}\n'
    with pytest.raises(Misfit) as caught:
        rows_of(open_format("jsonl", FormatOptions()), data, [("a", "BIGINT")])
    assert (caught.value.column, caught.value.offset, caught.value.value) == ("n", 0, "null"), (
        "NULLs make a column, too"
    )
    with pytest.raises(Misfit) as caught:
        rows_of(open_format("jsonl", FormatOptions()), data, [("a", "BIGINT"), ("n", None)])
    assert (caught.value.column, caught.value.offset, caught.value.value) == ("b", 17, '{"x":1}')
    rows = rows_of(open_format("jsonl", FormatOptions(ignore_unknown=True)), data, [("a", "BIGINT")])
    assert [row["a"] for row in rows] == [1, 2]


def test_a_passed_over_field_does_not_make_a_bad_record_good() -> None:
    data = b'{"a":1,"b":NaN}\n'
    rows = rows_of(open_format("jsonl", FormatOptions(ignore_unknown=True)), data, [("a", "BIGINT")])
    assert rows[0]["_velo_reason"] == "NaN is not JSON"


def test_a_value_that_does_not_fit_its_declared_type_makes_its_row_bad() -> None:
    data = b'{"a":1,"b":1}\n{"a":"x","b":2}\n{"a":"3","b":3}\n'
    format_ = open_format("jsonl", FormatOptions())
    rows = rows_of(format_, data, [("a", "INT"), ("b", "BIGINT")], declared=frozenset({"a"}))
    assert [(row["a"], row["b"], row["_velo_reason"]) for row in rows] == [
        (1, 1, None),
        (None, None, "'x' in column 'a' is not an INT"),
        (3, 3, None),
    ]
    assert format_.survey(opener(data), 0, None, {"a": "INT"}).bad_count == 1
    with pytest.raises(BadRecord) as caught:
        rows_of(format_, data, [("a", "INT"), ("b", "BIGINT")], declared=frozenset({"a"}), on_bad="fail")
    assert (caught.value.offset, caught.value.text) == (14, '{"a":"x","b":2}')


def test_declared_maps_and_binaries_are_read() -> None:
    data = b'{"m":{"x":1,"y":null},"b":"ab"}\n'
    schema: list[tuple[str, str | None]] = [("m", "MAP<STRING, INT>"), ("b", "BINARY")]
    rows = rows_of(open_format("jsonl", FormatOptions()), data, schema, declared=frozenset({"m", "b"}))
    assert rows[0]["m"] == [("x", 1), ("y", None)]
    assert rows[0]["b"] == b"ab"


elements = st.recursive(
    st.one_of(st.integers(0, 9), st.text('a"\\,[]{}\n\xe9', max_size=5), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=5,
)
records = st.lists(st.dictionaries(st.sampled_from("abc"), elements, max_size=3), max_size=4)


@settings(max_examples=200, deadline=None)
@given(records, st.sampled_from([None, 2]), st.booleans(), st.integers(1, 9))
def test_an_array_gives_the_rows_of_its_lines(rows: list[Any], indent: int | None, escape: bool, chunk: int) -> None:
    data = json.dumps(rows, indent=indent, ensure_ascii=escape).encode()
    walk = _Walk()
    lines_ = b"".join(walk.step(data[at : at + chunk]) for at in range(0, len(data), chunk))
    walk.end()
    assert len(lines_) == len(data)
    assert [json.loads(line) for line in lines_.split(b"\n") if line.strip()] == rows


def test_elements_keep_their_place_in_the_file() -> None:
    data = b'\xef\xbb\xbf[\n  {"a": 1},\n  {"a": 2}\n]\n'
    format_ = JsonArrayFormat(FormatOptions())
    rows = rows_of(format_, data, [("a", "BIGINT")])
    assert [(row["a"], row["_velo_at"]) for row in rows] == [(1, data.index(b'{"a": 1')), (2, data.index(b'{"a": 2'))]
    offset, count = format_.limit(opener(data), 0, None, 1)
    assert count == 1
    assert [row["a"] for row in rows_of(format_, data, [("a", "BIGINT")], start=offset)] == [2]


@pytest.mark.parametrize("data", [b'[{"a":1},,{"a":2}]', b'[,{"a":2}]', b'[{"a":2},]', b'[{"a":2}] x', b'[{"a":2}, 5]'])
def test_a_flaw_in_an_array_is_a_bad_row(data: bytes) -> None:
    rows = rows_of(JsonArrayFormat(FormatOptions()), data, [("a", "BIGINT")])
    assert sum(row["_velo_reason"] is not None for row in rows) == 1


@pytest.mark.parametrize("data", [b'[{"a":1}', b'[{"a":1},', b'[{"a":"x', b"["])
def test_an_array_that_is_not_closed_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenFile, match="not closed"):
        rows_of(JsonArrayFormat(FormatOptions()), data, [("a", "BIGINT")])


def test_an_empty_array_has_no_rows() -> None:
    assert rows_of(JsonArrayFormat(FormatOptions()), b" [ ]\n", [("a", "BIGINT")]) == []


def test_one_odd_line_does_not_slow_down_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many lines only a few are read value by value."""
    data = b"".join(b'{"a":%d}\n' % number for number in range(5000)) + b'{"a":1.5}\nnull\n'
    slow: list[int] = []
    real = json_format.JsonLinesFormat._read_each
    monkeypatch.setattr(
        json_format.JsonLinesFormat, "_read_each", lambda *args: (slow.append(args[3] - args[2]), real(*args))[1]
    )
    rows = rows_of(open_format("jsonl", FormatOptions()), data, [("a", "DECIMAL(18,1)")])
    assert len(rows) == 5002
    assert sum(slow) <= 128


def test_streams_may_give_bytes_in_small_pieces() -> None:
    class Drip(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size, 3) if size is not None and size > 0 else 3)

    data = b'{"a":1}\n{"a":2}\n'
    batches = open_format("jsonl", FormatOptions()).batches(
        lambda: Drip(data), 0, len(data), None, [("a", "BIGINT")], frozenset(), "fail"
    )
    assert np.concatenate([batch["a"].to_numpy() for batch in batches]).tolist() == [1, 2]
