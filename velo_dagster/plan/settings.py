"""`velo.yaml`: where tables live, how the engine runs, what sources are called, and defaults per kind of source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from velo_dagster.errors import Span
from velo_dagster.plan.exact import is_refused, why_refused
from velo_dagster.plan.inputs import SCHEMES, added_kinds
from velo_dagster.plan.yaml_places import key_places
from velo_dagster.sql.problems import Problem, error, nearest, warning
from velo_dagster.sql.variables import resolve

FILE = "velo.yaml"
DEFAULT_WAREHOUSE = ".velo/warehouse"
_KEYS = ("warehouse", "engine", "sources", "defaults")
_ENGINE = ("spark.driver.memory", "spark.master", "spark.local.dir", "spark.sql.shuffle.partitions")
"""Engine settings that users look for, to name the nearest one."""


@dataclass(frozen=True)
class Settings:
    """What a project says about itself. Values are as written, but for those that `resolved` replaced."""

    warehouse: str | None = None
    engine: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    places: Mapping[str, Span] = field(default_factory=dict, repr=False, compare=False)

    def resolved(self, environ: Mapping[str, str]) -> Settings:
        """With the variables of the warehouse and of engine settings replaced; sources are resolved by their loads."""
        warehouse = self.warehouse and resolve("warehouse", self.warehouse, environ, self.places.get("warehouse"))
        engine = {key: resolve(key, value, environ, self.places.get("engine")) for key, value in self.engine.items()}
        return replace(self, warehouse=warehouse, engine=engine)


def warehouse_of(root: Path, settings: Settings) -> str:
    """Where the project's tables live; counted from the project, so that it is the same from every folder.

    >>> warehouse_of(Path("shop"), Settings()), warehouse_of(Path("shop"), Settings("s3a://lake/shop"))
    ('shop/.velo/warehouse', 's3a://lake/shop')
    """
    configured = settings.warehouse or DEFAULT_WAREHOUSE
    return configured if "://" in configured else str(root / configured)


def read_settings(root: Path) -> tuple[Settings, tuple[Problem, ...]]:
    """The project's velo.yaml, or nothing where there is none."""
    path = root / FILE
    if not path.exists():
        return Settings(), ()
    try:
        text = path.read_text(encoding="utf-8")
        reader = _Reader(_content(text), key_places(text, str(path)), Span(str(path), 1, 1))
    except yaml.YAMLError as failure:
        return Settings(), (_broken(path, failure),)
    except UnicodeDecodeError as failure:
        message = f"{FILE} is not UTF-8 text (byte {failure.start})."
        return Settings(), (error("E124", message, Span(str(path), 1, 1), "Save it as UTF-8."),)
    except OSError as failure:
        message, step = f"{FILE} can't be read: {failure.strerror}.", f"Get the right to read it: chmod u+r {path}"
        return Settings(), (error("E124", message, Span(str(path), 1, 1), step),)
    return reader.settings(), tuple(reader.problems)


class _Reader:
    """Turns what the file holds into settings; what it can't be is a problem at its place."""

    def __init__(self, content: Mapping[str, Any], places: Mapping[tuple[str, ...], Span], start: Span) -> None:
        self._content, self._places, self._start = content, places, start
        self.problems: list[Problem] = []

    def settings(self) -> Settings:
        for key in self._content:
            if key not in _KEYS:
                self._unknown("a setting", key, _KEYS, (key,))
        return Settings(
            self._warehouse(),
            self._engine(),
            {name: self._source(name, value) for name, value in self._mapping("sources").items()},
            {kind: self._defaults(kind, value) for kind, value in self._mapping("defaults").items()},
            {key: self._span(key) for key in _KEYS},
        )

    def _span(self, *path: str) -> Span:
        return self._places.get(path, self._start)

    def _error(self, message: str, path: tuple[str, ...], *steps: str) -> None:
        self.problems.append(error("E124", message, self._span(*path), *steps))

    def _unknown(self, what: str, key: str, known: Sequence[str], path: tuple[str, ...]) -> None:
        near = nearest(key, known) or [name for name in known if name.endswith(f".{key}")]
        hint = f" Did you mean '{near[0]}'?" if near else ""
        message, step = f"'{key}' is not {what}, so it has no effect.{hint}", f"Such are {', '.join(known)}."
        self.problems.append(warning("W109", message, self._span(*path), step))

    def _mapping(self, key: str) -> dict[str, Any]:
        value = self._content.get(key)
        if isinstance(value, dict):
            return {str(name): part for name, part in value.items()}
        if value is not None:
            self._error(f"'{key}' must hold names and values.", (key,))
        return {}

    def _warehouse(self) -> str | None:
        value = self._content.get("warehouse")
        if value is None or isinstance(value, str):
            return value
        self._error("'warehouse' must be a text: the folder where tables live.", ("warehouse",))
        return None

    def _source(self, name: str, value: Any) -> dict[str, str]:
        if isinstance(value, str):
            return {"uri": value}
        if isinstance(value, dict):
            return dict(flatten(value))
        step = f"Write {name}: file://data/a.csv, or {name}: {{uri: file://data/a.csv, delimiter: ';'}}."
        self._error(f"The source '{name}' must be a URI, or hold properties.", ("sources", name), step)
        return {}

    def _defaults(self, kind: str, value: Any) -> dict[str, str]:
        kinds = list(dict.fromkeys(SCHEMES.values()))
        if kind not in kinds and kind not in added_kinds():
            self._unknown("a kind of source", kind, [*kinds, *added_kinds()], ("defaults", kind))
        if isinstance(value, dict):
            return dict(flatten(value))
        if value is not None:
            self._error(f"The defaults of '{kind}' must hold properties.", ("defaults", kind))
        return {}

    def _engine(self) -> dict[str, str]:
        found = dict(flatten(self._mapping("engine")))
        for key in found:
            if not key.startswith("spark."):
                self._unknown("a setting of Spark (spark.*)", key, _ENGINE, self._written("engine", key))
            elif is_refused(key, found[key]):
                what, step = why_refused(key)
                self.problems.append(error("E143", what, self._span(*self._written("engine", key)), step))
        return {k: v for k, v in found.items() if k.startswith("spark.") and not is_refused(k, v)}

    def _written(self, above: str, key: str) -> tuple[str, ...]:
        """The keys that lead to a flattened one, however it was cut at its dots."""
        return next((path for path in self._places if path[0] == above and ".".join(path[1:]) == key), (above,))


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
    return _content(path.read_text(encoding="utf-8"))


def _content(text: str) -> dict[str, Any]:
    content = yaml.safe_load(text)
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


def _broken(path: Path, failure: yaml.YAMLError) -> Problem:
    mark = getattr(failure, "problem_mark", None)
    span = Span(str(path), mark.line + 1, mark.column + 1) if mark else Span(str(path), 1, 1)
    reason = getattr(failure, "problem", None) or str(failure)
    return error("E124", f"{FILE} cannot be read: {reason}.", span, "Mend the YAML.")
