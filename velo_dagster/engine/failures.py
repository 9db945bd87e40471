"""Spark's errors in our words: the sentence that helps, where in the user's file, and nothing of the JVM's stack.

Spark says which stretch of the text that it got is wrong. That text is the user's own with some places rewritten, so
the same words stand in the user's file: they are looked for there, and where they stand more than once, the one that
is the same in number counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token

from velo_dagster.engine.casts import casts_that_overflow, too_narrow
from velo_dagster.engine.errors import StatementFailed
from velo_dagster.errors import Span, VeloError
from velo_dagster.plan.project import TablePlan
from velo_dagster.sources.errors import SourceError
from velo_dagster.sql import functions
from velo_dagster.sql.dialect import Velo
from velo_dagster.sql.names import HIDDEN_PREFIX, sanitise
from velo_dagster.sql.problems import StatementError, nearest
from velo_dagster.sql.problems import error as problem
from velo_dagster.sql.render import place
from velo_dagster.sql.statements import Column, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOISE = re.compile(r"\n(JVM stacktrace|== SQL|== DataFrame ==|\s+at |Caused by:|Driver stacktrace|Traceback).*", re.S)
SAME_LINE = re.compile(r"\s*Traceback \(most recent call last\):?.*", re.S)
STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.S)
CAUSE = re.compile(r"^(?:Caused by: )[\w.$]+: ([^\n]+)", re.M)
HIDDEN_NAMES = re.compile(r", `_velo_\w+`|`_velo_\w+`, ")
PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.M)
WRITING = re.compile(r"\[TASK_WRITE_FAILED\] Task failed while writing rows to \S+$")
OTHER_MODE = re.compile(
    r"\s*If (?:necessary,? |you have to cast [^\n]+, you can )"
    r'set "spark\.sql\.ansi\.enabled" (?:to|as) "?false"?[^.\n]*\.'
)
"""Spark's advice to compute in another mode, which sessions do not have: overflows would be NULL without a word."""
WIDER = "Compute in a wider type, such as DECIMAL(38, 2)."
MOST_DIGITS = "38 digits is the most there is: ROUND or CAST to fewer digits behind the point, or CAST to DOUBLE."
UNDERLINED = re.compile(r"== SQL \(line \d+, position \d+\) ==\n([^\n]*)\n( *)(\^+)")
REMEDIES = {
    "No space left on device": "Make room on the disk of the warehouse, and on that of temporary files (TMPDIR).",
    "_BY_ZERO]": "Divide by NULLIF(x, 0), or write try_divide or try_mod: NULL is then the result where x is 0.",
    "[CAST_INVALID_INPUT]": "Write TRY_CAST, which gives NULL for such values, or leave those rows out with WHERE.",
    "represented as Decimal(38,": MOST_DIGITS,
    "sum of decimals": MOST_DIGITS,
    "OVERFLOW]": WIDER,
    "[NUMERIC_VALUE_OUT_OF_RANGE": WIDER,
    "OutOfMemoryError": "Give Spark more memory, in velo.yaml: engine: {spark.driver.memory: 4g}.",
}
"""What helps, by what an error says."""
MEND = "Mend the statement, or the data that it reads; velo-dagster --debug shows all that Spark says."
PROPOSED = 5
"""How many names Spark proposes at most; with fewer, these are all there are."""


def run_sql(spark: SparkSession, text: str, query: Query, *, no_column: str = "E114") -> DataFrame:
    """`spark.sql`; what is wrong with the text is told at its place in the user's query. `no_column`: a code."""
    from pyspark.errors import AnalysisException

    try:
        return spark.sql(text)
    except AnalysisException as refused:
        raise explained(refused, query, query.span, text=text, no_column=no_column) from refused


@contextmanager
def told_at(span: Span) -> Iterator[None]:
    """What is wrong with a source is told where the statement names it, unless it has a place of its own."""
    try:
        yield
    except SourceError as error:
        error.at(span)
        raise


def as_velo_error(error: Exception, plan: TablePlan) -> VeloError:
    """The error to show; the original stays its cause, for whoever asks for the details."""
    lead = f"Table '{plan.name}' could not be loaded and is as it was. "
    statement = plan.statement
    made = explained(error, statement.query, statement.span, lead=lead, declared=statement.columns)
    made.__cause__ = error
    return made


