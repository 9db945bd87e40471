"""What a user gets by installing the package, before any statement runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from velo_dagster.engine.jars import JarsNotFetched, MissingJars, cache_folder, delta_jars, jar_names
from velo_dagster.engine.java import MissingJava, java_home
from velo_dagster.sources.files_position import Files
from velo_dagster.store.record import Record, encode

ROOT = Path(__file__).parents[1]
HEAVY = ("pyspark", "py4j", "confluent_kafka", "dagster", "pandas", "numpy", "pyarrow", "deltalake", "duckdb")

RUN = """
from velo_dagster.cli import main
try: main({!r})
except SystemExit as end: assert end.code == 0, end.code
"""


def imported(code: str) -> set[str]:
    """The heavy packages that a fresh interpreter has loaded after `code`."""
    report = f"import sys; print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_import_is_light():
    """Dagster imports every code location again and again: seconds and hundreds of megabytes each time."""
    assert imported("import velo_dagster") == set()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["load", "--help"], ["--version"], ["validate", "DIR"], ["plan", "DIR"]]
)
def test_light_commands_load_nothing_heavy(arguments: list[str], tmp_path: Path):
    """`--help` and `validate` run in editors and commit hooks, on machines without Java."""
    (tmp_path / "a.sql").write_text("CREATE TABLE a AS SELECT id FROM file://a.csv;")
    arguments = [str(tmp_path) if one == "DIR" else one for one in arguments]
    assert imported(RUN.format(arguments)).isdisjoint(HEAVY)


@pytest.mark.parametrize("arguments", [["status", "DIR"], ["query", "SELECT id FROM a", "DIR"], ["query", "SELECT 1"]])
def test_plain_reads_load_no_spark(arguments: list[str], tmp_path: Path):
    """A look at a table takes a second, on machines without Java too; a JVM alone takes ten."""
    (tmp_path / "a.sql").write_text("CREATE TABLE a AS SELECT id FROM file://a.csv;")
    (tmp_path / "a.csv").write_text("id\n1\n")
    record = Record(1, "x", "load", "bulk", "append", "first load", "", {"source": Files().to_json()}, (("id", "INT"),))
    commit = CommitProperties(custom_metadata={"userMetadata": encode(record, tmp_path)})
    write_deltalake(tmp_path / ".velo/warehouse/a", pa.table({"id": [1]}), commit_properties=commit)
    arguments = [str(tmp_path) if one == "DIR" else one for one in arguments]
    assert imported(RUN.format(arguments)).isdisjoint({"pyspark", "py4j", "dagster"})


def test_import_rules():
    """Rooms that import each other freely can no longer be changed, tested or replaced one at a time."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_constraints_pin_every_dependency_and_no_address():
    """An unpinned install picks a Spark that Delta does not run on; an address in it ties users to one registry."""
    pinned = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        told = re.fullmatch(r"([A-Za-z0-9_.-]+)==([A-Za-z0-9.]+)", line)
        assert told, line
        pinned[re.sub(r"[-_.]+", "-", told.group(1)).lower()] = told.group(2)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        told = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert told and told.group() in pinned, requirement


def test_package_ships_types_and_log_settings():
    assert (ROOT / "velo_dagster" / "py.typed").is_file()
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["velo_dagster"]
    assert all((ROOT / "velo_dagster" / name).is_file() for name in shipped)


def a_java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_java_that_is_too_old_is_passed_over(tmp_path: Path):
    """With Java 11 first on the PATH Spark dies with a class file version; a 17 beside it would do."""
    old, good = a_java(tmp_path / "old", "11.0.2"), a_java(tmp_path / "jvm" / "java-17", "17.0.15")
    assert java_home({"PATH": str(old / "bin")}, tmp_path / "jvm") == good


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PATH": ""}, "found none"),
        ({"PATH": "{old}/bin"}, "found Java 11 in {old}"),
        ({"JAVA_HOME": "{old}"}, "found Java 11 in {old}. JAVA_HOME names that folder, so no other was looked at."),
        ({"JAVA_HOME": "{nowhere}"}, "found no Java in {nowhere}. JAVA_HOME names that folder"),
    ],
)
def test_missing_java_says_what_was_found_and_what_to_do(environment: dict[str, str], said: str, tmp_path: Path):
    places = {"old": str(a_java(tmp_path / "old", "11.0.2")), "nowhere": str(tmp_path / "nowhere")}
    environment = {key: value.format(**places) for key, value in environment.items()}
    with pytest.raises(MissingJava) as caught:
        java_home(environment, tmp_path / "jvm")
    assert said.format(**places) in caught.value.what
    assert "openjdk-17-jre-headless" in caught.value.render()
    assert ("Unset JAVA_HOME" in caught.value.render()) == ("JAVA_HOME" in environment)


def test_named_folder_of_jars_must_be_whole(tmp_path: Path):
    """Spark starts without a jar and fails much later, in the middle of a load."""
    for name in jar_names()[1:]:
        (tmp_path / name).touch()
    with pytest.raises(MissingJars, match=re.escape(f"lacks {jar_names()[0]}.")):
        delta_jars({"VELO_JARS": str(tmp_path)})
    (tmp_path / jar_names()[0]).touch()
    assert [jar.name for jar in delta_jars({"VELO_JARS": str(tmp_path)})] == list(jar_names())


def test_no_network_is_said_and_leaves_nothing_half(tmp_path: Path):
    environment = dict(os.environ) | {"XDG_CACHE_HOME": str(tmp_path), "https_proxy": "http://127.0.0.1:9"}
    environment.pop("VELO_JARS", None)
    with pytest.raises(JarsNotFetched, match=r"(?s)Connection refused.*set VELO_JARS"):
        delta_jars(environment)
    assert list(cache_folder(environment).parent.iterdir()) == []


def test_two_fetches_at_once_give_one_whole_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two loads start on a fresh machine: neither may see the other's half-filled folder, or fail because of it."""
    both = threading.Barrier(2)

    def fetch(work: Path, environ: object) -> None:
        (work / "jars").mkdir()
        for name in jar_names():
            (work / "jars" / name).touch()
        both.wait(timeout=30)

    monkeypatch.setattr("velo_dagster.engine.jars._run_ivy", fetch)
    found: list[list[Path]] = []
    threads = [
        threading.Thread(target=lambda: found.append(delta_jars({"XDG_CACHE_HOME": str(tmp_path)}))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] == found[1]
    assert all(jar.is_file() for jar in found[0])
    assert list(cache_folder({"XDG_CACHE_HOME": str(tmp_path)}).parent.iterdir()) == [found[0][0].parent]
