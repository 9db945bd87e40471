"""Float aggregates whose bits do not depend on how Spark cut the rows: one place for every SELECT that is run.

Which calls of SUM, AVG, MIN and MAX are over doubles only Spark can tell: it is asked for the types of their arguments.
They are then rewritten (`velo_dagster.sql.floats`), and the functions that the rewritten query needs are made known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from velo_dagster.engine.exact import digits_of, from_digits, from_list
from velo_dagster.sql.floats import (
    BEYOND,
    DIGITS,
    FINISH,
    FINISH_LIST,
    Call,
    Edits,
    Exact,
    TypesOf,
    float_calls,
    is_window,
)
from velo_dagster.sql.statements import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_FIELD = re.compile(r"\bc(\d+): (\w+)")


def exact_calls(spark: SparkSession, query: Query, rendered: Callable[[Edits], str], *, wide: bool) -> Exact | None:
    """The edits that make the query's float aggregates exact; None where it has none.

    `rendered`: the query as Spark SQL over views that are there, so edited. The query itself must be one that Spark
    takes. `wide`: as `in_either_form` says.
    """
    calls = float_calls(query)
    types = _types(spark, query, [call for call in calls if call.depends_on_type], rendered)
    chosen = {call: types.get(call, "") for call in calls if call.computes_in_double(types.get(call, ""))}
    if not chosen:
        return None
    _register(spark)
    return Exact(chosen, wide)


def in_either_form(run: Callable[[bool], T]) -> T:
    """What `run` gives; it gets whether to use the wide form, and is run again so if the near form does not do."""
    try:
        return run(False)
    except Exception as error:
        if not is_beyond(error):
            raise
    return run(True)


def is_beyond(error: BaseException) -> bool:
    """Whether a query ended because of a number that the near form does not hold."""
    return BEYOND in str(error)


def _types(
    spark: SparkSession, query: Query, calls: Sequence[Call], rendered: Callable[[Edits], str]
) -> dict[Call, str]:
    """The types of the calls' first arguments. Calls that see the same columns are asked for together."""
    found: dict[Call, str] = {}
    for group in _together(query, calls):
        types = _asked(spark, rendered(TypesOf(group)))
        if len(types) < len(group):
            types = [one for call in group for one in _asked(spark, rendered(TypesOf([call]))) or [""]]
        found |= zip(group, types, strict=True)
    return found


def _together(query: Query, calls: Sequence[Call]) -> list[list[Call]]:
    groups: dict[tuple[int, bool], list[Call]] = {}
    for call in calls:
        groups.setdefault((_depth(query, call.start), is_window(query, call)), []).append(call)
    return list(groups.values())


def _depth(query: Query, at: int) -> int:
    """Where the SELECT begins in which something stands, as far as parentheses tell."""
    opened = [query.start]
    for token, following in zip(query.tokens, (*query.tokens[1:], None), strict=True):
        if token.start >= at:
            break
        if token.text == "(":
            inner = following is not None and following.text.upper() in ("SELECT", "WITH", "FROM")
            opened.append(token.start if inner else opened[-1])
        elif token.text == ")":
            opened.pop()
        elif token.text.upper() in ("UNION", "INTERSECT", "EXCEPT", "MINUS", "|>"):
            opened[-1] = token.start
    return opened[-1]


def _asked(spark: SparkSession, text: str) -> list[str]:
    """The types, if Spark tells them all."""
    from pyspark.errors import AnalysisException

    try:
        spark.sql(text).schema  # noqa: B018 - over Spark Connect, a query is looked at only when something is asked
    except AnalysisException as refused:
        told = (refused.getMessageParameters() or {}).get("inputType", "")
        return [type_ for _, type_ in sorted((int(n), type_) for n, type_ in _FIELD.findall(told))]
    return []


def _register(spark: SparkSession) -> None:
    from pyspark.sql.functions import arrow_udf

    whole = "array<bigint>"
    functions = ((_finish, "double"), (_finish_list, "double"), (_digits, whole), (_digits_of_pair, whole))
    for name, (function, type_) in zip((FINISH, FINISH_LIST, *DIGITS), functions, strict=True):
        # Its declared overloads want the kind of function as well; given that, it warns that hints say it better.
        spark.udf.register(name, arrow_udf(function, type_))  # pyright: ignore[reportCallIssue, reportArgumentType]


def _finish(function: pa.Array, lowest: pa.Array, n: pa.Array, digits: pa.Array, odd: pa.Array) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in (function, lowest, n, digits, odd)), strict=True)
    return pa.array([from_digits(*row) for row in rows], pa.float64())


def _finish_list(function: pa.Array, values: pa.Array) -> pa.Array:
    rows = zip(function.to_pylist(), values.to_pylist(), strict=True)
    return pa.array([from_list(*row) for row in rows], pa.float64())


def _digits(x: pa.Array) -> pa.Array:
    return _digits_where([x])


def _digits_of_pair(x: pa.Array, y: pa.Array) -> pa.Array:
    return _digits_where([x, y])


def _digits_where(columns: Sequence[pa.Array]) -> pa.Array:
    """The digits of rows in which no value is NULL; NULL for others."""
    there = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
    found = digits_of([column.to_numpy(zero_copy_only=False)[there] for column in columns])
    offsets = pa.array(np.concatenate([[0], np.cumsum(np.where(there, found.shape[1], 0))]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(found.ravel()), mask=pa.array(~there))
