"""Files with known rows. `data` is text whose characters are bytes (latin-1); decimals and times stand as text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.sources.formats.reading import opener, rows_of, schema_of
from velo_dagster.sources.formats import FileFormat, FormatOptions, open_format

FIXTURES = Path(__file__).parents[2] / "fixtures" / "formats"


def cases(file: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in json.loads((FIXTURES / file).read_text())]


def plain(value: Any) -> Any:
    if isinstance(value, Decimal | date | datetime):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def check(format_: FileFormat, data: bytes, case: dict[str, Any]) -> None:
    survey = format_.survey(opener(data), 0, len(data), {})
    types = {name: type_ for name, type_ in schema_of(survey) if survey.records > survey.bad_count}
    assert types == case["types"]
    bad = case.get("bad", [])
    assert [[row.offset, row.line, row.reason, row.text] for row in survey.bad_rows] == bad
    assert (survey.bad_count, survey.records) == (len(bad), len(bad) + len(case["rows"]))
    rows = rows_of(format_, data, list(types.items()))
    good = [row for row in rows if row["_velo_reason"] is None]
    assert [[plain(row[name]) for name in types] for row in good] == case["rows"]
    names = ("_velo_at", "_velo_reason", "_velo_text")
    marked = [[row[name] for name in names] for row in rows if row["_velo_reason"] is not None]
    assert marked == [[offset, reason, text] for offset, _, reason, text in bad]


@pytest.mark.parametrize("block", [1 << 20, 5])
@pytest.mark.parametrize("case", cases("csv_cases.json"))
def test_csv(case: dict[str, Any], block: int) -> None:
    options = FormatOptions(block=block, **case.get("options", {}))
    check(open_format("csv", options), case["data"].encode("latin-1"), case)


@pytest.mark.parametrize("block", [1 << 20, 5])
@pytest.mark.parametrize("case", cases("json_cases.json"))
def test_json_lines(case: dict[str, Any], block: int) -> None:
    data = case["data"].encode("latin-1")
    check(open_format("jsonl", FormatOptions(block=block, **case.get("options", {}))), data, case)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "shift_jis"])
def test_other_encodings(encoding: str) -> None:
    data = "a,b\n\u65e5\u672c,1\n\u8868,2\n".encode(encoding)
    format_ = open_format("csv", FormatOptions(encoding=encoding))
    assert not format_.appendable
    rows = rows_of(format_, data, [("a", "STRING"), ("b", "BIGINT")])
    assert [(row["a"], row["b"]) for row in rows] == [("\u65e5\u672c", 1), ("\u8868", 2)]


def test_samples_and_surveys_agree() -> None:
    for file, name in (("csv_cases.json", "csv"), ("json_cases.json", "jsonl")):
        for case in json.loads((FIXTURES / file).read_text()):
            data = case["data"].encode("latin-1")
            format_ = open_format(name, replace(FormatOptions(), **case.get("options", {})))
            survey = format_.survey(opener(data), 0, None, {})
            assert format_.sample(opener(data), 0, None, {}).columns == survey.columns
