"""The command line. Results go to stdout, everything else to stderr.

Exit codes: 0 done, 1 a statement, data or a check failed, 2 wrong usage. Everything heavy is imported by the command
that needs it: `--help`, `validate` and `plan` need neither a JVM nor Arrow.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from velo_dagster.cli_output import FORMATS, progress, say, show, to_json, write_result
from velo_dagster.errors import VeloError

if TYPE_CHECKING:
    import pyarrow as pa

    from velo_dagster.engine.report import LoadReport
    from velo_dagster.engine.session import EmbeddedEngine
    from velo_dagster.engine.status import InputStatus, TableStatus
    from velo_dagster.plan.project import Project, TablePlan
    from velo_dagster.store.table import Warehouse

DEFAULT_WAREHOUSE = ".velo/warehouse"

warehouse_option = click.option(
    "--warehouse",
    metavar="DIR",
    envvar="VELO_WAREHOUSE",
    help="Where tables live. Default: VELO_WAREHOUSE, else what velo.yaml says (relative to it), else "
    f"{DEFAULT_WAREHOUSE} in the current folder.",
)
select_option = click.option("--select", metavar="NAME...", multiple=True, help="Only these tables.")
path_argument = click.argument("path", type=click.Path(exists=True, path_type=Path))
names_argument = click.argument("names", nargs=-1, metavar="")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="velo-dagster", prog_name="velo-dagster")
@click.option("--debug", is_flag=True, envvar="VELO_DEBUG", help="Show the traceback of an error. Also VELO_DEBUG=1.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """SQL statements in, exact Delta tables out."""
    context.obj = debug


@cli.command()
@path_argument
def validate(path: Path) -> None:
    """Parse and check every statement; no data is touched."""
    from velo_dagster.plan.project import load_project

    project = load_project(path)
    for problem in project.problems:
        show(problem.render())
    warnings = len(project.problems) - len(project.errors)
    statements = len(project.tables) + len(project.others)
    say(f"{_count(statements, 'statement')}: {_count(len(project.errors), 'error')}, {_count(warnings, 'warning')}")
    sys.exit(1 if project.errors else 0)


@cli.command()
@path_argument
def plan(path: Path) -> None:
    """Show the graph: per table what it reads, the refresh method, and why it is this one."""
    for table in _sound_project(path).tables:
        show(f"{table.name}: {table.refresh.method}, because {table.refresh.reason}; {table.refresh.cost}")
        if table.refresh.keys:
            show(f"  key    {', '.join(table.refresh.keys)}")
        for one in table.inputs:
            show(f"  reads  {one.kind} {one.label}")


@cli.command()
@path_argument
@names_argument
@select_option
@warehouse_option
@click.option("--full-refresh", is_flag=True, help="Start again from the recorded start positions.")
@click.option("--accept-loss", is_flag=True, help="With --full-refresh: give up rows that the source no longer has.")
def load(
    path: Path,
    names: tuple[str, ...],
    select: tuple[str, ...],
    warehouse: str | None,
    full_refresh: bool,
    accept_loss: bool,
) -> None:
    """Bring tables up to date, in dependency order: bulk when there is none yet, else one increment."""
    from velo_dagster.engine.load import Loader
    from velo_dagster.engine.source_load import LoadOptions

    if accept_loss and not full_refresh:
        raise click.UsageError("--accept-loss only means something together with --full-refresh.")
    project = _sound_project(path)
    tables = _selected(project, select, names)
    engine = _engine(project)
    place = _warehouse(warehouse, project)
    place.make()
    options = LoadOptions(full_refresh=full_refresh, accept_loss=accept_loss)
    try:
        with progress([table.name for table in tables]) as (tell, next_one):

            def done(report: LoadReport) -> None:
                show(_load_line(report))
                if isinstance(report.error, VeloError):
                    tell(report.error.render())
                next_one()

            reports = Loader(project, place, engine, tell).load_all(tables, options, done)
    finally:
        engine.stop()
    unsupported = [] if select else _say_unsupported(project)
    bad = [f"{report.table} ({report.outcome})" for report in reports if not report.well]
    if bad:
        say(f"{len(bad)} of {_count(len(reports), 'table')} not loaded: {', '.join(bad)}")
    if _debug() and (errors := [report.error for report in reports if report.error is not None]):
        say("".join("".join(traceback.format_exception(error)) for error in errors))
    sys.exit(1 if bad or unsupported else 0)


@cli.command()
@click.argument("sql")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@warehouse_option
def query(sql: str, form: str, warehouse: str | None) -> None:
    """Run a SELECT over the tables. Spark is started only where a plain reader would not give its answer."""
    from velo_dagster.store.plain_types import NeedsSpark
    from velo_dagster.store.query import query as query_without_spark

    place = _warehouse(warehouse, None)
    try:
        result = query_without_spark(sql, place)
    except NeedsSpark as reason:
        result = _query_by_spark(sql, place, str(reason))
    write_result(result, form, sys.stdout)
    if form == "table":
        say(_count(result.num_rows, "row"))


@cli.command()
@path_argument
@names_argument
@select_option
@warehouse_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per table, with whole positions.")
def status(path: Path, names: tuple[str, ...], select: tuple[str, ...], warehouse: str | None, as_json: bool) -> None:
    """Show per table: state, rows, last load, position, lag, health."""
    from velo_dagster.engine.status import table_status

    project = _sound_project(path)
    place = _warehouse(warehouse, project)
    for table in _selected(project, select, names):
        found = table_status(project, place, table)
        for line in [_status_json(found)] if as_json else _status_lines(found):
            show(line)


def _sound_project(path: Path) -> Project:
    """The project, once it has no errors; they and its warnings are shown."""
    from velo_dagster.plan.project import load_project

    project = load_project(path)
    for problem in project.problems:
        say(problem.render())
    if project.errors:
        sys.exit(1)
    return project


def _selected(project: Project, select: Sequence[str], names: Sequence[str]) -> tuple[TablePlan, ...]:
    """All tables, or those named: `--select a b` gives the first to the option, the others as arguments after PATH."""
    if names and not select:
        raise click.UsageError(f"Got unexpected extra arguments: {' '.join(names)} (use --select to name tables).")
    return project.select([*select, *names]) if select else project.tables


def _warehouse(named: str | None, project: Project | None) -> Warehouse:
    from velo_dagster.store.table import Warehouse

    if named:
        return Warehouse(named)
    root, configured = (project.root, project.settings.warehouse) if project else _settings_here()
    if not configured:
        return Warehouse(DEFAULT_WAREHOUSE)
    return Warehouse(configured if "://" in configured else str(root / configured))


def _settings_here() -> tuple[Path, str | None]:
    """A query names no project, so the velo.yaml of the current folder counts, if there is one."""
    from velo_dagster.plan.settings import read_settings
    from velo_dagster.sql.variables import resolve

    settings, problems = read_settings(Path())
    for problem in problems:
        say(problem.render())
    return Path(), resolve("warehouse", settings.warehouse, os.environ) if settings.warehouse else None


def _engine(project: Project | None) -> EmbeddedEngine:
    from velo_dagster.engine.session import EmbeddedEngine

    return EmbeddedEngine(project.settings.engine if project else None)


def _query_by_spark(sql: str, warehouse: Warehouse, reason: str) -> pa.Table:
    from velo_dagster.engine.query import understand

    understood = understand(sql, warehouse)
    say(f"Starting Spark for this query ({reason}).")
    engine = _engine(None)
    try:
        return understood.run(engine)
    finally:
        engine.stop()


def _say_unsupported(project: Project) -> list[str]:
    """Statements that a later release will run are named, so that nobody takes them for done."""
    from velo_dagster.sql.problems import error

    lines = [
        error(
            "E201", f"{type(one).__name__} statements are not supported yet; this one was not run.", one.span
        ).render()
        for one in project.others
    ]
    for line in lines:
        say(line)
    return lines


def _load_line(report: LoadReport) -> str:
    """One table's load: mode, method, rows read, rows changed, version, seconds."""
    parts = [str(report.outcome)]
    if report.version is not None:
        parts = [f"{report.outcome} by {report.method}"]
        parts[0] += f" ({report.reason})" if report.method == "full" else ""
        parts += [f"{_count(report.rows_read, 'row')} read"] if report.rows_read else []
        parts += [f"{_count(report.rows_changed, 'row')} changed"]
        parts += [f"{_count(report.rejected, 'row')} rejected"] if report.rejected else []
        parts += [f"version {report.version}"]
        parts += [] if report.ready else ["not ready yet: its first load goes on"]
    return f"{report.table}: {', '.join(parts)}, {report.seconds:.1f} s"


