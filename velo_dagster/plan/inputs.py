"""What a relation of a statement is: another table, or a source with its type, place and properties."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Literal

from velo_dagster.errors import Span
from velo_dagster.sql import uris
from velo_dagster.sql.functions import words
from velo_dagster.sql.names import KIND_COLUMNS
from velo_dagster.sql.statements import InputRef
from velo_dagster.sql.variables import MissingVariable, has_variables, resolve, resolve_all

SCHEMES = {
    "file": "file",
    "kafka": "kafka",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "clickhouse": "clickhouse",
    "sql": "database",
    "http": "http",
    "https": "http",
    "s3": "s3",
    "s3a": "s3",
    "memory": "memory",
}
SOURCE_TYPES = {
    "kafka_source": "kafka",
    "file_source": "file",
    "s3_source": "s3",
    "database_source": "database",
    "http_source": "http",
}
ADDED_KINDS = "velo_dagster.sources"
"""The entry point group by which packages add kinds of sources."""
SINK_TYPES = ("kafka_sink", "file_sink", "database_sink", "s3_sink")
TABLE_PROPERTIES = words(
    """
    primary.key join.time missing.reference missing.reference.defaults retention compression table_model extension
    max_size ttl
    """
)
REFERENCE_KEYS = ("missing.reference", "missing.reference.defaults")
"""Properties of the table that may also be given for one table that it reads."""
_KAFKA_ONLY = ("auto.offset.reset", "bootstrap.servers", "starting.timestamp")
_KAFKA_PREFIXES = ("topic.", "kafka.")


@dataclass(frozen=True)
class PlannedInput:
    """An input of a table. `uri` and `properties` are as written; `resolve` gives what a load uses.

    A relative path of a file counts from the project's root folder. `fingerprint`: what its rows depend on. A table has
    properties only as a reference (`plan.references`).
    """

    name: str
    kind: Literal["source", "table"]
    table: str | None
    source_type: str | None
    uri: str | None
    properties: Mapping[str, str] = field(repr=False)
    label: str
    span: Span
    system_columns: tuple[str, ...]
    fingerprint: str

    def resolve(self, environ: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
        """URI and properties with their variables replaced. Never store or show the result."""
        uri = resolve("uri", self.uri, environ, self.span) if self.uri else None
        properties = resolve_all(self.properties, environ, self.span)
        return uri, properties


_OPERATIONAL = words(
    """
    wait.timeout retry. loading. poll.interval batch.size fetch.size prefetch.count parallel.readers timeout pool.
    username password access.key secret.key security. sasl. ssl kafka. auth. bootstrap.servers topic.create
    topic.partitions topic.replication file.create file.verify watch compression table_model extension max_size ttl
    config_file
    """
)
"""Parts of keys that say how a source is reached or how fast, not what its rows are."""


def row_properties(properties: Mapping[str, str]) -> list[str]:
    """The properties on which rows depend, in one order, as text."""
    return [f"{k}={v}" for k, v in sorted(properties.items()) if not any(part in k for part in _OPERATIONAL)]


def fingerprint(parts: Iterable[str]) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:16]


def added_kinds() -> list[str]:
    """The kinds of sources that installed packages add."""
    return sorted(point.name for point in entry_points(group=ADDED_KINDS))


def is_kafka_property(key: str) -> bool:
    return key in _KAFKA_ONLY or key.startswith(_KAFKA_PREFIXES)


def prefixes(properties: Iterable[tuple[str, str]]) -> set[str]:
    """The names that properties describe by `'name.type'`."""
    known = (*SOURCE_TYPES, *SINK_TYPES)
    return {key.removesuffix(".type") for key, value in properties if key.endswith(".type") and value in known}


def names_reference(key: str, name: str) -> str | None:
    """The property that `'name.missing.reference'` gives for the input `name`; None if the key is not of this form.

    >>> names_reference("users.missing.reference", "Users"), names_reference("missing.reference", "users")
    ('missing.reference', None)
    """
    owner, plain = next(((key[: -len(one) - 1], one) for one in REFERENCE_KEYS if key.endswith(f".{one}")), ("", None))
    return plain if owner.casefold() == name.casefold() else None


def _of_references(key: str) -> bool:
    return any(key == one or key.endswith(f".{one}") for one in REFERENCE_KEYS)


def own_properties(ref: InputRef, closing: Mapping[str, str]) -> dict[str, str]:
    """What a statement says about one input: its closing WITH, then the relation's; `'x.key'` loses its prefix."""
    merged: dict[str, str] = {}
    for level in (closing, ref.properties):
        named = prefixes(level.items())
        own: dict[str, str] = {}
        for key, value in level.items():
            owner = next((name for name in named if key.startswith(f"{name}.")), None)
            if owner is None and key not in TABLE_PROPERTIES and not _of_references(key):
                merged[key] = value
            elif owner is not None and owner.casefold() == ref.name.casefold():
                own[key.removeprefix(f"{owner}.")] = value
        merged |= own
    return merged


def describe(
    ref: InputRef,
    closing: Mapping[str, str],
    named_sources: Mapping[str, Mapping[str, str]],
    defaults: Mapping[str, Mapping[str, str]],
    system_columns: tuple[str, ...],
    config: Mapping[str, str],
    environ: Mapping[str, str] = os.environ,
) -> PlannedInput | None:
    """The source that a relation names, or None if nothing describes it. `config`: what its config_file says.

    `environ` decides the kind of a source whose URI begins with a variable; where that is not set, the load does.
    """
    own = {**config, **own_properties(ref, closing)}
    listed = next((named_sources[name] for name in named_sources if name.casefold() == ref.name.casefold()), None)
    given = {**(listed or {}), **own} if ref.uri is None else own
    uri = ref.uri or given.pop("uri", None)
    kind = SOURCE_TYPES.get(given.pop("type", ""))
    if uri is not None:
        kind = _kind_of(uri, environ)
    elif kind is None and any(is_kafka_property(key) for key in own):
        kind, uri = "kafka", f"kafka://{ref.name}"
    elif kind is None:
        return None
    properties = {**defaults.get(kind or "", {}), **given}
    properties.pop("config_file", None)
    label = uris.label(uri) if uri else ref.name
    has = KIND_COLUMNS.get(kind or "", system_columns)
    system_columns = tuple(name for name in system_columns if name in has)
    print_ = fingerprint([kind or "", uri or ref.name, *row_properties(properties)])
    return PlannedInput(ref.name, "source", None, kind, uri, properties, label, ref.span, system_columns, print_)


def _kind_of(uri: str, environ: Mapping[str, str]) -> str | None:
    """The kind of source that a URI's scheme means; None where that is in a variable that is not set.

    >>> _kind_of("${FROM:-file://data/a.csv}", {}), _kind_of("${FROM}", {}), _kind_of("${FROM}", {"FROM": "a.csv"})
    ('file', None, 'file')
    """
    if uri.startswith("${"):
        try:
            uri = resolve("uri", uri, environ)
        except MissingVariable:
            return None
        if ":" not in uri.partition("/")[0]:
            return "file"
    return SCHEMES.get(uris.scheme(uri), uris.scheme(uri))


def resolved_fingerprint(planned: PlannedInput, environ: Mapping[str, str]) -> str:
    """The fingerprint with what variables stand for, so that another value is another source; hashed, never shown."""
    if not any(has_variables(text) for text in (planned.uri or "", *planned.properties.values())):
        return planned.fingerprint
    uri, properties = planned.resolve(environ)
    return fingerprint([planned.fingerprint, uris.label(uri or ""), *row_properties(properties)])
