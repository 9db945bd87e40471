"""Delta's jars: which ones Spark needs besides its own, and where they lie.

`VELO_JARS` names a folder that already holds them (an image, a machine without network). Otherwise they lie in the
user's cache, in a folder named after the Delta version, and are fetched once with the Ivy that PySpark ships.

The folder appears by one rename of a finished one, so it is either absent or whole, and of two processes that fetch at
once the second finds the name taken and uses what is there.

`python -m velo_dagster.engine.jars` fetches them and prints their paths.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from velo_dagster.engine.java import java_home
from velo_dagster.errors import Terminal, Transient, VeloError

# What Delta needs besides the jars in PySpark; its Unity Catalog client is loaded only by those who use one.
ARTIFACTS = ("delta-spark_4.2_2.13", "delta-storage", "delta-kernel-api", "delta-kernel-defaults")


class MissingJars(Terminal, VeloError):
    """A folder that was named by hand lacks some of Delta's jars."""

    code = "V802"

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        super().__init__(
            f"VELO_JARS names {folder}, which lacks {', '.join(names)}.",
            steps=("Put these jars there.", "Or unset VELO_JARS to have them fetched into your cache."),
        )


class JarsNotFetched(Transient, VeloError):
    """Ivy could not fetch Delta's jars."""

    code = "V803"

    def __init__(self, reason: str, names: tuple[str, ...]) -> None:
        super().__init__(
            f"Delta's jars could not be fetched from the Maven repository: {reason}",
            steps=(
                "Check the network (https_proxy is heeded) and try again.",
                f"Or put {', '.join(names)} (group io.delta) into a folder and set VELO_JARS to it.",
            ),
        )


def delta_jars(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Delta's jars, fetched if this user has none yet."""
    names = jar_names()
    if named := environ.get("VELO_JARS"):
        folder = Path(named)
        if lacking := tuple(name for name in names if not (folder / name).is_file()):
            raise MissingJars(folder, lacking)
    else:
        folder = cache_folder(environ)
        if not folder.is_dir():
            _fetch(folder, environ)
    return [folder / name for name in names]


def jar_names() -> tuple[str, ...]:
    """The jars' file names, of the version that the installed delta-spark goes with."""
    return tuple(f"{artifact}-{version('delta-spark')}.jar" for artifact in ARTIFACTS)


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where fetched jars lie, one folder per Delta version."""
    root = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "velo-dagster" / "jars" / version("delta-spark")


def _fetch(folder: Path, environ: Mapping[str, str]) -> None:
    """Fetch into a neighbour of `folder`, then give it its name."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
        _run_ivy(Path(work), environ)
        try:
            (Path(work) / "jars").rename(folder)
        except OSError:
            # A folder that is not empty can't be renamed over: another process was first, and its jars are the same.
            if not folder.is_dir():
                raise


def _run_ivy(work: Path, environ: Mapping[str, str]) -> None:
    """Let Ivy put exactly our artifacts into `work/jars`."""
    request = work / "ivy.xml"
    request.write_text(_request(), encoding="utf-8")
    command = [
        str(java_home(environ) / "bin" / "java"),
        *_proxy_options(environ),
        f"-Divy.default.ivy.user.dir={work}",
        "-jar",
        str(_ivy_jar()),
        *("-ivy", str(request)),
        *("-cache", str(work / "cache")),
        *("-types", "jar"),
        *("-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"),
    ]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, errors="replace", check=False)
    names = jar_names()
    if done.returncode != 0 or not all((work / "jars" / name).is_file() for name in names):
        raise JarsNotFetched(_reason(done.stdout + done.stderr), names)


def _request() -> str:
    """Ivy's description of what to fetch: each artifact by itself, because PySpark ships what they depend on."""
    revision = version("delta-spark")
    wanted = "".join(
        f'<dependency org="io.delta" name="{artifact}" rev="{revision}" transitive="false" conf="default"/>'
        for artifact in ARTIFACTS
    )
    return (
        '<ivy-module version="2.0"><info organisation="velo-dagster" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
    )


def _ivy_jar() -> Path:
    """Ivy, as PySpark ships it; found without importing PySpark."""
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in sorted((Path(folder) / "jars").glob("ivy-*.jar")):
            return jar
    raise JarsNotFetched("the installed PySpark ships no Ivy", jar_names())


def _proxy_options(environ: Mapping[str, str]) -> list[str]:
    """Java does not look at https_proxy; pip and curl, which users have set up, do."""
    options: list[str] = []
    for scheme in ("http", "https"):
        proxy = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme}_proxy".upper())
        parts = urlsplit(proxy) if proxy else None
        if parts and parts.hostname:
            default_port = 443 if parts.scheme == "https" else 80
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or default_port}"]
    return options


def _reason(output: str) -> str:
    """What stopped Ivy: a line with the network's own error, else the last thing that was not found."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    for sign in ("Server access error", "Exception", "not found"):
        if telling := [line for line in lines if sign in line]:
            return telling[-1]
    return next((line for line in reversed(lines) if line), "Ivy said nothing.")


def main() -> int:
    """Print where Delta's jars lie, fetching them first if need be."""
    try:
        for jar in delta_jars():
            sys.stdout.write(f"{jar}\n")
    except VeloError as error:
        sys.stderr.write(f"{error.render()}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
