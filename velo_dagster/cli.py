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
from typing import TYPE_CHECKING, Any

import click

from velo_dagster.cli_interrupts import Interrupted, interruptible
from velo_dagster.cli_output import (
    FORMATS,
    count,
    load_line,
    progress,
    say,
    say_problems,
    show,
    status_json,
    status_lines,
    write_result,
)
from velo_dagster.errors import VeloError

if TYPE_CHECKING:
    import pyarrow as pa

    from velo_dagster.engine.report import LoadReport
    from velo_dagster.engine.session import EmbeddedEngine
    from velo_dagster.engine.source_load import LoadOptions
    from velo_dagster.plan.project import Project, TablePlan
    from velo_dagster.plan.settings import Settings
    from velo_dagster.store.table import Warehouse

warehouse_option = click.option(
    "--warehouse",
    metavar="DIR",
    envvar="VELO_WAREHOUSE",
    help="Where tables live. Default: VELO_WAREHOUSE, else what velo.yaml says (relative to it), else "
    ".velo/warehouse in the project's folder.",
)
select_option = click.option("--select", metavar="NAME...", multiple=True, help="Only these tables: a b, or a,b.")


class ProjectPath(click.Path):
    """A project's folder or file, which must be there. Names of tables land here where they stand without PATH."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not Path(value).exists():
            selects = ctx is not None and any(one.name == "select" for one in ctx.command.params)
            hint = " Several tables are selected by --select a,b, or by --select a b after PATH." if selects else ""
            what = f"There is no '{Path(value).absolute()}'. PATH is the folder that holds your .sql files"
            self.fail(f"{what}, by default the current one.{hint}", param, ctx)
        return super().convert(value, param, ctx)


path_argument = click.argument("path", type=ProjectPath(path_type=Path), default=".")
names_argument = click.argument("names", nargs=-1, metavar="")


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
    for table in _sound_project(path).tables:
        show(f"{table.name}: {table.refresh.method}, because {table.refresh.reason}; {table.refresh.cost}")
        if table.refresh.keys:
            show(f"  key    {', '.join(table.refresh.keys)}")
        for one in table.inputs:
            show(f"  reads  {one.kind} {one.label}")


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
    project, chosen = _read_project(path, select, names)
    tables = project.tables if chosen is None else project.select(chosen)
    unreadable = _unreadable(project, chosen)
    place = _warehouse(warehouse, project.root, project.settings)
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
    from velo_dagster.engine.load import Loader

    engine = _engine(project.settings)
    ended: list[LoadReport] = []
    try:
        with progress([table.name for table in tables]) as (tell, next_one):

            def done(report: LoadReport) -> None:
                ended.append(report)
                show(load_line(report))
                if isinstance(report.error, VeloError):
                    tell(report.error.render())
                next_one()

            return Loader(project, place, engine, tell).load_all(tables, options, done)
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
    root, settings = _settings_at(path)
    place = _warehouse(warehouse, root, settings, tell=False)
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

    project, chosen = _read_project(path, select, names)
    place = _warehouse(warehouse, project.root, project.settings)
    tables = project.tables if chosen is None else project.select(chosen)
    well = True
    for table in tables:
        found = table_status(project, place, table)
        well = well and found.well
        for line in [status_json(found)] if as_json else status_lines(found):
            show(line)
    concerned = not well or bool(_unreadable(project, chosen))
    sys.exit(1 if concerned or (project.errors and chosen is None) else 0)


@cli.command(short_help="Run the tables' checks alone; nothing is loaded.")
@path_argument
@names_argument
@select_option
@warehouse_option
def check(path: Path, names: tuple[str, ...], select: tuple[str, ...], warehouse: str | None) -> None:
    """Run the checks of every table, or of those selected: exit 1 if one with severity ERROR fails."""
    from velo_dagster.cli_dagster import NothingToCheck, run_checks

    project, chosen = _read_project(path, select, names)
    place = _warehouse(warehouse, project.root, project.settings)
    tables = project.tables if chosen is None else project.select(chosen)
    if not tables:
        raise NothingToCheck(chosen or (), [table.name for table in project.tables])
    engine = _engine(project.settings)
    try:
        failed = run_checks(project, tables, place, engine)
    finally:
        engine.stop()
    sys.exit(1 if failed or project.errors or _unreadable(project, chosen) else 0)


@cli.command(short_help="Show the project in Dagster's UI.")
@path_argument
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=3000, show_default=True)
@click.option("--every", metavar="SECONDS", default=10, show_default=True, help="How often sensors look.")
@warehouse_option
def dev(path: Path, host: str, port: int, every: int, warehouse: str | None) -> None:
    """Run Dagster's development server with the project as its code location: UI, sensors and runs."""
    from velo_dagster.cli_dagster import serve

    project = _sound_project(path)
    _warehouse(warehouse, project.root, project.settings)
    serve(path, host, port, every, warehouse)


