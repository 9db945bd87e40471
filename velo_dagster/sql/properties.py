"""Every property of sources and tables as data, and the way from a user's texts to typed values.

An unknown key is a warning that names the nearest known one; a value of the wrong form is an error, except for the few
properties whose `fallback` the language names. Values of secret keys are never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from velo_dagster.errors import Span, Terminal, VeloError
from velo_dagster.sql.forms import (
    BOOLEAN,
    CHARACTER,
    COUNT,
    DURATION,
    ENCODING,
    MULTIPLIER,
    ONE_OF,
    POSITIVE,
    QUOTE,
    STRATEGY,
    TEXT,
    TIME_FORMAT,
    VALUES_BY_NAME,
    Form,
    choice,
)
from velo_dagster.sql.problems import nearest

SOURCES = ("file", "kafka", "database", "http", "s3", "memory")
FILES = ("file", "s3")
MASK = "***"

_SECRET_WORDS = ("password", "secret", "token", "credential", "access.key", "jaas", "private.key", "passphrase")
_SECRET_FAMILIES = ("auth.", "headers.")


class BadProperty(Terminal, VeloError):
    """A property's value has the wrong form."""

    code = "E305"

    def __init__(self, key: str, value: str, form: str, *, where: Span | str | None = None) -> None:
        self.key, self.value, self.form = key, value, form
        names = form.removeprefix(ONE_OF).split(", ") if form.startswith(ONE_OF) else []
        near = nearest(value, names)
        super().__init__(
            f"Property '{key}' = '{value}' is not {form}.",
            where=where,
            steps=[f"Did you mean {near[0]}?" if near else f"Write {form}."],
        )


@dataclass(frozen=True)
class Property:
    """One row of the language's table of properties. A key that ends in `.*` stands for a family of keys."""

    key: str
    kinds: tuple[str, ...]
    form: Form = TEXT
    default: Any = None
    aliases: tuple[str, ...] = ()
    fallback: Any = None
    as_written: bool = False
    """The value stays a text: whoever uses it also knows other places where it may stand, and tells a wrong one."""


def _waiting(key: str, form: Form, default: Any = None, **more: Any) -> Property:
    return Property(key, SOURCES, form, default, aliases=(f"topic.{key}", f"file.{key}"), **more)


_FILE_FORMAT = choice(
    "csv",
    "csv_no_header",
    "json",
    "jsonl",
    "parquet",
    "avro",
    "orc",
    "text",
    also={"jsonlines": "jsonl", "ndjson": "jsonl"},
)

