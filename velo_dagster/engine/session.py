"""The Spark session that loads run in. Nothing else in the package knows whether it is embedded, shared or remote.

Each load gets a session of its own, because Delta's commit token and commit metadata are session settings.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from velo_dagster.engine.java import java_home
from velo_dagster.errors import Terminal, VeloError
from velo_dagster.plan.exact import EXACT, refused_settings, why_refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
DELTA = "io.delta.sql.DeltaSparkSessionExtension"
SMALL = 2
"""Up to this many cores a machine is small."""


class SparkDidNotStart(Terminal, VeloError):
    """The JVM or Spark in it did not come up."""

    code = "L406"

    def __init__(self, output: str) -> None:
        super().__init__(
            "Spark did not start.\n" + "\n".join(output.strip().splitlines()[-15:]),
            steps=["Check that Java 17 or 21 is installed (java -version, JAVA_HOME).", "Check the free memory."],
        )


class NoDelta(Terminal, VeloError):
    """A Spark session that can't write Delta tables."""

    code = "L408"

    def __init__(self, extensions: str) -> None:
        super().__init__(
            f"This Spark session does not know Delta: spark.sql.extensions is '{extensions}'.",
            steps=[
                f"Set spark.sql.extensions to {DELTA}, and spark.sql.catalog.spark_catalog to "
                "org.apache.spark.sql.delta.catalog.DeltaCatalog.",
                "Set spark.jars.packages to io.delta:delta-spark_4.2_2.13:4.4.0, or spark.jars to its jars.",
            ],
        )


class Engine(Protocol):
    """Hands out sessions; `stop` ends what the engine started itself."""

    def session(self) -> AbstractContextManager[SparkSession]: ...

    def stop(self) -> None: ...


class RefusedSettings(Terminal, VeloError):
    """Settings for Spark that would change what tables hold."""

    code = "E143"

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(" ".join(why_refused(key)[0] for key in keys), steps=[why_refused(keys[0])[1]])


def base_settings() -> dict[str, str]:
    """What every session starts with, whichever engine runs it: what exact results need, and what makes it fast."""
    return EXACT | {
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 2)),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Few rows of many are looked for in all partitions at once, not first in one, then in some more.
        "spark.sql.limit.initialNumPartitions": str(8 * (os.cpu_count() or 2)),
        "spark.databricks.delta.snapshotPartitions": "1",
        # Places in files are all different: a dictionary of them is only made to be thrown away.
        "parquet.enable.dictionary#_velo_id.at": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * (os.cpu_count() or 2)),
    }


