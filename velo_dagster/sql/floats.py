"""Aggregates that compute in DOUBLE, in a form whose answer does not depend on the order of rows.

Adding doubles rounds at every step, so `sum(x)` depends on how Spark cut the rows. Here every double is cut into whole
numbers first (`digits`). Sums of whole numbers are exact in any order, Spark merges partial ones, and memory does not
grow with the rows. What the user's function makes of them is computed once per group, exactly, and rounded once
(`velo_dagster.engine.exact`).

The near form has digits enough for ordinary data. A number beyond them ends the query with `BEYOND`; the query is then
asked again in the wide form, which has digits for every double there is, and costs more. Both give the exact answer,
rounded once, so nobody can tell which one answered.

DISTINCT, skewness and kurtosis, and in the wide form all that needs squares, take the list of a group's values.

MIN and MAX compute nothing, but of two zeros, which are equal, they take the one that they meet first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from velo_dagster.sql.digits import (
    EVERY,
    NEAR,
    NEAR_FACTOR,
    NEAR_PRODUCT,
    Stretch,
    Text,
    digits,
    far_digits,
    joined,
    less,
    within,
)
from velo_dagster.sql.functions import words
from velo_dagster.sql.splice import Span, Splice
from velo_dagster.sql.statements import Query

FINISH, FINISH_LIST, DIGITS = "velo_exact", "velo_exact_list", ("velo_digits", "velo_digits_of_pair")
BEYOND = "VELO_NUMBER_BEYOND_THE_NEAR_FORM"

_ADDING = words("sum try_sum avg mean try_avg")
_CHOOSING = words("min max")
_SPREAD = words("std stddev stddev_samp stddev_pop variance var_samp var_pop")
_LISTED = words("skewness kurtosis")
_PAIRS = words("corr covar_pop covar_samp regr_slope regr_intercept regr_r2 regr_sxy")
_OF_ONE = {"regr_avgy": ("avg", 0), "regr_syy": ("regr_sxx", 0), "regr_avgx": ("avg", 1), "regr_sxx": ("regr_sxx", 1)}
"""Functions of pairs that look at one side of those that are complete: which function of which argument."""
FUNCTIONS = _ADDING | _CHOOSING | _SPREAD | _LISTED | _PAIRS | _OF_ONE.keys()

_FLOATS = words("double float string")
_WHOLE = words("tinyint smallint int bigint")
_ZEROS = words("double float")
"""Types with two zeros."""
_NOT_CALLS = (TokenType.DOT, TokenType.ALIAS, TokenType.WITH, TokenType.RECURSIVE)


@dataclass(frozen=True)
class Call:
    """`function([DISTINCT] arguments) [FILTER (…)] [OVER …]`: where it and its parts stand. `rest`: what follows )."""

    function: str
    start: int
    arguments: tuple[Span, ...]
    distinct: bool
    rest: Span

    @property
    def depends_on_type(self) -> bool:
        return self.function in _ADDING | _CHOOSING

    def computes_in_double(self, type_: str) -> bool:
        """Whether it does over an argument of a type. AVG adds whole numbers as doubles, too."""
        taken = _FLOATS if self.function in ("sum", "try_sum") else _FLOATS | _WHOLE
        taken = _ZEROS if self.function in _CHOOSING else taken
        return not self.depends_on_type or type_.lower() in taken


@dataclass(frozen=True)
class Exact:
    """These calls in a form that does not depend on the order of rows."""

    calls: Mapping[Call, str]
    """With the types of their arguments, as far as they matter."""
    wide: bool = False

    def edit(self, splice: Splice) -> None:
        for call, type_ in self.calls.items():
            splice.replace((call.start, call.rest[1]), *_rewritten(call, type_.lower(), self.wide))


@dataclass(frozen=True)
class TypesOf:
    """Spark's refusal of the query so edited tells the types of the calls' arguments, as `c0: DOUBLE, c1: …`."""

    calls: Sequence[Call]

    def edit(self, splice: Splice) -> None:
        fields = [(f"'c{number}', (", call.arguments[0], ")") for number, call in enumerate(self.calls)]
        splice.replace(self.calls[0].arguments[0], "size(named_struct(", *joined(fields, ", "), "))")


Edits = Exact | TypesOf


def float_calls(query: Query) -> list[Call]:
    """The calls of aggregates that compute in DOUBLE, or may."""
    tokens = query.tokens
    found: list[Call] = []
    for index, (token, following) in enumerate(pairwise(tokens)):
        named = token.text.lower() in FUNCTIONS and following.token_type == TokenType.L_PAREN
        if named and not (index and tokens[index - 1].token_type in _NOT_CALLS):
            call = _call(tokens, index)
            if len(call.arguments) == (2 if call.function in _PAIRS | _OF_ONE.keys() else 1):
                found.append(call)
    return found


def is_window(query: Query, call: Call) -> bool:
    """Whether it looks through a window: its argument may then hold aggregates."""
    return any(token.text.upper() == "OVER" for token in query.tokens if call.rest[0] <= token.start < call.rest[1])


def _call(tokens: Sequence[Token], index: int) -> Call:
    close = _closing(tokens, index + 1)
    first = index + 2
    distinct = tokens[first].token_type == TokenType.DISTINCT
    first += tokens[first].token_type in (TokenType.DISTINCT, TokenType.ALL)
    last = close
    if _text(tokens, last + 1) == "FILTER" and _text(tokens, last + 2) == "(":
        last = _closing(tokens, last + 2)
    if _text(tokens, last + 1) == "OVER":
        last = _closing(tokens, last + 2) if _text(tokens, last + 2) == "(" else last + 2
    rest = (tokens[close].end + 1, tokens[last].end + 1)
    return Call(tokens[index].text.lower(), tokens[index].start, tuple(_listed(tokens, first, close)), distinct, rest)


def _text(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].text.upper() if index < len(tokens) else ""


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if depth == 0:
            return index
    return len(tokens) - 1


def _listed(tokens: Sequence[Token], first: int, close: int) -> Iterator[Span]:
    """The stretches between the commas that stand between the parentheses themselves."""
    depth, begin = 0, first
    for index in range(first, close + 1):
        kind = tokens[index].token_type
        if index == close or (kind == TokenType.COMMA and depth == 0):
            if index > begin:
                yield tokens[begin].start, tokens[index - 1].end + 1
            begin = index + 1
        depth += kind in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= kind in (TokenType.R_PAREN, TokenType.R_BRACKET)


# -- the rewritten call -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """What a call computes with in each row. `also`: what else must be there for the row to count."""

    function: str
    values: tuple[Text, ...]
    also: Text
    call: Call

    @property
    def there(self) -> Text:
        """Whether a row counts."""
        return (*joined(((*value, " IS NOT NULL") for value in self.values), " AND "), *self.also)

    def aggregate(self, name: str, value: Text) -> Text:
        """An aggregate over the rows that the call looks at."""
        return (f"{name}(", *value, ")", self.call.rest)

    def where(self, condition: Text, value: Text) -> Text:
        return ("CASE WHEN ", *condition, *self.also, " THEN ", *value, " END")

    def finish(self, count: Text, sums: Sequence[tuple[Stretch, Sequence[Text]]], odd: Text) -> Text:
        """What the function makes of the digits' sums over all rows, and of the odd values."""
        lowest = ", ".join(str(stretch.lowest) for stretch, _ in sums)
        arrays = [("array(", *joined((self.aggregate("sum", digit) for digit in one), ", "), ")") for _, one in sums]
        start = f"{FINISH}('{self.function}', array({lowest}), "
        return (start, *count, ", array(", *joined(arrays, ", "), "), ", *odd, ")")