def _sound_project(path: Path) -> Project:
    """The project, once it has no errors; they and its warnings are shown."""
    from velo_dagster.plan.project import load_project

    project = load_project(path)
    say_problems(project)
    if project.errors:
        sys.exit(1)
    return project


def _read_project(path: Path, select: Sequence[str], names: Sequence[str]) -> tuple[Project, list[str] | None]:
    """The project with what can be read of it, and the names of the tables asked for, None being all.

    `--select a b` gives the first to the option, the others as arguments after PATH; `--select a,b` is the same.
    """
    from velo_dagster.plan.project import load_project

    if names and not select:
        raise click.UsageError(f"Got unexpected extra arguments: {' '.join(names)} (use --select to name tables).")
    project = load_project(path)
    chosen = [name.strip() for given in (*select, *names) for name in given.split(",") if name.strip()]
    if select and not chosen:
        raise click.UsageError("--select names no table.")
    blocked = {name.casefold() for name in project.blocked}
    concerned = any(name.casefold() in blocked for name in chosen)
    say_problems(project, elsewhere=bool(chosen) and not concerned)
    return project, chosen if select else None


def _unreadable(project: Project, chosen: Sequence[str] | None) -> list[str]:
    """Those of the chosen tables whose statements can't be read."""
    asked = None if chosen is None else {name.casefold() for name in chosen}
    return [name for name in project.unreadable if asked is None or name.casefold() in asked]


def _warehouse(named: str | None, root: Path, settings: Settings, *, tell: bool = True) -> Warehouse:
    """Where tables live: as the command says, else as the project does."""
    from velo_dagster.plan.settings import warehouse_of
    from velo_dagster.store.table import Warehouse

    place = named if named is not None else warehouse_of(root, settings)
    if tell:
        say(f"warehouse: {place}")
    return Warehouse(place)


def _settings_at(path: Path) -> tuple[Path, Settings]:
    """The project's folder and what its velo.yaml says: a query reads no statement."""
    from velo_dagster.plan.settings import read_settings

    root = path.parent if path.is_file() else path
    settings, problems = read_settings(root)
    for problem in problems:
        say(problem.render())
    if any(problem.severity == "error" for problem in problems):
        sys.exit(1)
    return root, settings.resolved(os.environ)


def _engine(settings: Settings) -> EmbeddedEngine:
    from velo_dagster.engine.session import EmbeddedEngine

    return EmbeddedEngine(settings.engine, lambda: say("Starting Spark ..."))


def _query_by_spark(sql: str, warehouse: Warehouse, settings: Settings, reason: str) -> pa.Table:
    from velo_dagster.engine.query import understand

    understood = understand(sql, warehouse)
    say(f"This query needs Spark ({reason}).")
    engine = _engine(settings)
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
            "E201", f"{type(one).__name__} statements are not supported yet; this one was not run.", one.span
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
