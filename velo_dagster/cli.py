"""The command line. Results go to stdout, everything else to stderr.

Exit codes: 0 done, 1 a statement, data or a check failed, 2 wrong usage, 130 and 143 interrupted. Everything heavy is
imported by the command that needs it: `--help`, `validate` and `plan` need neither a JVM nor Arrow.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from velo_dagster.cli_interrupts import Interrupted, interruptible
from velo_dagster.cli_output import (
    FORMATS,
    count,
    progress,
    say,
    show,
    status_json,
    status_lines,
    write_result,
)
from velo_dagster.cli_project import (
    embedded_engine,
    names_argument,
    path_argument,
    read_project,
    select_option,
    settings_at,
    sound_project,
    unreadable_of,
    warehouse_at,
    warehouse_option,
)
from velo_dagster.errors import VeloError

if TYPE_CHECKING:
    import pyarrow as pa

    from velo_dagster.engine.report import LoadReport
    from velo_dagster.engine.source_load import LoadOptions
    from velo_dagster.plan.project import PlannedInput, Project, TablePlan
    from velo_dagster.plan.settings import Settings
    from velo_dagster.store.table import Warehouse


class Commands(click.Group):
    """Commands that end as a shell expects when they are interrupted."""

    def invoke(self, ctx: click.Context) -> object:
        with interruptible():
            try:
                return super().invoke(ctx)
            except Interrupted as stop:
                say("Interrupted.")
                ctx.exit(stop.code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="velo-dagster", prog_name="velo-dagster")
@click.option("--debug", is_flag=True, envvar="VELO_DEBUG", help="Show the traceback of an error. Also VELO_DEBUG=1.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """SQL statements in, exact Delta tables out."""
    context.obj = debug


@cli.command(short_help="Parse and check every statement; no data is touched.")
@path_argument
def validate(path: Path) -> None:
    """Parse and check every statement; no data is touched."""
    from velo_dagster.plan.project import load_project

    project = load_project(path)
    for problem in project.problems:
        show(problem.render())
    warnings = len(project.problems) - len(project.errors)
    say(
        f"{count(project.statements, 'statement')}: {count(len(project.errors), 'error')}, {count(warnings, 'warning')}"
    )
    sys.exit(1 if project.errors else 0)


@cli.command(short_help="Show what each table reads, and how it is kept up to date.")
@path_argument
def plan(path: Path) -> None:
    """Show the graph: per table what it reads, the refresh method, and why it is this one."""
    from velo_dagster.plan.references import exemption

    for table in sound_project(path).tables:
        show(f"{table.name}: {table.refresh.method}, because {table.refresh.reason}; {table.refresh.cost}")
        if table.refresh.keys:
            show(f"  key    {', '.join(table.refresh.keys)}")
        for one in table.inputs:
            touches = table.refresh.touches.get(one.name)
            told = f": a changed row touches {touches}" if touches else ""
            show(f"  reads  {one.kind} {one.label}{_when_missing(one)}{told}")
        if exempt := exemption(table):
            show(f"  exempt by choice from equalling a full reload: {exempt}")


def _when_missing(planned: PlannedInput) -> str:
    from velo_dagster.plan.references import missing_of

    missing = missing_of(planned)
    return f" (while it is not ready: {missing.how})" if missing.how != "wait" else ""


@cli.command(short_help="Bring tables up to date, in dependency order.")
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
    from velo_dagster.engine.source_load import LoadOptions

    if accept_loss and not full_refresh:
        raise click.UsageError("--accept-loss only means something together with --full-refresh.")
    project, chosen = read_project(path, select, names)
    tables = project.tables if chosen is None else project.select(chosen)
    unreadable = unreadable_of(project, chosen)
    place = warehouse_at(warehouse, project.root, project.settings)
    if any(table.name not in project.blocked for table in tables):
        place.make()
    options = LoadOptions(full_refresh=full_refresh, accept_loss=accept_loss)
    reports = _load_tables(project, tables, place, options)
    unsupported = [] if select else _say_unsupported(project)
    bad = [f"{report.table} ({report.outcome})" for report in reports if not report.well]
    bad += [f"{name} (blocked)" for name in unreadable]
    if bad:
        say(f"{len(bad)} of {count(len(reports) + len(unreadable), 'table')} not loaded: {', '.join(bad)}")
    if _debug() and (errors := [report.error for report in reports if report.error is not None]):
        say("".join("".join(traceback.format_exception(error)) for error in errors))
    sys.exit(1 if bad or unsupported or (project.errors and chosen is None) else 0)


def _load_tables(
    project: Project, tables: Sequence[TablePlan], place: Warehouse, options: LoadOptions
) -> list[LoadReport]:
    """Load them, showing how each ended. An interrupt ends Spark, and says how things stand."""
    from velo_dagster.engine.checks import BlockingChecks
    from velo_dagster.engine.load import Loader
    from velo_dagster.engine.progress import Progress

    engine = embedded_engine(project.settings)
    ended: list[LoadReport] = []
    try:
        stands = Progress()
        with progress([table.name for table in tables], stands) as (tell, next_one):

            def done(report: LoadReport) -> None:
                ended.append(report)
                show(str(report))
                if isinstance(report.error, VeloError):
                    tell(report.error.render())
                next_one()

            gate = BlockingChecks(project, place, engine)
            loader = Loader(project, place, engine, tell, gate=gate, progress=stands)
            return loader.load_all(tables, options, done)
    except Interrupted as stop:
        engine.kill()
        say(_interrupted(place, tables[len(ended)].name if len(ended) < len(tables) else None))
        sys.exit(stop.code)
    finally:
        engine.stop()


def _interrupted(place: Warehouse, table: str | None) -> str:
    """How things stand: what is committed is whole, and what is not leaves no trace."""
    if table is None:
        return "Interrupted; all tables were done."
    try:
        record = place.table(table).record()
    except VeloError as error:
        return f"Interrupted while '{table}' was loaded.\n{error.render()}"
    stands = "it has no load yet" if record is None else f"it holds all of load {record.load} and nothing later"
    return f"Interrupted while '{table}' was loaded: {stands}. Run the same command to go on."


@cli.command(short_help="Run a SELECT over the tables.")
@click.argument("sql")
@path_argument
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@warehouse_option
def query(sql: str, path: Path, form: str, warehouse: str | None) -> None:
    """Run a SELECT over the tables of the project at PATH.

    Spark is started only where a plain reader would not give its answer.
    """
    from velo_dagster.sql.parse import parse_select
    from velo_dagster.sql.validate import texts_like_columns
    from velo_dagster.store.plain_types import NeedsSpark
    from velo_dagster.store.query import query as query_without_spark

    for problem in texts_like_columns(parse_select(sql)):
        say(problem.render())
    root, settings = settings_at(path)
    place = warehouse_at(warehouse, root, settings, tell=False)
    try:
        result = query_without_spark(sql, place)
    except NeedsSpark as reason:
        result = _query_by_spark(sql, place, settings, str(reason))
    write_result(result, form, sys.stdout)
    if form == "table":
        say(count(result.num_rows, "row"))


@cli.command(short_help="Show how tables stand, without Java.")
@path_argument
@names_argument
@select_option
@warehouse_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per table, with whole positions.")
def status(path: Path, names: tuple[str, ...], select: tuple[str, ...], warehouse: str | None, as_json: bool) -> None:
    """Show per table: state, rows, last load, position, lag, health. Ends with 1 if something must be mended."""
    from velo_dagster.engine.status import table_status

    project, chosen = read_project(path, select, names)
    place = warehouse_at(warehouse, project.root, project.settings)
    tables = project.tables if chosen is None else project.select(chosen)
    well = True
    for table in tables:
        found = table_status(project, place, table)
        well = well and found.well
        for line in [status_json(found)] if as_json else status_lines(found):
            show(line)
    concerned = not well or bool(unreadable_of(project, chosen))
    sys.exit(1 if concerned or (project.errors and chosen is None) else 0)


@cli.command(short_help="Run the tables' checks alone; nothing is loaded.")
@path_argument
@names_argument
@select_option
@warehouse_option
def check(path: Path, names: tuple[str, ...], select: tuple[str, ...], warehouse: str | None) -> None:
    """Run the checks of every table, or of those selected: exit 1 if one with severity ERROR fails."""
    from velo_dagster.cli_dagster import NothingToCheck, run_checks

    project, chosen = read_project(path, select, names)
    place = warehouse_at(warehouse, project.root, project.settings)
    tables = project.tables if chosen is None else project.select(chosen)
    if not tables:
        raise NothingToCheck(chosen or (), [table.name for table in project.tables])
    engine = embedded_engine(project.settings)
    try:
        failed = run_checks(project, tables, place, engine)
    finally:
        engine.stop()
    sys.exit(1 if failed or project.errors or unreadable_of(project, chosen) else 0)


@cli.command(short_help="Show the project in Dagster's UI.")
@path_argument
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True)
@click.option(
    "--every", metavar="SECONDS", type=click.IntRange(1), default=10, show_default=True, help="How often sensors look."
)
@warehouse_option
def dev(path: Path, host: str, port: int, every: int, warehouse: str | None) -> None:
    """Run Dagster's development server with the project as its code location: UI, sensors and runs."""
    from velo_dagster.cli_dagster import serve

    project = sound_project(path)
    warehouse_at(warehouse, project.root, project.settings)
    serve(path, host, port, every, warehouse)


def _query_by_spark(sql: str, warehouse: Warehouse, settings: Settings, reason: str) -> pa.Table:
    from velo_dagster.engine.query import understand

    understood = understand(sql, warehouse)
    say(f"This query needs Spark ({reason}).")
    engine = embedded_engine(settings)
    try:
        return understood.run(engine)
    except Interrupted:
        engine.kill()
        raise
    finally:
        engine.stop()


def _say_unsupported(project: Project) -> list[str]:
    """Statements that a later release will run are named, so that nobody takes them for done."""
    from velo_dagster.sql.problems import error

    lines = [
        error(
            "E201",
            f"{type(one).__name__} statements are not supported yet; this one was not run.",
            one.span,
            "Put the rows into files, and read these: CREATE TABLE name AS SELECT … FROM file://data/*.csv.",
            "Take the statement out; while it is there, a load of the whole project ends with exit code 1.",
        ).render()
        for one in project.others
    ]
    for line in lines:
        say(line)
    return lines


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
