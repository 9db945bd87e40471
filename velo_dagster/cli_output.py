"""How the command line shows things: results on stdout, everything else on stderr, plain text where nobody watches."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from velo_dagster.engine.report import count
from velo_dagster.errors import Terminal, VeloError

if TYPE_CHECKING:
    import pyarrow as pa

    from velo_dagster.engine.progress import Progress
    from velo_dagster.engine.status import InputStatus, TableStatus
    from velo_dagster.plan.project import Project

PLAIN_SECONDS = 10.0
TERMINAL_SECONDS = 0.5
FORMATS = ("table", "json", "jsonl", "csv")


class SameNames(Terminal, VeloError):
    """A result that has no form in JSON, because an object has each name once."""

    code = "Q603"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Two columns of the result are called '{name}', which JSON can't show.",
            steps=["Give one of them an alias: SELECT a.id, b.id AS other_id ...", "Or use --format csv or table."],
        )


def say(message: str) -> None:
    """A line for whoever watches; never part of a result."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def show(line: str) -> None:
    """A line of the result."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say_problems(project: Project, *, elsewhere: bool = False) -> None:
    """What is wrong or doubtful about statements; `elsewhere`: none of the errors concerns what was asked for."""
    errors = project.errors
    for problem in project.problems:
        if not elsewhere or problem not in errors:
            say(problem.render())
    if elsewhere and errors:
        say("These errors are in statements that were not selected:")
        for problem in errors:
            say(problem.render())


@contextmanager
def progress(names: Sequence[str], stands: Progress) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """While tables load: gives `say`, for lines in between, and `next_one`, to be called when a table is done.

    How the load stands is shown all the time on a terminal, and as a line now and then elsewhere.
    """
    if not sys.stderr.isatty():
        with stands.told(PLAIN_SECONDS, say):
            yield _plain_progress(names)
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False, markup=False)
    # stdout is left alone: what goes there is the result, and may be piped elsewhere.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        waiting = iter(names)
        task = bar.add_task(next(waiting, ""), total=len(names))
        with stands.told(TERMINAL_SECONDS, lambda line: bar.update(task, description=line)):
            yield (
                lambda message: console.print(message),
                lambda: bar.update(task, advance=1, description=next(waiting, "")),
            )


def _plain_progress(names: Sequence[str]) -> tuple[Callable[[str], None], Callable[[], None]]:
    waiting = iter(enumerate(names, 1))

    def announce() -> None:
        if (one := next(waiting, None)) is not None:
            say(f"{one[1]}: loading ({one[0]} of {len(names)})")

    announce()
    return say, announce


def write_result(result: pa.Table, form: str, out: TextIO) -> None:
    """The rows of a query in one of `FORMATS`."""
    writers = {"table": _write_table, "json": _write_json, "jsonl": _write_jsonl, "csv": _write_csv}
    writers[form](result, out)


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Row by row, a batch at a time; by position, because two columns may have one name."""
    for batch in result.to_batches(max_chunksize=10_000):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _objects(result: pa.Table) -> Iterator[str]:
    seen: set[str] = set()
    for name in result.column_names:
        if name in seen:
            raise SameNames(name)
        seen.add(name)
    keys = [json.dumps(name, ensure_ascii=False) for name in result.column_names]
    for row in _rows(result):
        yield "{" + ", ".join(f"{key}: {to_json(value)}" for key, value in zip(keys, row, strict=True)) + "}"


def _write_jsonl(result: pa.Table, out: TextIO) -> None:
    for line in _objects(result):
        out.write(f"{line}\n")


def _write_json(result: pa.Table, out: TextIO) -> None:
    separator = "[\n  "
    for line in _objects(result):
        out.write(f"{separator}{line}")
        separator = ",\n  "
    out.write("[]\n" if separator.startswith("[") else "\n]\n")


def _write_csv(result: pa.Table, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in _rows(result):
        writer.writerow(["" if value is None else to_text(value) for value in row])


def _write_table(result: pa.Table, out: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD if out.isatty() else box.ASCII2, show_edge=False, pad_edge=False)
    for field in result.schema:
        shown.add_column(
            Text(field.name),
            justify="right" if _is_number(field.type) else "left",
            no_wrap=not out.isatty(),
            overflow="fold",
        )
    for row in _rows(result):
        shown.add_row(*(Text("NULL", style="dim") if value is None else Text(to_text(value)) for value in row))
    # Without a terminal there is no width to keep to, and a value cut off would be a wrong one.
    console = Console(file=out, highlight=False, width=None if out.isatty() else 1_000_000)
    console.print(shown)


def _is_number(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(type_) or pa.types.is_decimal(type_) or pa.types.is_floating(type_)


def to_text(value: Any) -> str:
    """A value as people write it; what is nested as JSON.

    >>> to_text(True), to_text(Decimal("1.10")), to_text(datetime(2025, 6, 15, 14, 30)), to_text([1, None])
    ('true', '1.10', '2025-06-15 14:30:00', '[1, null]')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, int | float | date) else to_json(value)


def to_json(value: Any) -> str:
    """A value as JSON; a DECIMAL as a number with all its digits, what JSON has no number for as text.

    >>> to_json({"a": [Decimal("1.10"), None, True, float("nan"), date(2025, 1, 1)]})
    '{"a": [1.10, null, true, "NaN", "2025-01-01"]}'
    """
    if value is None:
        return "null"
    if isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return (
            repr(value)
            if math.isfinite(value)
            else {"nan": '"NaN"', "inf": '"Infinity"'}.get(str(value), '"-Infinity"')
        )
    if isinstance(value, datetime):
        return f'"{value.isoformat().replace("+00:00", "Z")}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, bytes):
        return f'"{value.hex()}"'
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {to_json(one)}" for key, one in value.items())
            + "}"
        )
    # Arrow gives a map as a list of pairs.
    return "[" + ", ".join(to_json(one) for one in value) + "]"


def status_lines(found: TableStatus) -> list[str]:
    parts = [found.state]
    if found.rows is not None:
        parts.append(count(found.rows, "row"))
    if found.at is not None:
        parts.append(f"load {found.load} ({found.mode}) at {found.at:%Y-%m-%d %H:%M:%S} UTC, version {found.version}")
    if found.rejected:
        parts.append(f"{count(found.rejected, 'row')} rejected")
    lines = [f"{found.table}: {', '.join(parts)}; health: {found.health}"]
    return lines + [f"  reads  {one.kind} {one.name}: {_input_text(one)}" for one in found.inputs]


def _input_text(one: InputStatus) -> str:
    read = "nothing read" if one.position is None else f"{one.summary} read"
    if one.lag is None:
        waits = ["lag unknown"]
    elif one.lag:
        waits = [f"{count(one.lag, one.unit.removesuffix('s'))} waiting"]
    else:
        # A line that is not finished waits, though a load would take nothing: its note says so.
        waits = [] if one.unfinished else ["nothing waits"]
    return "; ".join([", ".join([read, *waits]), *one.notes])


def status_json(found: TableStatus) -> str:
    from dataclasses import asdict

    return to_json(asdict(found))