class EmbeddedEngine:
    """Spark inside this process, started at the first use. `settings` are the user's own `spark.*` settings."""

    def __init__(self, settings: Mapping[str, str] | None = None, starting: Callable[[], None] = lambda: None) -> None:
        """`starting` is called before Spark is started, which takes a while."""
        self._settings = dict(settings or {})
        if refused := refused_settings(self._settings):
            raise RefusedSettings(refused)
        self._starting = starting
        self._root: SparkSession | None = None
        self._own = True

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A fresh session: its settings and temporary views are seen by nobody else."""
        session = self._start().newSession()
        base = base_settings()
        for key, value in (base | self._settings).items():
            # Others are fixed when the JVM starts, and the session has them from there.
            if key in base or session.conf.isModifiable(key):
                session.conf.set(key, value)
        yield session

    def stop(self) -> None:
        if self._root is not None and self._own:
            self._root.stop()
        self._root = None

    def kill(self) -> None:
        """End the JVM at once, whatever it is doing, and wait until it is gone: a commit of it would come too late."""
        from pyspark import SparkContext

        self._root = None
        process = getattr(SparkContext._gateway, "proc", None)
        if process is None:
            return
        # It stands still while the thread that listens to it is ended; that one would complain about a lost connection.
        process.send_signal(signal.SIGSTOP)
        listener = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
        if listener is not None:
            listener.shutdown()
        process.kill()
        process.wait()

    def _start(self) -> SparkSession:
        if self._root is None:
            os.environ["PYSPARK_PYTHON"] = sys.executable
            os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            os.environ["JAVA_HOME"] = str(java_home(os.environ))
            logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
            self._starting()
            from pyspark.sql import SparkSession

            # Another engine of this process may have started Spark: then it is that one's to stop.
            self._own = SparkSession.getActiveSession() is None
            builder = SparkSession.builder.appName("velo-dagster")
            for key, value in (static_settings() | base_settings() | self._settings).items():
                builder = builder.config(key, value)
            with _jvm_output_to_file() as log:
                try:
                    with _interrupts_later():
                        self._root = builder.getOrCreate()
                except Exception as error:
                    raise SparkDidNotStart(log.read_text(errors="replace")) from error
        return self._root


class SparkWanted(Exception):
    """Somebody asked for Spark where it must not be started."""


class NoEngine:
    """For looks that must be quick: whoever needs Spark is told that there is none."""

    def session(self) -> AbstractContextManager[SparkSession]:
        raise SparkWanted

    def stop(self) -> None:
        """There is nothing to stop."""


class BorrowedEngine:
    """A session that somebody else made and will stop, such as that of a dagster-pyspark resource."""

    def __init__(self, root: SparkSession) -> None:
        self._root = root

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        extensions = self._root.conf.get("spark.sql.extensions", "") or ""
        if DELTA not in extensions:
            raise NoDelta(extensions)
        session = self._root.newSession()
        for key, value in base_settings().items():
            session.conf.set(key, value)
        yield session

    def stop(self) -> None:
        """It is not ours to stop."""


class ConnectEngine:
    """Sessions of a Spark Connect server that somebody else runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.remote(self._url).create()
        for key, value in base_settings().items():
            session.conf.set(key, value)
        try:
            yield session
        finally:
            session.stop()

    def stop(self) -> None:
        """Each session has ended by itself."""


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until Spark has started: before that nobody knows its process, and could end it.

    Afterwards they do what they did before: Spark would have Ctrl-C call the JVM, in the middle of another call to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _jvm_output_to_file() -> Iterator[Path]:
    """Let the JVM that starts meanwhile write to a file what it would write to our stderr: it has nothing to say there.

    The JVM inherits file descriptor 2, so redirecting `sys.stderr` would not do.
    """
    with tempfile.NamedTemporaryFile(prefix="velo-dagster-spark-", suffix=".log") as log:
        own = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield Path(log.name)
        finally:
            os.dup2(own, 2)
            os.close(own)


def static_settings() -> dict[str, str]:
    """What can only be set when the JVM starts."""
    from velo_dagster.engine.jars import delta_jars

    return {
        "spark.master": f"local[{max(2, os.cpu_count() or 2)}]",
        "spark.driver.memory": f"{driver_memory_mb()}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java_options(os.cpu_count() or 2, os.environ)),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.sql.extensions": DELTA,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
    }


def java_options(cores: int, environ: Mapping[str, str]) -> list[str]:
    """How the JVM logs, and reads Arrow batches without checking every access: ours are well-formed.

    On a small machine also the collector that needs no core of its own, unless the user chose one: it takes a third
    less memory there than the JVM's own choice, for the same time.
    """
    options = [
        f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
    ]
    chosen = any("GC" in environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"))
    return options if chosen or cores > SMALL else [*options, "-XX:+UseSerialGC"]


def driver_memory_mb() -> int:
    """An eighth of the machine's memory, between one and four gigabytes: the driver is also the only executor."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(1024, min(4096, total // 8))


class Session:
    """One load's session, opened only if the load gets as far as needing one."""

    def __init__(self, engine: Engine, settings: Mapping[str, str]) -> None:
        self._engine = engine
        self._settings = settings
        self._open = ExitStack()
        self._spark: SparkSession | None = None
        self.start_seconds = 0.0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            started = time.monotonic()
            self._spark = self._open.enter_context(self._engine.session())
            for key, value in self._settings.items():
                self._spark.conf.set(key, value)
            self.start_seconds = time.monotonic() - started
        return self._spark

    def scale(self, settings: Mapping[str, str]) -> None:
        """Set what follows the size of the data, but for what the user has set himself."""
        usual = base_settings()
        for key, value in settings.items():
            if self.spark.conf.get(key) == usual[key]:
                self.spark.conf.set(key, value)