def explained(
    error: Exception,
    query: Query,
    span: Span,
    *,
    text: str | None = None,
    lead: str = "",
    no_column: str = "E114",
    declared: Sequence[Column] = (),
) -> VeloError:
    """What Spark said about `query`. `span` is the place if it has none; `text` what Spark was given, where known."""
    narrow = too_narrow(summary(error), declared, lead)
    if narrow is not None:
        return narrow
    casts = casts_that_overflow(error, query)
    where = casts[0] if len(casts) == 1 else where_in(query, error, text)
    condition, parameters = _condition(error)
    kind = condition.partition(".")[0]
    if kind == "UNRESOLVED_COLUMN":
        return _no_column(no_column, _parts(parameters["objectName"]), parameters.get("proposal", ""), where or span)
    if kind == "FIELD_NOT_FOUND":
        return _no_column(no_column, _parts(parameters["fieldName"]), parameters.get("fields", ""), where or span)
    if kind == "UNRESOLVED_ROUTINE":
        return _no_function(".".join(_parts(parameters["routineName"])), where or span)
    said = summary(error)
    steps = [f"It is one of the casts at {', '.join(map(str, casts))}."] if len(casts) > 1 else []
    return StatementFailed(f"{lead}{said}", where=where or span, steps=[*steps, _remedy(said)])


def _remedy(said: str) -> str:
    """
    >>> _remedy("[REMAINDER_BY_ZERO] Remainder by zero.")
    'Divide by NULLIF(x, 0), or write try_divide or try_mod: NULL is then the result where x is 0.'
    """
    return next((step for sign, step in REMEDIES.items() if sign in said), MEND)


def _condition(error: Exception) -> tuple[str, Mapping[str, str]]:
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return "", {}
    return error.getCondition() or "", error.getMessageParameters() or {}


def _no_column(code: str, parts: Sequence[str], proposal: str, where: Span) -> StatementError:
    proposed = [_parts(name) for name in re.findall(r"(?:`(?:[^`]|``)+`\.?)+", proposal)]
    known = [names for names in proposed if not names[-1].startswith(HIDDEN_PREFIX)]
    # The relation is worth naming only where it is what is wrong.
    wrong_relation = len(parts) > 1 and not any(names[:-1] == parts[:-1] for names in known if len(names) > 1)
    name = ".".join(parts) if wrong_relation else parts[-1]
    names = list(dict.fromkeys(".".join(one) if wrong_relation else one[-1] for one in known))
    similar = nearest(name, names)
    steps = [f"Did you mean {' or '.join(similar)}?"] if similar else []
    listed = "There are" if len(proposed) < PROPOSED else "There are, among others,"
    steps += [f"{listed} {', '.join(names)}."] if names else []
    return StatementError(problem(code, f"There is no column '{name}'.", where, *steps))


def _no_function(name: str, where: Span) -> StatementError:
    known = functions.AGGREGATES | functions.WINDOW_FUNCTIONS | functions.GENERATORS | functions.ROW_FUNCTIONS
    similar = nearest(name, sorted(known))
    steps = [f"Did you mean {' or '.join(similar)}?"] if similar else ["Functions are those of Spark SQL."]
    return StatementError(problem("E131", f"There is no function '{name}'.", where, *steps))


def _parts(quoted: str) -> list[str]:
    """
    >>> _parts("`o`.`a``b`"), _parts("plain")
    (['o', 'a`b'], ['plain'])
    """
    found = re.findall(r"`((?:[^`]|``)+)`", quoted)
    return [part.replace("``", "`") for part in found] or [quoted]


# -- places ---------------------------------------------------------------------------------------------------------


