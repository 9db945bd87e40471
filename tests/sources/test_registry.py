"""A user who names a kind of source that this version can't read is told so, and what it can read."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from velo_dagster.errors import Span
from velo_dagster.sources import registry
from velo_dagster.sources.contract import BadRow
from velo_dagster.sources.errors import (
    BadRows,
    BrokenFile,
    MissingSource,
    SourceMisconfigured,
    UnsupportedSource,
    category_of,
)
from velo_dagster.sources.files import FileSource
from velo_dagster.sources.registry import factory_of, kind_of, open_source
from velo_dagster.sql.properties import BadProperty
from velo_dagster.sql.variables import resolve, resolve_all


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


WHERE = Span("a.sql", 1, 2)


@dataclass(frozen=True)
class Written:
    """An input as a plan describes it."""

    uri: str | None
    properties: Mapping[str, str]
    source_type: str | None = "file"
    span: Span = WHERE

    @property
    def label(self) -> str:
        return self.uri or "orders"

    def resolve(self, environ: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
        uri = resolve("uri", self.uri, environ) if self.uri else None
        return uri, resolve_all(self.properties, environ)


class TestVariablesAreNotShown:
    """What a user keeps out of the statement must not turn up in logs."""

    def test_in_a_bad_property(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET_DELIM", "hush")
        with pytest.raises(BadProperty) as caught:
            open_source(Written("file://a.csv", {"delimiter": "${SECRET_DELIM}"}), tmp_path, {})
        assert "a.sql:1:2: error E305" in str(caught.value) and "'${SECRET_DELIM}'" in str(caught.value)
        assert "hush" not in "".join(traceback.format_exception(caught.value))

    @pytest.mark.parametrize("value", ["hush", "no"])
    def test_in_a_warning(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("HOW", value)
        source = open_source(Written("file://a.csv", {"file.retry.strategy": "${HOW}"}), tmp_path, {})
        (warning,) = source.warnings
        assert "'retry.strategy' = '${HOW}'" in warning

    @pytest.mark.parametrize("value", ["hush", "a"])
    @pytest.mark.parametrize("written", ["d/${NAME}/a.csv", "d/${NAME}/*.csv", "d/${NAME}-*.csv"])
    def test_in_a_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, value: str) -> None:
        monkeypatch.setenv("NAME", value)
        for planned in (Written(f"file://{written}", {}), Written(None, {"path": written})):
            source = open_source(planned, tmp_path, {})
            with pytest.raises(MissingSource) as caught:
                source.end(None)
            shown = "".join(traceback.format_exception(caught.value)) + source.probe().message
            assert f"'{written}'" in caught.value.what
            assert value not in shown if len(value) > 1 else f"/{value}/" not in shown

    def test_in_notes_and_broken_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NAME", "hush")
        (tmp_path / "hush.csv").write_text("id\n1\n2,")
        (tmp_path / "hush.parquet").write_text("none")
        source = open_source(Written("file://${NAME}.csv", {}), tmp_path, {})
        source.end(None)
        assert source.notes() and all(note.startswith("${NAME}.csv: ") for note in source.notes())
        broken = open_source(Written("file://${NAME}.parquet", {}), tmp_path, {})
        with pytest.raises(BrokenFile, match=r"\$\{NAME\}\.parquet"):
            broken.schema(broken.scan(None, broken.end(None)), ())

    def test_what_has_no_variables_is_said_as_it_is(self, tmp_path: Path) -> None:
        with pytest.raises(MissingSource, match=r"File 'd/a\.csv' does not exist"):
            open_source(Written("file://d/a.csv", {}), tmp_path, {}).end(None)
