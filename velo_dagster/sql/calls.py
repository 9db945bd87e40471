"""Calls of functions as users of other engines write them, in Spark's words.

| written | for Spark |
|---|---|
| COLLECT(x) | collect_list(x) |
| GROUP_CONCAT(x [, s]), GROUP_CONCAT(x [ORDER BY y] SEPARATOR s) | listagg(x, s), by a comma if nothing is given |
| STRING_AGG(x, s ORDER BY y), and its other names | listagg(x, s) WITHIN GROUP (ORDER BY y) |
| PERCENTILE_CONT(x, p), PERCENTILE_DISC(x, p) | percentile_cont(p) WITHIN GROUP (ORDER BY x) |
| f(…) OVER (ROWS WINDOW BUFFER n ROWS …) | the frame of the last n rows; nothing for functions that take no frame |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql.functions import words
from velo_dagster.sql.marks import Span
from velo_dagster.sql.splice import Part, Splice
from velo_dagster.sql.statements import Query

LISTS = words("string_agg listagg group_concat")
PERCENTILES = words("percentile_cont percentile_disc")
UNFRAMED = words("row_number rank dense_rank percent_rank cume_dist ntile lag lead")
"""Functions that look at the whole partition, whatever frame there is; Spark takes none with them."""
KEEP_ONE = "Keep the buffer or the frame, not both: a buffer of n rows is the frame of the last n rows."
OWN_WINDOWS = "Give functions that take no frame, such as LAG and ROW_NUMBER, a window of their own."
_NAMES = {"collect": "collect_list", "group_concat": "listagg"}


@dataclass(frozen=True)
class Call:
    """A call in the text: its name, its arguments, an ORDER BY and a SEPARATOR among them, its parentheses."""

    name: Token
    arguments: tuple[Span, ...]
    order: Span | None
    separator: Span | None
    opening: Token
    closing: Token


def calls(tokens: Sequence[Token], names: frozenset[str]) -> Iterator[Call]:
    """All calls of these functions."""
    for index, (token, following) in enumerate(pairwise(tokens)):
        if token.text.lower() in names and following.token_type == TokenType.L_PAREN and not _quoted(token):
            yield _call(tokens, index)


def _quoted(token: Token) -> bool:
    return token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)


def _call(tokens: Sequence[Token], index: int) -> Call:
    own, close = _own_tokens(tokens, index + 1)
    opening, closing = tokens[index + 1], tokens[close]
    order = next((tokens[at] for at in own if tokens[at].token_type == TokenType.ORDER_BY), None)
    words = (at for at in own if tokens[at].text.upper() == "SEPARATOR")
    separator = next((at for at in words if tokens[at + 1].token_type == TokenType.STRING), None)
    last = closing.start if separator is None else tokens[separator].start
    end = last if order is None else order.start
    commas = [tokens[at] for at in own if tokens[at].token_type == TokenType.COMMA and tokens[at].start < end]
    starts, ends = [opening.end + 1, *(c.end + 1 for c in commas)], [*(c.start for c in commas), end]
    return Call(
        name=tokens[index],
        arguments=tuple(zip(starts, ends, strict=True)) if own else (),
        order=None if order is None else (order.start, last),
        separator=None if separator is None else (tokens[separator + 1].start, tokens[separator + 1].end + 1),
        opening=opening,
        closing=closing,
    )


def _own_tokens(tokens: Sequence[Token], opening: int) -> tuple[list[int], int]:
    """The tokens in a pair of parentheses that stand in no other pair, and where it closes."""
    own: list[int] = []
    depth = 0
    for at in range(opening, len(tokens)):
        kind = tokens[at].token_type
        depth += (kind in _OPEN) - (kind in _CLOSE)
        if depth == 0:
            return own, at
        if at > opening and depth == 1:
            own.append(at)
    return own, len(tokens) - 1


_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET)


def rename(splice: Splice, query: Query) -> None:
    """Every call but for frames."""
    for call in calls(query.tokens, LISTS | PERCENTILES | {"collect"}):
        name = call.name.text.lower()
        if name in _NAMES:
            splice.replace((call.name.start, call.name.end + 1), _NAMES[name])
        if name in LISTS:
            _list(splice, call)
        elif name in PERCENTILES and len(call.arguments) == 2:
            _percentile(splice, query, call)


def _list(splice: Splice, call: Call) -> None:
    default = "','" if call.name.text.lower() == "group_concat" else None
    wanted = call.separator or (default if len(call.arguments) == 1 else None)
    if call.order is None and call.separator is None:
        if wanted is not None and call.arguments:
            splice.insert(call.closing.start, ", ','")
        return
    parts: list[Part] = [] if wanted is None else [", ", wanted]
    within: list[Part] = [" WITHIN GROUP (", call.order, ")"] if call.order is not None else []
    splice.replace((call.arguments[-1][1], call.closing.end + 1), *parts, ")", *within)


def _percentile(splice: Splice, query: Query, call: Call) -> None:
    """The fraction is the second argument, unless only the first one is a number."""
    first, second = (query.source[slice(*span)].strip() for span in call.arguments)
    value, fraction = call.arguments
    if _is_number(first) and not _is_number(second):
        value, fraction = fraction, value
    span = (call.opening.start, call.closing.end + 1)
    splice.replace(span, "(", fraction, ") WITHIN GROUP (ORDER BY ", value, ")")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def frame(splice: Splice, query: Query) -> None:
    """ROWS WINDOW BUFFER n ROWS. After ties were broken: the frame stands behind all that the rows are ordered by."""
    for window in query.tree.find_all(exp.Window):
        if "buffer" not in window.meta:
            continue
        start, end, rows = window.meta["buffer"]
        splice.replace((start, end))
        order, written = window.args.get("order"), window.args.get("spec")
        if not framed(window) or order is None:
            continue
        if written is None:
            splice.insert(order.meta["end"], f" ROWS BETWEEN {rows - 1} PRECEDING AND CURRENT ROW")
        elif reaches_back(written, rows):
            splice.replace(window.meta["bounds"][0], f"{rows - 1} PRECEDING")


def reaches_back(spec: exp.WindowSpec, rows: int) -> bool:
    """Whether a frame begins before the last `rows` rows."""
    start, side = spec.args.get("start"), str(spec.args.get("start_side")).upper()
    if side != "PRECEDING":
        return False
    return start == "UNBOUNDED" or (isinstance(start, exp.Literal) and int(start.name) >= rows)


def why_no_buffer(window: exp.Window) -> tuple[str, str] | None:
    """What stands against a buffer of rows, and what to do; None if nothing does, or there is none."""
    if "buffer" not in window.meta:
        return None
    spec, names = window.args.get("spec"), window_functions(window)
    if spec is not None and str(spec.args.get("kind")).upper() != "ROWS":
        return "together with a frame of RANGE", KEEP_ONE
    if spec is not None and str(spec.args.get("end_side")).upper() == "PRECEDING":
        return "together with a frame that ends before the row itself", KEEP_ONE
    mixed = names & UNFRAMED and names - UNFRAMED
    return ("in a named window of functions with and without a frame", OWN_WINDOWS) if mixed else None


def framed(window: exp.Window) -> bool:
    """Whether what looks through the window takes a frame."""
    return not any(name in UNFRAMED for name in window_functions(window))


def window_functions(window: exp.Window) -> set[str]:
    """The functions that look through a window: its own, or those that name it."""
    if window.args.get("over") is not None:
        return {_function(window)}
    select = window.find_ancestor(exp.Select)
    name = window.name.casefold()
    uses = select.find_all(exp.Window) if select is not None else ()
    return {_function(use) for use in uses if use.args.get("over") is not None and use.alias.casefold() == name}


def _function(window: exp.Window) -> str:
    call = window.this
    while isinstance(call, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        call = call.this
    return call.name.lower()
