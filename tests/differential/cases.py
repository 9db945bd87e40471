"""Cases as data: a name, a SELECT of ours, and, where DuckDB must be asked in other words, those words.

    -- @case big_orders whole
    -- Why this case exists, or why DuckDB is asked in other words.
    SELECT order_id FROM orders WHERE amount > 10;
    -- @duckdb
    SELECT ...;

Every case is a table of that name in both engines, so that later cases may read earlier ones. `whole` takes it through
the whole history of steps, else it sees one of them. What else may stand in a case:

    -- @columns (...)            declares columns
    -- @instead OURS => THEIRS   spells a part of the SELECT otherwise for DuckDB
    -- @file NAME                starts a file of the case's own, one comment line per line
    -- @answer                   starts what is known to be right, in DuckDB's words, without files
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "results"
MARK = re.compile(r"^-- @(?P<mark>case|columns|instead|duckdb|answer|file)\b *(?P<rest>.*)$")
FILES = re.compile(r"file://data/(?P<input>\w+)/\*\.csv")


@dataclass
class Case:
    """One statement; `mirror` is what DuckDB is asked, if not the statement's own SELECT."""

    name: str
    place: str
    whole: bool = False
    columns: str = ""
    select: str = ""
    mirror: str = ""
    instead: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def reads_files(self) -> bool:
        return "file://" in self.select

    @property
    def for_duckdb(self) -> str:
        """The SELECT for DuckDB, where files are views named `files_...`."""
        text = self.mirror or self.select
        for ours, theirs in self.instead.items():
            assert ours in text, f"{self.place}: {ours!r} is not in the statement"
            text = text.replace(ours, theirs)
        return FILES.sub(r"files_\g<input>", text)

    def statement(self, extension: str = "csv", properties: str = "", name: str = "") -> str:
        """The CREATE TABLE over files of one format; `properties` go to statements that read files themselves."""
        select = FILES.sub(rf"file://data/\g<input>/*.{extension}", self.select)
        return f"CREATE TABLE {name or self.name}{self.columns} AS {select}{properties if self.reads_files else ''};\n"


def read_cases(*names: str) -> list[Case]:
    """The cases of these fixtures, in their order."""
    cases = [case for name in names for case in _read(FIXTURES / name)]
    doubles = {case.name for case in cases if [other.name for other in cases].count(case.name) > 1}
    assert not doubles, f"two cases of one name: {doubles}"
    return cases


def _read(path: Path) -> Iterator[Case]:
    case: Case | None = None
    part, file = "", ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = MARK.match(line)
        if found and found["mark"] == "case":
            if case is not None:
                yield _checked(case)
            name, *tags = found["rest"].split()
            case, part = Case(name, f"{path.name}:{number}", whole="whole" in tags), "case"
        elif case is None:
            assert not line.strip() or line.startswith("--"), f"{path.name}:{number}: text before the first case"
        elif found and found["mark"] == "columns":
            case.columns = " " + found["rest"]
        elif found and found["mark"] == "instead":
            ours, theirs = found["rest"].split(" => ")
            case.instead[ours] = theirs
        elif found:
            part, file = found["mark"], found["rest"].strip()
        elif part == "file" and line.startswith("--"):
            case.files[file] = case.files.get(file, "") + line.removeprefix("--").removeprefix(" ") + "\n"
        elif not line.startswith("--"):
            part = "case" if part == "file" else part
            _add(case, part, line)
    if case is not None:
        yield _checked(case)


def _add(case: Case, part: str, line: str) -> None:
    if part == "case":
        case.select += line + "\n"
    else:
        case.mirror += line + "\n"


def _checked(case: Case) -> Case:
    case.select, case.mirror = (text.strip().removesuffix(";") for text in (case.select, case.mirror))
    assert case.select, f"{case.place}: no statement"
    return case
