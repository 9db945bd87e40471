"""A user who names a kind of source that this version can't read is told so, and what it can read."""

from __future__ import annotations

import errno
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from velo_dagster.sources import registry
from velo_dagster.sources.contract import BadRow
from velo_dagster.sources.errors import BadRows, SourceMisconfigured, UnsupportedSource, category_of
from velo_dagster.sources.files import FileSource
from velo_dagster.sources.registry import factory_of, kind_of


def test_kinds() -> None:
    assert [kind_of(None, uri) for uri in ("file:///a.csv", "kafka://b/t", "mysql://h/d?table=t", "s3://b/k")] == [
        "file",
        "kafka",
        "database",
        "s3",
    ]
    assert kind_of("kafka_source", None) == "kafka" and factory_of("file") is FileSource


@pytest.mark.parametrize(
    ("kind", "words"),
    [("kafka", "not supported yet"), ("database", "not supported yet"), ("fil", "Did you mean 'file'"), ("ftp", "ftp")],
)
def test_other_kinds_are_refused(kind: str, words: str) -> None:
    with pytest.raises(UnsupportedSource) as caught:
        factory_of(kind, where="a.sql:1:2")
    text = str(caught.value)
    assert text.startswith("a.sql:1:2: error E306 ") and words in text and "This version reads: file" in text


def test_third_parties_add_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("parchment", "velo_dagster.sources.files:FileSource", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert factory_of("parchment") is FileSource


def test_a_source_needs_a_path() -> None:
    with pytest.raises(SourceMisconfigured, match="needs a path"):
        FileSource(None, {}, root=Path(), declared={})


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), "missing"),
        (NotADirectoryError(errno.ENOTDIR, "x"), "missing"),
        (PermissionError(errno.EACCES, "x"), "auth"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "network"),
        (OSError(errno.ESTALE, "x"), "network"),
        (TimeoutError(), "network"),
        (IsADirectoryError(errno.EISDIR, "x"), "config"),
        (OSError(errno.EIO, "No such file or directory"), "unknown"),
    ],
)
def test_categories_come_from_numbers_not_from_words(error: OSError, category: str) -> None:
    assert category_of(error) == category


def test_bad_rows_are_named_and_counted() -> None:
    text = str(BadRows("orders", [BadRow("/d/a.csv:3", "2 fields instead of 3", "1,x")], 5))
    assert text.startswith("/d/a.csv:3: error E310 orders: 5 rows can't be read.")
    assert "1,x" in text and "and 4 more" in text and "SendToDLQ" in text
