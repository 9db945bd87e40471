"""A commit's actions, as Delta's log has them, and how they are made visible."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velo_dagster.store.log import Held
from velo_dagster.store.vectors import FEATURE, SETTING

if TYPE_CHECKING:
    from deltalake import DeltaTable

FEED = "delta.enableChangeDataFeed"


class TakenVersion(Exception):
    """Somebody else has made the version that this commit would have made; nothing was changed."""


def publish(log: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
    """Make the commit visible, all of it or nothing."""
    draft = log / f".{uuid.uuid4().hex}.velo"
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in actions)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, log / f"{version:020}.json")
        except FileExistsError as error:
            raise TakenVersion(f"version {version} is there") from error
    finally:
        draft.unlink(missing_ok=True)


def token(app: str, load: int) -> dict[str, Any]:
    return {"txn": {"appId": app, "version": load, "lastUpdated": now()}}


def removed(held: Held) -> dict[str, Any]:
    vector = {"deletionVector": dict(held.vector)} if held.vector else {}
    return {
        "remove": {
            "path": held.path,
            "deletionTimestamp": now(),
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": held.size,
            **vector,
        }
    }


def new_table(schema: str) -> list[dict[str, Any]]:
    """What a table is, for its first commit."""
    features = {"writerFeatures": ["appendOnly", "changeDataFeed", "invariants"]}
    about = _about(str(uuid.uuid4()), schema, {FEED: "true", SETTING: "false"}, now())
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features}}, {"metaData": about}]


def described(table: DeltaTable, schema: str, settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The table's description with these columns, and other settings."""
    known = table.metadata()
    return _about(str(known.id), schema, {**known.configuration, **(settings or {})}, known.created_time)


def _about(table_id: str, schema: str, settings: Mapping[str, str | None], created: int | None) -> dict[str, Any]:
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_with_nulls(json.loads(schema))),
        "partitionColumns": [],
        "configuration": settings,
        "createdTime": created,
    }


def _with_nulls(part: Any) -> Any:
    """A part of a schema in which any value may be NULL, as in every table that Spark writes from a query."""
    if isinstance(part, list):
        return [_with_nulls(one) for one in part]
    if not isinstance(part, dict):
        return part
    allowed = {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in part}
    return {key: _with_nulls(value) for key, value in part.items()} | allowed


def with_vectors(table: DeltaTable, features: Iterable[str]) -> list[dict[str, Any]]:
    """The table's description and protocol, from now on with deletion vectors; `features`: those that it has."""
    listed = {"readerFeatures": [FEATURE], "writerFeatures": sorted({*features, FEATURE})}
    return [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **listed}},
        {"metaData": described(table, table.schema().to_json(), {SETTING: "true"})},
    ]


def now() -> int:
    return int(time.time() * 1000)
