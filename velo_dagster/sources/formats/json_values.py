"""JSON, value by value: what a value is, and what it is under a type. The definition that the quick way agrees with.

Numbers keep the text they were written with, so that 1.10 is exact under DECIMAL and still "1.10" under STRING. Where a
column is text, an object, an array or a boolean in it is its JSON text, in a form that depends on the value alone: no
blanks, keys in their order, numbers as written. Of equal keys in one object the last wins. NaN and Infinity are no
JSON, nor is half of a surrogate pair text: such records are bad, and so are those nested deeper than `MOST_DEPTH`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from velo_dagster.sources.formats import lexical, types
from velo_dagster.sources.formats.lexical import DOES_NOT_FIT, NumberFormat
from velo_dagster.sources.formats.types import Evidence

MOST_DEPTH = 200


class NotARecord(Exception):
    """Why a text is not a record."""


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def _refuse(word: str) -> Any:
    raise NotARecord(f"{word} is not JSON")


_decoder = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse)


def decode(text: str) -> dict[str, Any]:
    """The record that a line holds.

    >>> decode('{"a": 1.10, "a": 1.20}')
    {'a': '1.20'}
    """
    value = decode_value(text)
    if not isinstance(value, dict):
        raise NotARecord(f"an object is expected, not {_name(value)}")
    return value


def decode_value(text: str) -> Any:
    """The value that a text holds, of whatever kind.

    >>> decode_value("[1.10, null]")
    ['1.10', None]
    """
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise NotARecord(f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from None
    except RecursionError:
        raise NotARecord(_TOO_DEEP) from None
    if text.count("{") + text.count("[") > MOST_DEPTH and _depth(value) > MOST_DEPTH:
        raise NotARecord(_TOO_DEEP)
    if "\\u" in text and _has_half_pair(value):
        raise NotARecord("half of a surrogate pair is not text")
    return value


_TOO_DEEP = f"nested more than {MOST_DEPTH} levels deep"


def _name(value: Any) -> str:
    names = {list: "an array", str: "a text", Number: "a number", bool: "a boolean", type(None): "null"}
    return names[type(value)]


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [child for item in level for child in _children(item)]:
        depth += 1
    return depth + 1


def _children(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _has_half_pair(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def observe(value: Any, number_format: NumberFormat) -> Evidence:
    """The evidence of one value. Quoted numbers and booleans are text; dates and timestamps are seen in texts."""
    if value is None:
        return types.NOTHING
    if isinstance(value, bool):
        return types.BOOLEAN
    if isinstance(value, Number):
        return lexical.observe_number(value, number_format) or types.TEXT
    if isinstance(value, str):
        return lexical.observe_time(value.strip(lexical.BLANKS))
    if isinstance(value, dict):
        return types.record({name: observe(item, number_format) for name, item in value.items()})
    return types.array(observe(item, number_format) for item in value)


def decides(value: Any) -> bool:
    """Whether a value decides a type: not NULL, nor an object or array with nothing in it."""
    if isinstance(value, dict | list):
        return any(decides(child) for child in _children(value))
    return value is not None


def fit(value: Any, type_: pa.DataType, declared: bool, ignore_unknown: bool) -> Any:
    """The value under a type, exactly, or `DOES_NOT_FIT`.

    Under a declared type a text is read like a field of CSV, since many writers quote exact numbers.
    """
    if value is None:
        return None
    if pa.types.is_null(type_):
        return DOES_NOT_FIT if decides(value) else None
    if pa.types.is_string(type_):
        return text_of(value)
    if isinstance(value, dict):
        return _fit_object(value, type_, declared, ignore_unknown)
    if isinstance(value, list):
        if not pa.types.is_list(type_):
            return DOES_NOT_FIT
        items = [fit(item, type_.value_type, declared, ignore_unknown) for item in value]
        return DOES_NOT_FIT if any(item is DOES_NOT_FIT for item in items) else items
    if isinstance(value, bool):
        return value if pa.types.is_boolean(type_) else DOES_NOT_FIT
    if pa.types.is_nested(type_):
        return DOES_NOT_FIT
    if isinstance(value, Number):
        return lexical.parse_number(value, type_, declared) if _is_number(type_) else DOES_NOT_FIT
    if declared or pa.types.is_temporal(type_) or pa.types.is_binary(type_):
        return lexical.parse(value, type_, declared)
    return DOES_NOT_FIT


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def _fit_object(value: Mapping[str, Any], type_: pa.DataType, declared: bool, ignore_unknown: bool) -> Any:
    if pa.types.is_map(type_):
        keys = [lexical.parse(key, type_.key_type, declared) for key in value]
        items = [fit(item, type_.item_type, declared, ignore_unknown) for item in value.values()]
        return (
            DOES_NOT_FIT if any(item is DOES_NOT_FIT for item in keys + items) else list(zip(keys, items, strict=True))
        )
    if not pa.types.is_struct(type_):
        return DOES_NOT_FIT
    fields = {field.name: fit(value.get(field.name), field.type, declared, ignore_unknown) for field in type_}
    unknown = any(name not in fields and decides(item) for name, item in value.items())
    if (unknown and not ignore_unknown) or any(item is DOES_NOT_FIT for item in fields.values()):
        return DOES_NOT_FIT
    return fields


def text_of(value: Any) -> str:
    """A value as text: a text is itself, anything else its JSON.

    >>> text_of({"a": [Number("1.10"), None, "x"]})
    '{"a":[1.10,null,"x"]}'
    """
    return str(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(name)}:{_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
