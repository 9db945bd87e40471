"""Wrong arguments of aggregates and row functions, told before Spark is started.

Only what the text alone shows: how many arguments there are, numbers that are written out, OVER and ORDER BY.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from velo_dagster.sql.calls import PERCENTILES, UNFRAMED
from velo_dagster.sql.functions import words
from velo_dagster.sql.problems import Problem, error
from velo_dagster.sql.statements import Query, place

CODE = "E138"


@dataclass(frozen=True)
class Form:
    """How a function is called: the least and the most arguments, and how to write it."""

    least: int
    most: int
    written: str


def _forms(names: str, least: int, most: int, written: str) -> dict[str, Form]:
    return {name: Form(least, most, f"{name.upper()}{written}") for name in words(names)}


FORMS = {
    **_forms("sum avg mean min max median stddev stddev_samp stddev_pop variance var_samp var_pop", 1, 1, "(x)"),
    **_forms("collect collect_list collect_set array_agg", 1, 1, "(x)"),
    **_forms("count", 1, 999, "(*), COUNT(x) or COUNT(DISTINCT x)"),
    **_forms("approx_count_distinct", 1, 2, "(x) or APPROX_COUNT_DISTINCT(x, error)"),
    **_forms("first first_value last last_value", 1, 2, "(x)"),
    **_forms("string_agg", 2, 2, "(x, ',')"),
    **_forms("listagg group_concat", 1, 2, "(x, ',')"),
    **_forms("corr covar_pop covar_samp regr_slope regr_intercept regr_r2", 2, 2, "(y, x)"),
    **_forms("row_number rank dense_rank percent_rank cume_dist", 0, 0, "() OVER (PARTITION BY a ORDER BY b)"),
    **_forms("ntile", 1, 1, "(4) OVER (ORDER BY b)"),
    **_forms("lag lead", 1, 3, "(x, 1, default) OVER (PARTITION BY a ORDER BY b)"),
    **_forms("nth_value", 2, 3, "(x, 2) OVER (PARTITION BY a ORDER BY b)"),
}
_PERCENTILE = "(0.5) WITHIN GROUP (ORDER BY x)"
_WITH_OVER = UNFRAMED | {"nth_value"}


def wrong_arguments(query: Query) -> Iterator[Problem]:
    """Calls of aggregates and row functions that cannot be right."""
    for call in query.tree.find_all(exp.Anonymous):
        name = call.name.lower()
        arguments = _arguments(call)
        if name in PERCENTILES:
            found = _percentile(call, name, arguments)
        elif name in FORMS:
            found = _number_of(name, arguments) or _over(call, name) or _values(name, arguments)
        else:
            continue
        if found is not None:
            yield error(CODE, found[0], place(query, _starts(call, query)), *found[1:])
    yield from _buffers(query)


Finding = tuple[str, ...]
"""A message, and what to do."""


def _arguments(call: exp.Anonymous) -> list[exp.Expr]:
    """The arguments, out of DISTINCT and without the ORDER BY that may end them."""
    given = [one.this if isinstance(one, exp.Order) else one for one in call.expressions]
    return given[0].expressions if len(given) == 1 and isinstance(given[0], exp.Distinct) else given


def _starts(call: exp.Expr, query: Query) -> int:
    node: exp.Expr | None = call
    while node is not None and "call_start" not in node.meta:
        node = node.parent
    return query.start if node is None else node.meta["call_start"]


def _number_of(name: str, arguments: Sequence[exp.Expr]) -> Finding | None:
    form = FORMS[name]
    if form.least <= len(arguments) <= form.most:
        return None
    if name == "string_agg" and len(arguments) == 1:
        return "STRING_AGG needs what stands between the texts.", f"Write {form.written}."
    least, most = form.least, form.most
    wanted = "no arguments" if not most else f"{least} to {most}" if least < most < 999 else f"{least}"
    plural = "" if not most else " argument" if (least, most) in ((1, 1), (1, 999)) else " arguments"
    at_least = "at least " if most == 999 else ""
    return f"{name.upper()} takes {at_least}{wanted}{plural}, not {len(arguments)}.", f"Write {form.written}."


def _window(call: exp.Expr) -> exp.Window | None:
    """What OVER says of a call."""
    node = call
    while isinstance(node.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        node = node.parent
    window = node.parent
    return window if isinstance(window, exp.Window) and node.arg_key == "this" else None


def _over(call: exp.Expr, name: str) -> Finding | None:
    if name not in _WITH_OVER:
        return None
    window = _window(call)
    if window is None:
        return f"{name.upper()} looks at other rows, and needs OVER.", f"Write {FORMS[name].written}."
    if name in UNFRAMED and window.args.get("order") is None and not window.alias:
        step = "Add ORDER BY to its OVER (…)."
        return f"{name.upper()} needs an order of rows.", step
    return None


def _values(name: str, arguments: Sequence[exp.Expr]) -> Finding | None:
    if name == "ntile" and not _whole(arguments[0], 1):
        return "NTILE takes the number of groups: a whole number, at least 1.", "Write NTILE(4)."
    if name == "nth_value" and not _whole(arguments[1], 1):
        return "NTH_VALUE takes the number of the row: a whole number, at least 1.", "Write NTH_VALUE(x, 2)."
    if name in ("lag", "lead") and len(arguments) > 1 and not _whole(arguments[1], None):
        message = f"{name.upper()} takes the distance in rows: a whole number that is written out."
        return message, f"Write {name.upper()}(x, 1)."
    if name in ("listagg", "string_agg", "group_concat") and len(arguments) > 1 and _number(arguments[1]) is not None:
        return f"{name.upper()} takes the text between the texts second, not a number.", f"Write {FORMS[name].written}."
    return None


def _percentile(call: exp.Anonymous, name: str, arguments: Sequence[exp.Expr]) -> Finding | None:
    within = isinstance(call.parent, exp.WithinGroup)
    step = f"Write {name.upper()}{_PERCENTILE}."
    if len(arguments) != (1 if within else 2):
        found = "without WITHIN GROUP" if not within else f"with {len(arguments)} arguments"
        return f"{name.upper()} takes a fraction, and the values in WITHIN GROUP (ORDER BY …), not {found}.", step
    numbers = [number for one in arguments if (number := _number(one)) is not None]
    if not within and not numbers:
        return None
    fraction = numbers[-1] if numbers else None
    if fraction is not None and not 0 <= fraction <= 1:
        return f"{name.upper()} takes a fraction from 0 to 1, not {fraction}.", step
    text = isinstance(arguments[0], exp.Literal) and arguments[0].is_string
    return (f"{name.upper()} takes a fraction from 0 to 1, not a text.", step) if within and text else None


def _number(node: exp.Expr) -> Decimal | None:
    """The value of a number that is written out."""
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        return Decimal(node.name)
    except InvalidOperation:  # with a suffix, such as 5L: Spark's own
        return None


def _whole(node: exp.Expr, least: int | None) -> bool:
    """Whether it may be a whole number that is not less. Expressions of numbers are Spark's to judge."""
    if isinstance(node, exp.Column) or (isinstance(node, exp.Literal) and node.is_string):
        return False
    number = _number(node)
    if number is None:
        return not isinstance(node, exp.Null) or least is None
    return number == number.to_integral_value() and (least is None or number >= least)


def _buffers(query: Query) -> Iterator[Problem]:
    for window in query.tree.find_all(exp.Window):
        if "buffer" in window.meta and window.args.get("order") is None and not window.alias:
            where = place(query, window.meta["buffer"][0])
            yield error(CODE, "ROWS WINDOW BUFFER takes the last rows, and needs an order.", where, "Add ORDER BY.")