ALL: tuple[Property, ...] = (
    # any source
    _waiting("wait.timeout", DURATION, Decimal(0)),
    _waiting("retry.interval", DURATION),
    _waiting("retry.strategy", STRATEGY, fallback="fixed", as_written=True),
    _waiting("retry.multiplier", MULTIPLIER, fallback="1.5", as_written=True),
    _waiting("retry.increment", DURATION),
    _waiting("retry.max.delay", DURATION),
    Property(
        "failure_strategy",
        SOURCES,
        choice("FailBatch", "SendToDLQ", "LogAndContinue", "RetryWithBackoff"),
        "FailBatch",
    ),
    Property("schema.evolution", SOURCES, choice("evolve", "strict", "ignore"), "evolve"),
    Property("loading.bulk.max_records", SOURCES, POSITIVE),
    Property("loading.incremental.max_records", SOURCES, POSITIVE),
    Property("loading.bulk.max_duration", SOURCES, DURATION),
    Property("event.time.field", SOURCES),
    Property("event.time.format", SOURCES, TIME_FORMAT),
    Property("watermark.max_out_of_orderness", SOURCES, DURATION, Decimal(0)),
    Property("late.data.strategy", SOURCES, choice("include", "drop", "reject"), "include"),
    Property("type", SOURCES),
    Property("config_file", SOURCES),
    # kafka
    Property("bootstrap.servers", ("kafka",), default="localhost:9092"),
    Property("topic", ("kafka",)),
    Property("auto.offset.reset", ("kafka",), choice("earliest", "latest"), "earliest", fallback="earliest"),
    Property("topic.create.if.missing", ("kafka",), BOOLEAN, False),
    Property("topic.partitions", ("kafka",), POSITIVE),
    Property("topic.replication", ("kafka",), POSITIVE),
    Property("format", ("kafka",), choice("json", "csv", "string", "bytes", "avro", "protobuf", "debezium"), "json"),
    Property("schema.registry.url", ("kafka",)),
    Property("starting.timestamp", ("kafka",)),
    Property("isolation.level", ("kafka",), choice("read_committed", "read_uncommitted"), "read_committed"),
    *(Property(family, ("kafka",)) for family in ("kafka.*", "security.*", "sasl.*", "ssl.*")),
    # file; s3 has the same
    Property("path", FILES),
    Property("format", FILES, _FILE_FORMAT),
    Property("delimiter", FILES, CHARACTER, ","),
    Property("quote", FILES, QUOTE, '"'),
    Property("header", FILES, BOOLEAN, True, aliases=("has_headers",)),
    Property("skip_lines", FILES, COUNT, 0),
    Property("max_records", FILES, POSITIVE),
    Property("encoding", FILES, ENCODING, "utf-8"),
    Property("null.value", FILES, TEXT, ""),
    Property("watch", FILES, BOOLEAN, True),
    Property("file.create.empty", FILES, BOOLEAN, False),
    Property("file.deleted", FILES, choice("keep", "remove"), "keep"),
    Property("file.verify", FILES, choice("ends", "full"), "ends"),
    Property("number.format", FILES, choice("decimal", "double"), "decimal"),
    # database
    *(Property(key, ("database",)) for key in ("table", "query", "schema", "where", "order.by", "query.params")),
    *(Property(key, ("database",)) for key in ("driver", "host", "database", "username", "password", "ssl.mode")),
    *(Property(key, ("database",), POSITIVE) for key in ("limit", "port", "pool.size", "batch.size", "fetch.size")),
    *(Property(key, ("database",), DURATION) for key in ("connect.timeout", "socket.timeout", "query.timeout")),
    Property("pool.max.idle", ("database",), COUNT),
    Property("pool.validation.query", ("database",)),
    Property("prefetch.count", ("database",), COUNT),
    Property("parallel.readers", ("database",), POSITIVE),
    Property("transaction.isolation", ("database",)),
    Property("poll.interval", ("database", "http"), DURATION),
    Property("incremental.column", ("database",)),
    Property("incremental.lag", ("database",), DURATION),
    Property("poll.query", ("database",)),
    Property("cdc", ("database",), BOOLEAN, False),
    Property("cdc.format", ("database",), choice("native", "debezium"), "native"),
    Property("cdc.start", ("database",), choice("latest", "earliest"), "latest"),
    Property("initial.load", ("database",), choice("full", "none"), "full"),
    *(Property(key, ("database",)) for key in ("slot.name", "publication.name", "binlog.file")),
    Property("binlog.position", ("database",), default="auto"),
    # http
    Property("method", ("http",), choice("GET", "POST", "PUT"), "GET"),
    Property("records.path", ("http",)),
    *(Property(family, ("http",)) for family in ("headers.*", "auth.*", "paging.*")),
    # s3
    *(Property(key, ("s3",)) for key in ("endpoint", "region", "access.key", "secret.key")),
    Property("path.style", ("s3",), BOOLEAN, False),
    # table
    Property("primary.key", ("table",)),
    Property("join.time", ("table",), choice("current", "load"), "current"),
    Property("missing.reference", ("table",), choice("wait", "fail", "skip", "null", "default"), "wait"),
    Property("missing.reference.defaults", ("table",), VALUES_BY_NAME),
    Property("retention", ("table",), DURATION),
    Property("compression", ("table",), choice("snappy", "gzip", "zstd", "lz4")),
    Property(
        "table_model",
        ("table",),
        choice("normal", "compact", also={"standard": "normal"}),
        "normal",
        fallback="normal",
    ),
    Property(
        "extension",
        ("table",),
        choice("delta", "cache", "postgresql", "mysql", "mongodb", "redis", "jdbc"),
        "delta",
    ),
    Property("max_size", ("table",), POSITIVE),
    Property("ttl", ("table",), DURATION),
)


