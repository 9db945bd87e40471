"""What a newcomer runs first: `make demo`'s project, and the script that sees to Python and Java.

If one of these fails, the first two minutes end with an error, or with none where there should be one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUP = ROOT / "deploy" / "setup.sh"
BASH = shutil.which("bash") or "/bin/bash"


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def parts(printed: str) -> dict[int, str]:
    """What the demo printed under each of its numbered headings."""
    found = re.split(r"^(\d)\. ", printed, flags=re.M)[1:]
    return {int(number): text for number, text in zip(found[::2], found[1::2], strict=True)}


def test_demo_shows_what_it_announces(tmp_path: Path):
    shutil.copytree(ROOT / "definitions", tmp_path / "definitions", ignore=shutil.ignore_patterns("__pycache__"))
    before = contents(tmp_path / "definitions")
    environment = {key: value for key, value in os.environ.items() if key != "VELO_WAREHOUSE"}
    done = subprocess.run(
        [sys.executable, tmp_path / "definitions" / "demo.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = parts(done.stdout)

    # The bulk load, without the file that is not there.
    assert "orders: bulk by append, 5 rows read, 5 rows changed" in shown[2]
    assert re.search(r"^deliveries: blocked", shown[2], re.M) and re.search(r"^open_orders: blocked", shown[2], re.M)
    assert "data/deliveries.json' does not exist" in done.stderr
    # The increments read what is new only, the join follows, and the missing file has turned up.
    assert "orders: increment by append, 3 rows read, 3 rows changed" in shown[4]
    assert "users: increment by merge, 1 row read, 1 row changed" in shown[4]
    assert re.search(r"^orders_by_city: increment by full", shown[4], re.M)
    assert re.search(r"^deliveries: bulk by full .*2 rows read", shown[4], re.M)
    assert re.search(r"^open_orders: bulk", shown[4], re.M)
    # Bob has moved away from Oslo, in the table of users and in the one that joins it.
    assert shown[2].count("Oslo") == 2 and "Oslo" not in shown[4]
    assert re.search(r"\bBob\W+Lisbon\W+GOLD\b", shown[4])
    # Nothing new: every table says so, and no Spark is started for it.
    assert len(re.findall(r"^\w+: unchanged", shown[5], re.M)) == 7
    assert done.stderr.count("Starting Spark") == 2

    assert contents(tmp_path / "definitions") == before
    assert {path.name for path in tmp_path.iterdir()} == {"definitions", ".velo"}


def test_the_demo_is_what_make_demo_runs():
    recipe = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert recipe.rstrip().endswith("/python definitions/demo.py")


class Machine:
    """A machine with nothing on its PATH but what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.venv = folder / "venv"
        self.log = folder / "log"
        (self.venv / "bin").mkdir(parents=True)
        self.bin.mkdir()

    def has(self, name: str, script: str, *, folder: Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.write_text(f"#!{BASH}\n{script}\n")
        path.chmod(0o755)

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(SETUP), *arguments],
            env={"PATH": str(self.bin), "LOG": str(self.log), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


NO_JAVA = '[ -e "$LOG.java" ] || { echo "error E000 there is no Java" >&2; exit 1; }'


def test_setup_can_be_read_by_bash():
    subprocess.run([BASH, "-n", SETUP], check=True)


@pytest.mark.parametrize("arguments", [[], ["python"], ["java"], ["ruby", "folder"], ["--help"]])
def test_setup_called_wrongly_says_how(arguments: list[str], machine: Machine):
    machine.has("sed", f'exec {shutil.which("sed")} "$@"')
    done = machine.setup(*arguments)
    assert done.returncode == 2
    assert "setup.sh python FOLDER | java FOLDER" in done.stderr and done.stdout == ""


def test_missing_python_says_what_to_install(machine: Machine):
    done = machine.setup("python", str(machine.venv))
    assert done.returncode == 1
    assert "Python 3.11 or newer was not found" in done.stderr and "make PYTHON=" in done.stderr


def test_python_that_is_too_old_is_not_taken(machine: Machine):
    """Its virtualenv would fail much later, with a syntax error in a package."""
    machine.has("python3", f'exec {sys.executable} -c "import sys; sys.exit(1)"')
    assert "Python 3.11 or newer was not found" in machine.setup("python", str(machine.venv)).stderr


def test_python_without_venv_says_what_to_install(machine: Machine):
    machine.has("python3", f'case "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"')
    done = machine.setup("python", str(machine.venv))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 1
    assert done.stderr.endswith(f"It could not be installed. As root: apt-get install python{version}-venv\n")


def test_missing_java_without_a_package_manager_ends_with_the_error(machine: Machine):
    machine.has("python", NO_JAVA, folder=machine.venv / "bin")
    done = machine.setup("java", str(machine.venv))
    assert (done.returncode, done.stderr) == (1, "error E000 there is no Java\n")


def test_missing_java_that_may_not_be_installed_says_why(machine: Machine):
    """Neither root nor sudo: the package manager is not called at all."""
    machine.has("python", NO_JAVA, folder=machine.venv / "bin")
    machine.has("id", "echo 1000")
    machine.has("apt-get", 'echo "$@" >> "$LOG"')
    done = machine.setup("java", str(machine.venv))
    assert done.returncode == 1 and not machine.log.exists()
    assert "could not be installed from here (not root, no sudo without a password" in done.stderr
    assert done.stderr.endswith("error E000 there is no Java\n")


def test_missing_java_is_installed_where_it_may_be(machine: Machine):
    """Debian 13 has no 17: the 21 that it has is taken."""
    machine.has("python", NO_JAVA, folder=machine.venv / "bin")
    machine.has("id", "echo 0")
    apt = 'echo "$@" >> "$LOG"\ncase "$*" in *jdk-17*) exit 100;; *jdk-21*) : > "$LOG.java";; esac'
    machine.has("apt-get", apt)
    done = machine.setup("java", str(machine.venv))
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in machine.log.read_text().splitlines()] == [
        "update",
        "openjdk-17-jre-headless",
        "openjdk-21-jre-headless",
    ]


def test_java_that_is_named_and_not_there_is_not_replaced(machine: Machine):
    """Who sets JAVA_HOME means that one; the real look for Java says so."""
    machine.has("apt-get", 'echo "$@" >> "$LOG"')
    nowhere = str(machine.folder / "nowhere")
    done = machine.setup("java", sys.prefix, JAVA_HOME=nowhere, PYTHONPATH=str(ROOT))
    assert done.returncode == 1 and not machine.log.exists()
    assert f"found no Java in {nowhere}. JAVA_HOME names that folder" in done.stderr
    assert "Traceback" not in done.stderr