def _rewritten(call: Call, type_: str, wide: bool) -> Text:
    if call.function in _CHOOSING:
        return _chosen(call, type_)
    rows = _rows(call)
    if type_ in _WHOLE and not call.distinct:
        return _sum_of_whole(rows, type_)
    if call.distinct or rows.function in _LISTED or (wide and rows.function not in _ADDING):
        return _over_list(rows)
    return _sum(rows, wide) if rows.function in _ADDING else _near_moments(rows)


def _rows(call: Call) -> _Rows:
    values = tuple(("CAST((", span, ") AS DOUBLE)") for span in call.arguments)
    if call.function not in _OF_ONE:
        return _Rows(call.function, values, (), call)
    function, number = _OF_ONE[call.function]
    return _Rows(function, (values[number],), (" AND (", call.arguments[1 - number], ") IS NOT NULL"), call)


def _chosen(call: Call, type_: str) -> Text:
    """Of -0.0 and 0.0, which are equal, Spark takes the one that it meets first: here it is 0.0 always."""
    zero = "0.0D" if type_ == "double" else "CAST(0 AS FLOAT)"
    return (f"({call.function}(", call.arguments[0], ")", call.rest, f" + {zero})")


def _sum(rows: _Rows, wide: bool) -> Text:
    """A number beyond the near form ends the query; infinities and NaN are added as they are."""
    (value,) = rows.values
    count = rows.aggregate("count", rows.where((*value, " IS NOT NULL"), ("1",)))
    if wide:
        digits_of = [rows.where(less(value, None), digit) for digit in far_digits(value)]
        odd = rows.where(("NOT (", *less(value, None), ")"), value)
        return rows.finish(count, [(EVERY, digits_of)], rows.aggregate("sum", odd))
    digits_of = [rows.where(less(value, NEAR.below), digit) for digit in digits(value, NEAR)]
    beyond = f"CAST(raise_error('{BEYOND}') AS DOUBLE)"
    odd = ("CASE WHEN ", *less(value, None), f" THEN {beyond} ELSE ", *value, " END")
    odd = rows.where(("NOT (", *within(value, NEAR), ")"), odd)
    return rows.finish(count, [(NEAR, digits_of)], rows.aggregate("sum", odd))


