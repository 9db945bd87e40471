"""Which class reads a source: by the scheme of its URI or by its type.

Third parties add theirs by an entry point in the group `velo_dagster.sources`: its name is the kind, its value a
callable like `FileSource`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from velo_dagster.errors import Span
from velo_dagster.sources.contract import Source
from velo_dagster.sources.errors import UnsupportedSource
from velo_dagster.sources.veil import Noted, Veil
from velo_dagster.sql.problems import nearest
from velo_dagster.sql.properties import BadProperty

GROUP = "velo_dagster.sources"

_KINDS = {
    "file": "file",
    "file_source": "file",
    "kafka": "kafka",
    "kafka_source": "kafka",
    "postgresql": "database",
    "postgres": "database",
    "mysql": "database",
    "clickhouse": "database",
    "sql": "database",
    "database": "database",
    "database_source": "database",
    "http": "http",
    "https": "http",
    "http_source": "http",
    "s3": "s3",
    "s3a": "s3",
    "s3_source": "s3",
    "memory": "memory",
    "memory_source": "memory",
}


class Planned(Protocol):
    """What a plan says about one source."""

    @property
    def source_type(self) -> str | None: ...
    @property
    def uri(self) -> str | None: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def label(self) -> str: ...
    @property
    def span(self) -> Span: ...

    def resolve(self, environ: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
        """URI and properties with their variables replaced."""
        ...


class SourceFactory(Protocol):
    """How a source is made; `declared` are the types that the statement fixes."""

    def __call__(
        self, uri: str | None, properties: Mapping[str, str], *, root: Path, declared: Mapping[str, str]
    ) -> Source: ...


def kind_of(source_type: str | None, uri: str | None) -> str | None:
    """
    >>> kind_of(None, "postgres://db/orders"), kind_of("file_source", None), kind_of(None, "data/a.csv")
    ('database', 'file', 'file')
    """
    scheme = source_type
    if scheme is None and uri is not None:
        scheme = uri.partition(":")[0] if ":" in uri.partition("/")[0] else "file"
    return None if scheme is None else _KINDS.get(scheme.lower(), scheme.lower())


def open_source(planned: Planned, root: Path, declared: Mapping[str, str]) -> Source:
    """The source that a plan's input describes. Nothing outside is touched."""
    environ = Noted(os.environ)
    uri, properties = planned.resolve(environ)
    factory = factory_of(kind_of(planned.source_type, uri), where=planned.span)
    try:
        source = factory(uri, properties, root=root, declared=declared)
    except BadProperty as error:
        # As the statement writes it, and not chained: the value may be a secret.
        written = planned.properties.get(error.key, error.value)
        raise BadProperty(error.key, written, error.form, where=error.where or planned.span) from None
    source.label = planned.label
    source.warnings = [_as_written(warning, planned.properties, properties) for warning in source.warnings]
    place = (planned.uri, uri) if planned.uri and uri else (planned.properties.get("path"), properties.get("path"))
    veil = Veil(environ.used, place[0] or "", place[1] or "")
    if veil:
        veil.over(source)
    return source


def _as_written(warning: str, written: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """The warning with the texts of the statement where it shows values that came from variables."""
    for key, value in properties.items():
        if written[key] != value:
            warning = warning.replace(f"= '{value}'", f"= '{written[key]}'")
    return warning


def factory_of(kind: str | None, *, where: Span | str | None = None) -> SourceFactory:
    """The class for this kind, ours or a third party's, or an error that says what there is."""
    if kind == "file":
        from velo_dagster.sources.files import FileSource

        return FileSource
    for point in entry_points(group=GROUP):
        if point.name == kind:
            return point.load()
    raise _unsupported(kind, where)


def _unsupported(kind: str | None, where: Span | str | None) -> UnsupportedSource:
    known = ["file", *sorted(point.name for point in entry_points(group=GROUP))]
    if kind in _KINDS.values():
        what = f"Sources of kind '{kind}' are not supported yet."
        step = f"This version reads: {', '.join(known)}."
    else:
        near = nearest(str(kind), [*known, *_KINDS])
        hint = f" Did you mean '{near[0]}'?" if near else ""
        what = f"'{kind}' is not a kind of source.{hint}"
        step = f"This version reads: {', '.join(known)}; packages add kinds by the entry point group '{GROUP}'."
    return UnsupportedSource(what, where=where, steps=[step])
