"""Which Java runs Spark.

Spark takes the one of JAVA_HOME, else the first on the PATH, whatever its version, and fails with a riddle if that is
too old. So we look ourselves: JAVA_HOME if set (then it must be right), the PATH, and where Linux distributions put it.

`python -m velo_dagster.engine.java` prints the folder found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from velo_dagster.errors import Terminal, VeloError

SUPPORTED = range(17, 22)
INSTALLED = Path("/usr/lib/jvm")


class MissingJava(Terminal, VeloError):
    """There is no Java that Spark runs on."""

    code = "V801"

    def __init__(self, found: list[str], named: str | None) -> None:
        """`named`: what JAVA_HOME says, because of which nothing else was looked at."""
        looked = f"found {', '.join(found)}" if found else "found none"
        because = " JAVA_HOME names that folder, so no other was looked at." if named else ""
        super().__init__(
            f"Spark needs Java 17 or 21; {looked}.{because}",
            steps=(
                *(["Unset JAVA_HOME, or set it to the folder of a Java 17 or 21."] if named else []),
                "Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless, or openjdk-21-jre-headless).",
                *([] if named else ["If it is installed in a folder of its own, set JAVA_HOME to that folder."]),
            ),
        )


def java_home(environ: Mapping[str, str] = os.environ, installed: Path = INSTALLED) -> Path:
    """The folder of a Java that Spark runs on."""
    found: list[str] = []
    for home in _candidates(environ, installed):
        version = _version(home)
        if version in SUPPORTED:
            return home
        found.append(f"no Java in {home}" if version is None else f"Java {version} in {home}")
    raise MissingJava(found, environ.get("JAVA_HOME"))


def _candidates(environ: Mapping[str, str], installed: Path) -> Iterator[Path]:
    if named := environ.get("JAVA_HOME"):
        yield Path(named)
        return
    # Symbolic links are followed: /usr/bin/java is one to a folder that holds a whole Java.
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path).resolve().parent.parent
    yield from sorted({folder.resolve() for folder in installed.glob("*") if (folder / "bin" / "java").is_file()})


def _version(home: Path) -> int | None:
    """The major version, from the `release` file if there is one: starting a JVM to ask it takes much longer."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    release = home / "release"
    if release.is_file():
        text = release.read_text(encoding="utf-8", errors="replace")
        told = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    else:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", check=False)
        told = re.search(r'version "([^"]+)"', answer.stderr)
    return major(told.group(1)) if told else None


def major(version: str) -> int | None:
    """
    >>> major("17.0.15"), major("21"), major("1.8.0_402"), major("22-ea"), major("?")
    (17, 21, 8, 22, None)
    """
    told = re.match(r"(?:1\.)?(\d+)", version)
    return int(told.group(1)) if told else None


def main() -> int:
    try:
        sys.stdout.write(f"{java_home()}\n")
    except VeloError as error:
        sys.stderr.write(f"{error.render()}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