def where_in(query: Query, error: Exception, text: str | None = None) -> Span | None:
    """Where in the user's file that stands which Spark complains about; None where that can't be told."""
    fragment, start = _complaint(error)
    wanted = _words(fragment)
    if not wanted:
        return None
    found = _find(_named(query.tokens), wanted)
    if not found:
        return None
    one_scope = sum(1 for _ in query.tree.find_all(exp.Select)) == 1
    if len(found) == 1 or one_scope:
        return place(query, _last_name(query.tokens, found[0], wanted))
    if text is None or start is None:
        return None
    theirs = _tokens(text)
    places = [theirs[index].start for index in _find(_named(theirs), wanted)]
    if len(places) != len(found) or start not in places:
        return None
    return place(query, _last_name(query.tokens, found[places.index(start)], wanted))


def _complaint(error: Exception) -> tuple[str, int | None]:
    """The stretch of SQL that an error names, and where it began in the text that Spark was given."""
    from pyspark.errors import PySparkException
    from pyspark.errors.exceptions.base import QueryContextType

    if isinstance(error, PySparkException):
        for context in error.getQueryContext():
            if context.contextType() == QueryContextType.SQL:
                return context.fragment(), context.startIndex()
    condition, parameters = _condition(error)
    if condition == "MISSING_AGGREGATION":
        # It names the expression, in quotes, and no place.
        return parameters.get("expression", "").strip('"'), None
    # A failure of a task comes as text only.
    underlined = UNDERLINED.search(str(error))
    if underlined is None:
        return "", None
    line, before, marks = underlined.groups()
    return line[len(before) : len(before) + len(marks)], None


def _tokens(text: str) -> list[Token]:
    try:
        return Velo().tokenize(text)
    except TokenError:
        # Cut off by Spark within a quote, say: then it is not found.
        return []


def _named(tokens: Sequence[Token]) -> list[str]:
    return [sanitise(token.text).casefold() for token in tokens]


def _words(text: str) -> list[str]:
    return _named(_tokens(text))


def _find(words: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where `wanted` begins in `words`, not as the field of something else, unless that is wanted as well."""
    size = len(wanted)
    return [
        at
        for at in range(len(words) - size + 1)
        if list(words[at : at + size]) == list(wanted) and (at == 0 or words[at - 1] != ".")
    ]


def _last_name(tokens: Sequence[Token], at: int, wanted: Sequence[str]) -> int:
    """Where to point: at the column of `o.amount`, else at where the stretch begins."""
    qualified = len(wanted) > 1 and all(word == "." for word in wanted[1::2])
    return tokens[at + len(wanted) - 1 if qualified else at].start


def summary(error: Exception) -> str:
    """The part of an error's text that concerns the user.

    >>> summary(ValueError("[DIVIDE_BY_ZERO] Division by zero.\\n== SQL (line 1) ==\\nx\\n\\tat org.apache"))
    '[DIVIDE_BY_ZERO] Division by zero.'
    >>> summary(ValueError("A worker failed:\\nTraceback (most recent call last):\\n  File x\\nOSError: disk on fire"))
    'A worker failed: OSError: disk on fire'
    >>> summary(ValueError("[P] Failed: Traceback (most recent call last):\\n  File x\\nOSError: disk on fire\\n"))
    '[P] Failed: OSError: disk on fire'
    >>> wrote = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/t. SQLSTATE: 58030"
    >>> summary(ValueError(f"{wrote}\\n\\tat x\\nCaused by: a.B: [CAST_OVERFLOW] Too large. SQLSTATE: 22003"))
    '[CAST_OVERFLOW] Too large.'
    """
    whole = str(error)
    text = NOISE.sub("", whole).strip()
    named = re.search(r"(?:Exception|Error): (\[[A-Z_.]+\][^\n]*)", text)
    said = SAME_LINE.sub("", HIDDEN_NAMES.sub("", STATE.sub("", named.group(1) if named else text))).strip()
    python = PYTHON.findall(whole)
    if python and python[-1] not in said:
        # What a source raised in a worker says more than what the JVM made of it.
        return f"{said} {python[-1]}"
    causes = [STATE.sub("", cause) for cause in CAUSE.findall(whole)]
    if causes and causes[-1].startswith("[") and WRITING.match(said):
        # Where rows are written when an expression fails is Spark's affair.
        return OTHER_MODE.sub("", causes[-1])
    told = f"{said} Cause: {causes[-1]}" if causes and causes[-1] not in said else said
    return OTHER_MODE.sub("", told)