def _status_lines(found: TableStatus) -> list[str]:
    parts = [found.state]
    if found.rows is not None:
        parts.append(_count(found.rows, "row"))
    if found.at is not None:
        parts.append(f"load {found.load} ({found.mode}) at {found.at:%Y-%m-%d %H:%M:%S} UTC, version {found.version}")
    if found.rejected:
        parts.append(f"{_count(found.rejected, 'row')} rejected")
    lines = [f"{found.table}: {', '.join(parts)}; health: {found.health}"]
    return lines + [f"  reads  {one.kind} {one.name}: {_input_text(one)}" for one in found.inputs]


def _input_text(one: InputStatus) -> str:
    read = "nothing read" if one.position is None else f"{one.summary} read"
    if one.lag is None:
        return f"{read}, lag unknown"
    return f"{read}, {_count(one.lag, one.unit.removesuffix('s'))} waiting" if one.lag else f"{read}, nothing waits"


def _status_json(found: TableStatus) -> str:
    from dataclasses import asdict

    return to_json(asdict(found))


def _count(number: int, noun: str) -> str:
    """
    >>> _count(1, "row"), _count(20000, "row")
    ('1 row', '20,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _debug() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.obj)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments or bool(os.environ.get("VELO_DEBUG"))
    try:
        cli.main(args=list(arguments), prog_name="velo-dagster")
    except VeloError as error:
        if debug:
            traceback.print_exc()
        say(error.render())
    except Exception as error:  # noqa: BLE001  the last line of defence: nobody should have to read a traceback
        if debug:
            traceback.print_exc()
        say(f"error V999 Unexpected {type(error).__name__}: {error}")
        say("  1. This is a fault of velo-dagster; please report it.")
        say("  2. See where it happened: set VELO_DEBUG=1, or put --debug right after velo-dagster.")
    sys.exit(1)


if __name__ == "__main__":
    main()
