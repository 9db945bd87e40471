"""A user who mistypes a property hears of it; one who gives a wrong value gets an error; secrets are never shown."""

from __future__ import annotations

from decimal import Decimal

import pytest

from velo_dagster.sql.properties import ALL, BadProperty, is_secret, resolve


def test_defaults_of_files() -> None:
    values = resolve("file", {}).values
    expected = {
        "delimiter": ",",
        "quote": '"',
        "header": True,
        "skip_lines": 0,
        "max_records": None,
        "encoding": "utf-8",
        "null.value": "",
        "watch": True,
        "file.create.empty": False,
        "file.deleted": "keep",
        "file.verify": "ends",
        "number.format": "decimal",
        "failure_strategy": "FailBatch",
        "schema.evolution": "evolve",
        "wait.timeout": Decimal(0),
    }
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("kind", "key", "text", "name", "value"),
    [
        ("file", "file.wait.timeout", "300s", "wait.timeout", Decimal(300)),
        ("kafka", "topic.wait.timeout", "5m", "wait.timeout", Decimal(300)),
        ("file", "has_headers", "FALSE", "header", False),
        ("file", "delimiter", "\\t", "delimiter", "\t"),
        ("file", "quote", "", "quote", None),
        ("file", "encoding", "Latin-1", "encoding", "iso8859-1"),
        ("file", "format", "jsonlines", "format", "jsonl"),
        ("file", "failure_strategy", "sendtodlq", "failure_strategy", "SendToDLQ"),
        ("kafka", "auto.offset.reset", "LATEST", "auto.offset.reset", "latest"),
        ("kafka", "sasl.username", "ann", "sasl.username", "ann"),
        ("table", "table_model", "standard", "table_model", "normal"),
        ("table", "retention", "7 days", "retention", Decimal(604800)),
        ("database", "cdc", "true", "cdc", True),
    ],
)
def test_values(kind: str, key: str, text: str, name: str, value: object) -> None:
    resolved = resolve(kind, {key: text})
    assert resolved[name] == value
    assert resolved.warnings == ()


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        ("file", "wait.timeout", "soon"),
        ("file", "wait.timeout", "-5s"),
        ("file", "header", "perhaps"),
        ("file", "delimiter", "::"),
        ("file", "delimiter", "\n"),
        ("file", "skip_lines", "-1"),
        ("file", "max_records", "0"),
        ("file", "encoding", "klingon"),
        ("file", "format", "xls"),
        ("file", "file.deleted", "burn"),
        ("kafka", "topic.partitions", "many"),
    ],
)
def test_wrong_forms_are_errors(kind: str, key: str, text: str) -> None:
    with pytest.raises(BadProperty) as caught:
        resolve(kind, {key: text}, where="a.sql:1:2")
    assert key in str(caught.value) and str(caught.value).startswith("a.sql:1:2: error E305")


@pytest.mark.parametrize(
    ("kind", "key", "text", "value"),
    [("kafka", "auto.offset.reset", "middle", "earliest"), ("table", "table_model", "huge", "normal")],
)
def test_some_wrong_forms_fall_back_with_a_warning(kind: str, key: str, text: str, value: str) -> None:
    resolved = resolve(kind, {key: text})
    assert resolved[key] == value
    assert len(resolved.warnings) == 1 and value in resolved.warnings[0]


def test_unknown_keys_name_the_nearest() -> None:
    (warning,) = resolve("file", {"file.wait.timout": "3s"}).warnings
    assert "'file.wait.timout'" in warning and "'file.wait.timeout'" in warning


def test_a_key_of_another_kind_is_no_warning() -> None:
    assert resolve("file", {"auto.offset.reset": "latest", "retention": "7 days"}).warnings == ()


def test_the_kinds_own_spelling_wins() -> None:
    resolved = resolve("file", {"wait.timeout": "1s", "file.wait.timeout": "2s", "topic.wait.timeout": "3s"})
    assert resolved["wait.timeout"] == 2
    assert len(resolved.warnings) == 2


def test_secrets_are_masked() -> None:
    resolved = resolve("database", {"username": "ann", "password": "hunter2"})
    assert "hunter2" not in repr(resolved) and "ann" in repr(resolved)
    assert resolved["password"] == "hunter2"
    assert is_secret("sasl.password") and is_secret("secret.key") and is_secret("headers.Authorization")


def test_every_key_is_one_property_of_its_kind() -> None:
    seen = [(kind, key) for prop in ALL for kind in prop.kinds for key in (prop.key, *prop.aliases)]
    assert len(seen) == len(set(seen))


def test_a_misspelt_choice_is_told_the_nearest():
    with pytest.raises(BadProperty) as caught:
        resolve("file", {"failure_strategy": "SendToDLK"})
    assert caught.value.steps == ("Did you mean SendToDLQ?",)
    with pytest.raises(BadProperty) as caught:
        resolve("file", {"failure_strategy": "whatever"})
    assert caught.value.steps == ("Write one of FailBatch, SendToDLQ, LogAndContinue, RetryWithBackoff.",)