def _sum_of_whole(rows: _Rows, type_: str) -> Text:
    """Whole numbers are their own digits; a BIGINT is two, so that many can be added."""
    (argument,) = rows.call.arguments
    value = ("CAST((", argument, ") AS BIGINT)")
    cut = [("(", *value, " & 4294967295)"), ("shiftright(", *value, ", 32)")] if type_ == "bigint" else [value]
    count = rows.aggregate("count", value)
    return rows.finish(count, [(Stretch(0, len(cut)), cut)], ("CAST(NULL AS DOUBLE)",))


def _near_moments(rows: _Rows) -> Text:
    """Sums of the values, of their squares, and of the products of two."""
    moments = [NEAR_FACTOR, NEAR_PRODUCT] if len(rows.values) == 1 else [NEAR_FACTOR] * 2 + [NEAR_PRODUCT] * 3
    called = (f"{DIGITS[len(rows.values) - 1]}(", *joined(rows.values, ", "), ")")
    if rows.also:
        # Rows that do not count must not be looked at: they may hold a number beyond the near form.
        called = (f"{DIGITS[0]}(", *rows.where((*rows.values[0], " IS NOT NULL"), rows.values[0]), ")")
    places = iter(range(2 + sum(stretch.count for stretch in moments)))
    count, odd = (rows.aggregate("sum", (*called, f"[{next(places)}]")) for _ in range(2))
    sums = [(stretch, [(*called, f"[{next(places)}]") for _ in range(stretch.count)]) for stretch in moments]
    return rows.finish(("coalesce(", *count, ", 0L)"), sums, ("CASE WHEN ", *odd, " > 0 THEN double('NaN') END"))


def _over_list(rows: _Rows) -> Text:
    # -0.0 + 0.0 is 0.0: for DISTINCT they are the same value.
    values = ("array(", *joined(((*value, " + 0.0D") for value in rows.values), ", "), ")")
    collect = "collect_set" if rows.call.distinct else "collect_list"
    items = ("CASE WHEN ", *rows.there, " THEN ", *values, " END")
    return (f"{FINISH_LIST}('{rows.function}', ", *rows.aggregate(collect, items), ")")