@dataclass(frozen=True)
class Resolved:
    """Typed values by key, defaults included, and what to warn about."""

    kind: str
    values: Mapping[str, Any] = field(repr=False)
    warnings: tuple[str, ...]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def __repr__(self) -> str:
        shown = {key: value for key, value in sorted(masked(self.values).items()) if value is not None}
        return f"Resolved({self.kind}, {shown}, warnings={self.warnings})"


def resolve(kind: str, raw: Mapping[str, str], *, where: Span | str | None = None) -> Resolved:
    """The typed properties of a source or table of this kind, and warnings.

    A key that belongs to another kind is passed over: a statement's closing WITH speaks to all of its inputs.
    """
    mine = {prop.key: prop for prop in ALL if kind in prop.kinds}
    values: dict[str, Any] = {key: prop.default for key, prop in mine.items() if not key.endswith(".*")}
    warnings: list[str] = []
    given_as: dict[str, str] = {}
    for key, text in sorted(raw.items(), key=lambda item: _precedence(kind, item[0])):
        prop = _find(mine, key)
        if prop is None:
            warnings += _unknown(key)
            continue
        name = key if prop.key.endswith(".*") else prop.key
        if name in given_as and raw[given_as[name]] != text:
            warnings.append(f"'{given_as[name]}' and '{key}' are the same property; '{key}' is used.")
        values[name] = _value(prop, key, text, warnings, where)
        given_as[name] = key
    return Resolved(kind, values, tuple(warnings))


def property_kind(source_type: str | None) -> str:
    """Which properties a source of this type has: all databases have the same."""
    databases = {"postgres", "postgresql", "mysql", "clickhouse", "database", "sql"}
    return "database" if source_type in databases else source_type or ""


def masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """
    >>> masked({"username": "ann", "password": "pw", "headers.Authorization": "Bearer x"})
    {'username': 'ann', 'password': '***', 'headers.Authorization': '***'}
    """
    return {key: MASK if is_secret(key) and value is not None else value for key, value in values.items()}


def is_secret(key: str) -> bool:
    lowered = key.lower()
    return any(word in lowered for word in _SECRET_WORDS) or lowered.startswith(_SECRET_FAMILIES)


def _precedence(kind: str, key: str) -> tuple[int, str]:
    # Later wins: the plain spelling over another kind's, this kind's own over the plain one.
    own = {"file": "file.", "s3": "file.", "kafka": "topic."}.get(kind)
    if own and key.startswith(own):
        return 2, key
    return (0 if key.startswith(("file.", "topic.")) else 1), key


def _find(properties: Mapping[str, Property], key: str) -> Property | None:
    if key in properties:
        return properties[key]
    for prop in properties.values():
        if key in prop.aliases or (prop.key.endswith(".*") and key.startswith(prop.key[:-1])):
            return prop
    return None


def _value(prop: Property, key: str, text: str, warnings: list[str], where: Span | str | None) -> Any:
    try:
        value = prop.form.read(text)
        return text if prop.as_written else value
    except ValueError as error:
        shown = MASK if is_secret(key) else text
        if prop.fallback is None:
            raise BadProperty(key, shown, prop.form.described, where=where) from error
        warnings.append(f"'{key}' = '{shown}' is not {prop.form.described}; {prop.fallback} is used.")
        return text if prop.as_written else prop.fallback


def _spellings() -> list[str]:
    return [spelling for prop in ALL for spelling in (prop.key, *prop.aliases) if not spelling.endswith(".*")]


def _unknown(key: str) -> list[str]:
    if _find({prop.key: prop for prop in ALL}, key) is not None:
        return []
    near = nearest(key, _spellings())
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return [f"Unknown property '{key}'; it has no effect.{hint}"]
