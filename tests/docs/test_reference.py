"""The reference says what the program knows, no more and no less: a code that nobody can look up is a riddle."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest

from velo_dagster.cli import cli
from velo_dagster.plan.refresh import Method
from velo_dagster.sql.properties import ALL, FILES, SOURCES, Property

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "velo_dagster"
PROPERTIES = ROOT / "docs" / "reference" / "properties.md"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
COMMANDS = ROOT / "docs" / "reference" / "cli.md"

SECTIONS = {
    SOURCES: "Any source",
    FILES: "Files",
    ("table",): "Tables",
    ("kafka",): "Kafka",
    ("database",): "Databases",
    ("database", "http"): "Databases and HTTP",
    ("http",): "HTTP",
    ("s3",): "S3",
}
HEAD = "| key | value | default | meaning |\n|---|---|---|---|\n"
ROW_OF_TWO = re.compile(r"^\| (.*?) \| (.*?) \|$", re.M)
ROW = re.compile(r"^\| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.M)


def shown_default(prop: Property) -> str:
    value = prop.default
    if value is None or value == "":
        return "" if value is None else "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value}s" if isinstance(value, Decimal) else f"`{value}`"


def row(prop: Property, meanings: dict[str, str]) -> str:
    key = " ".join(f"`{spelling}`" for spelling in (prop.key, *prop.aliases))
    form = prop.form.described.replace("\\", "\\\\").replace("|", "\\|")
    return f"| {key} | {form} | {shown_default(prop)} | {meanings.get(key, '')} |\n"


def table(kinds: tuple[str, ...], meanings: dict[str, str]) -> str:
    return HEAD + "".join(row(prop, meanings) for prop in ALL if prop.kinds == kinds)


def test_every_property_is_explained_as_it_is():
    """Set VELO_WRITE_DOCS=1 to write keys, forms and defaults anew; what a property means is written by hand."""
    text = PROPERTIES.read_text()
    assert {prop.kinds for prop in ALL} == set(SECTIONS)
    now = text
    for kinds, title in SECTIONS.items():
        before, _, rest = now.partition(f"## {title}\n")
        section, _, _ = rest.partition("\n## ")
        meanings = {found[1]: found[4] for found in ROW.finditer(section)}
        intro, _, _ = section.partition(HEAD)
        after = rest[len(section) :]
        now = f"{before}## {title}\n{intro}{table(kinds, meanings)}{after}"
    if os.environ.get("VELO_WRITE_DOCS"):
        PROPERTIES.write_text(now)
    assert text == now, "docs/reference/properties.md is stale"
    unexplained = [found[1] for found in ROW.finditer(now) if not found[4]]
    assert not unexplained


def test_every_method_of_a_load_is_explained():
    """The line of a load names it; `compare` stands in no plan, so nobody could know it from there."""
    load = COMMANDS.read_text().partition("\n## load\n")[2].partition("\n## ")[0]
    rows = load.partition("| method | what the load did |\n|---|---|\n")[2].partition("\n\n")[0]
    explained = [name for found in ROW_OF_TWO.finditer(rows) for name in found[1].split(", ")]
    assert sorted(explained) == sorted([*get_args(Method), "compare", "replace"])


def test_every_code_is_explained_and_no_other():
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    codes = set(re.findall(r"\b[EWLTQVD][0-9]{3}\b", sources))
    explained = re.findall(r"^\| ([EWLTQVD][0-9]{3}) \|", ERRORS.read_text(), re.M)
    assert explained == sorted(set(explained), key=explained.index), "a code is explained twice"
    assert set(explained) == codes


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_and_option_is_in_the_reference(command: str):
    _, found, rest = COMMANDS.read_text().partition(f"## {command}\n")
    assert found, f"{command} is not explained"
    section = rest.partition("\n## ")[0]
    options = {option for parameter in cli.commands[command].params for option in parameter.opts if option[:1] == "-"}
    assert {option for option in options if f"`{option}" not in section} == set()


def test_systemd_units_run_a_command_that_there_is():
    """A timer that calls what does not exist fails at night, on somebody's server."""
    service = (ROOT / "deploy" / "velo-load.service").read_text()
    found = re.search(r"^ExecStart=\S+/velo-dagster (\w+) ", service, re.M)
    assert found and found[1] in cli.commands
    assert "velo-load.service" in (ROOT / "deploy" / "README.md").read_text()
