"""What a command is about: the options that name it, and its project, tables, warehouse and engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from velo_dagster.cli_output import say, say_problems

if TYPE_CHECKING:
    from velo_dagster.engine.session import EmbeddedEngine
    from velo_dagster.plan.project import Project
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


def sound_project(path: Path) -> Project:
    """The project, once it has no errors; they and its warnings are shown."""
    from velo_dagster.plan.project import load_project

    project = load_project(path)
    say_problems(project)
    if project.errors:
        sys.exit(1)
    return project


def read_project(path: Path, select: Sequence[str], names: Sequence[str]) -> tuple[Project, list[str] | None]:
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


def unreadable_of(project: Project, chosen: Sequence[str] | None) -> list[str]:
    """Those of the chosen tables whose statements can't be read."""
    asked = None if chosen is None else {name.casefold() for name in chosen}
    return [name for name in project.unreadable if asked is None or name.casefold() in asked]


def warehouse_at(named: str | None, root: Path, settings: Settings, *, tell: bool = True) -> Warehouse:
    """Where tables live: as the command says, else as the project does."""
    from velo_dagster.plan.settings import warehouse_of
    from velo_dagster.store.table import Warehouse

    place = named if named is not None else warehouse_of(root, settings)
    if tell:
        say(f"warehouse: {place}")
    return Warehouse(place)


def settings_at(path: Path) -> tuple[Path, Settings]:
    """The project's folder and what its velo.yaml says: a query reads no statement."""
    from velo_dagster.plan.settings import read_settings

    root = path.parent if path.is_file() else path
    settings, problems = read_settings(root)
    for problem in problems:
        say(problem.render())
    if any(problem.severity == "error" for problem in problems):
        sys.exit(1)
    return root, settings.resolved(os.environ)


def embedded_engine(settings: Settings) -> EmbeddedEngine:
    from velo_dagster.engine.session import EmbeddedEngine

    return EmbeddedEngine(settings.engine, lambda: say("Starting Spark ..."))
