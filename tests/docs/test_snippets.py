"""Documents work when followed. What a user loses if this fails: the first hour, and his trust in the rest.

`VELO_WRITE_DOCS=1` writes the outputs into the documents as they are now; read the difference before you keep it.
Commands run in this process, on the one Spark that all tests share: a JVM per command would take minutes. Commands
that need a shell run in one, as processes of their own.
"""

from __future__ import annotations

import configparser
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance, SensorResult, SkipReason, build_sensor_context

from tests.docs.snippets import Command, Fence, Walk, announced, fences
from velo_dagster import build_velo_definitions, cli
from velo_dagster.engine.session import EmbeddedEngine
from velo_dagster.plan.project import load_project

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md")]
)
RUN = {"console", "bash", "python"}
KNOWN = RUN | {"sql", "sh", "yaml", "ini", "csv", "json", "text", ""}
WRITE = bool(os.environ.get("VELO_WRITE_DOCS"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def fences_of(language: str) -> list:
    return [
        pytest.param(path, fence, id=f"{name(path)}:{fence.line}")
        for path in DOCUMENTS
        for fence in fences(path.read_text())
        if fence.language == language
    ]


class Screen(io.StringIO):
    """What a reader's terminal shows of stdout and stderr, in the order in which it was written."""

    def __init__(self, terminal: bool, shared: list[str]) -> None:
        super().__init__()
        self.terminal, self.shared = terminal, shared

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        self.shared.append(text)
        return written


class SharedEngine(EmbeddedEngine):
    """The tests' Spark, lent to a command, which must not stop it."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.session = engine.session

    def stop(self) -> None:
        return


class Shell:
    """Runs commands in a folder, and remembers how the last one ended, as `$?` does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = 0

    def run(self, command: Command) -> str:
        return self.bash(command.text) if command.arguments is None else self.velo(command.arguments)

    def velo(self, arguments: list[str]) -> str:
        shown: list[str] = []
        with (
            redirect_stdout(Screen(True, shown)),
            redirect_stderr(Screen(False, shown)),
            pytest.raises(SystemExit) as end,
        ):
            cli.main(arguments)
        self.code = int(end.value.code or 0)
        return "".join(shown)

    def bash(self, text: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.code})\n{text}"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # A shell tells a signal as 128 and its number.
        self.code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return done.stdout

    def bash_must_end_well(self, text: str) -> None:
        output = self.bash(f"set -eu\n{text}")
        assert self.code == 0, output


@pytest.fixture
def shell(tmp_path: Path, engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for variable in ("VELO_WAREHOUSE", "VELO_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(cli, "embedded_engine", lambda project: SharedEngine(engine))
    yield Shell(folder)


@contextmanager
def told_where(path: Path, line: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{name(path)}:{line}: {error!r}") from error


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if any(fence.language in RUN for fence in fences(path.read_text()))],
    ids=name,
)
def test_document_works_when_followed(path: Path, shell: Shell):
    def run_python(text: str, line: int) -> None:
        with told_where(path, line), redirect_stdout(io.StringIO()):
            known = {"__name__": "__main__", "__file__": str(shell.folder / "definitions.py")}
            exec(compile(text, f"{name(path)}:{line}", "exec"), known)

    walk = Walk(path.read_text(), shell.folder, shell.run, shell.bash_must_end_well, run_python)
    now = walk.follow()
    if WRITE:
        path.write_text(now)
    else:
        assert not walk.differences, f"{name(path)}\n" + "\n".join(walk.differences)


@pytest.mark.parametrize(("path", "fence"), [one for one in fences_of("sql") if one.values[1].file is None])
def test_statements_are_right(path: Path, fence: Fence, tmp_path: Path):
    """An example that the program refuses teaches nothing; one that must be refused has the code beside it."""
    (tmp_path / "example.sql").write_text(fence.text)
    problems = load_project(tmp_path).problems
    assert sorted(problem.code for problem in problems) == announced(fence.text), problems


@pytest.mark.parametrize(("path", "fence"), fences_of("sh"))
def test_commands_for_elsewhere_exist(path: Path, fence: Fence):
    """They are not run here, but they name targets, scripts and options that there are."""
    assert subprocess.run(["bash", "-n", "-c", fence.text], check=False).returncode == 0
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    asked = set(re.findall(r"^(?:\$ )?make (?:[A-Z]+=\S+ )*([a-z]+)", fence.text, re.M))
    assert asked <= targets
    for command, rest in re.findall(r"velo-dagster (\w+)([^\n#;|&]*)", fence.text):
        known = {option for parameter in cli.cli.commands[command].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, command


@pytest.mark.parametrize(("path", "fence"), [*fences_of("yaml"), *fences_of("ini")])
def test_settings_can_be_read(path: Path, fence: Fence):
    if fence.language == "yaml":
        yaml.safe_load(fence.text)
    else:
        configparser.ConfigParser(strict=False, interpolation=None).read_string(fence.text)


def test_the_alert_of_the_how_to_tells_what_is_waited_for(tmp_path: Path):
    """Whoever copies it relies on being told; that the text can be run says nothing of that."""
    found = list(fences((ROOT / "docs/how-to/dagster.md").read_text()))
    known: dict[str, Any] = {}
    exec(next(fence.text for fence in found if "@sensor" in fence.text), known)
    (tmp_path / "orders.sql").write_text(next(fence.text for fence in found if fence.file == "orders.sql"))
    repository = build_velo_definitions(tmp_path).get_repository_def()

    def told(instance: DagsterInstance) -> str:
        tick = repository.get_sensor_def("velo_sources")(
            build_sensor_context(instance=instance, repository_def=repository)
        )
        assert isinstance(tick, SensorResult)
        for event in tick.asset_events:
            instance.report_runless_asset_event(event)
        said = known["waiting_too_long"](build_sensor_context(instance=instance))
        assert isinstance(said, SkipReason)
        return said.skip_message or ""

    with DagsterInstance.ephemeral() as instance:
        assert "No files match pattern 'data/orders-*.csv'" in told(instance)
        (tmp_path / "data").mkdir()
        (tmp_path / "data/orders-1.csv").write_text("customer,amount\nann,12.50\n")
        assert told(instance) == "The source is there."


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_no_snippet_is_left_out_and_no_link_is_broken(path: Path):
    text = path.read_text()
    assert {fence.language for fence in fences(text)} <= KNOWN
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []
