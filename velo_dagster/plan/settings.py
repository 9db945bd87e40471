"""`velo.yaml`: where tables live, how the engine runs, what sources are called, and defaults per kind of source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from velo_dagster.errors import Span
from velo_dagster.sql.problems import Problem, error, nearest, warning

FILE = "velo.yaml"
_KEYS = ("warehouse", "engine", "sources", "defaults")


@dataclass(frozen=True)
class Settings:
    """What a project says about itself. Values are as written; variables are resolved by who uses them."""

    warehouse: str | None = None
    engine: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_settings(root: Path) -> tuple[Settings, tuple[Problem, ...]]:
    """The project's velo.yaml, or nothing where there is none."""
    path = root / FILE
    if not path.exists():
        return Settings(), ()
    span = Span(str(path), 1, 1)
    try:
        content = read_yaml(path)
    except yaml.YAMLError as failure:
        return Settings(), (_broken(path, failure),)
    problems = [
        warning("W109", f"'{key}' is not a setting.{_hint(key)}", span, f"Settings are {', '.join(_KEYS)}.")
        for key in content
        if key not in _KEYS
    ]
    warehouse = content.get("warehouse")
    sources = {name: _source(value) for name, value in _mapping(content, "sources", span, problems).items()}
    defaults = {kind: dict(flatten(value)) for kind, value in _mapping(content, "defaults", span, problems).items()}
    engine = dict(flatten(_mapping(content, "engine", span, problems)))
    return Settings(None if warehouse is None else str(warehouse), engine, sources, defaults), tuple(problems)


def read_config(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, str]:
    """A config_file: nested keys flattened by dots, on top of what it extends (relative to itself)."""
    path = path.resolve()
    if path in seen:
        raise ValueError(f"{path} extends itself")
    content = read_yaml(path)
    parent = content.pop("extends", None)
    base = read_config(path.parent / str(parent), (*seen, path)) if parent else {}
    return base | dict(flatten(content))


def read_yaml(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise yaml.YAMLError("it must hold keys and values")
    return {str(key): value for key, value in content.items()}


def flatten(content: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """
    >>> dict(flatten({"topic": {"partitions": 3}, "watch": True, "x": None}))
    {'topic.partitions': '3', 'watch': 'true', 'x': ''}
    """
    if not isinstance(content, dict):
        yield prefix, _text(content)
        return
    for key, value in content.items():
        yield from flatten(value, f"{prefix}.{key}" if prefix else str(key))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return "" if value is None else str(value)


def _source(value: Any) -> dict[str, str]:
    return {"uri": value} if isinstance(value, str) else dict(flatten(value))


def _mapping(content: Mapping[str, Any], key: str, span: Span, problems: list[Problem]) -> dict[str, Any]:
    value = content.get(key) or {}
    if isinstance(value, dict):
        return {str(name): part for name, part in value.items()}
    problems.append(error("E124", f"'{key}' must hold names and values.", span))
    return {}


def _hint(key: str) -> str:
    found = nearest(key, _KEYS)
    return f" Did you mean '{found[0]}'?" if found else ""


def _broken(path: Path, failure: yaml.YAMLError) -> Problem:
    mark = getattr(failure, "problem_mark", None)
    span = Span(str(path), mark.line + 1, mark.column + 1) if mark else Span(str(path), 1, 1)
    reason = getattr(failure, "problem", None) or str(failure)
    return error("E124", f"{FILE} cannot be read: {reason}.", span, "Mend the YAML.")
