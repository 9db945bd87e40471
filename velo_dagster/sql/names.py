"""Names that a Delta table can carry, and names that are ours.

Delta refuses a column whose name holds one of ` ,;{}()` newline tab `=`, and those that its change feed has itself.
Such a name is sanitised in one way everywhere: in the columns of a source, in the identifiers of a query, and in the
columns a query computes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from velo_dagster.errors import Span, Terminal, VeloError

HIDDEN_PREFIX = "_velo_"
SOURCE_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_file", "_line")
"""The system columns of a source row."""
KIND_COLUMNS = {"file": SOURCE_COLUMNS[6:], "kafka": SOURCE_COLUMNS[:6]}
"""Those that rows of a kind of source have."""

_REFUSED = re.compile(r"[ ,;{}()\n\t=]+")
_OF_THE_FEED = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JOIN_WORDS = frozenset(
    [
        "anti",
        "cross",
        "except",
        "full",
        "inner",
        "intersect",
        "join",
        "lateral",
        "left",
        "minus",
        "natural",
        "on",
        "right",
        "semi",
        "union",
        "using",
    ]
)


class NameClash(Terminal, VeloError):
    """Two columns that would get the same name."""

    code = "E140"

    def __init__(self, first: str, second: str, name: str, where: Span | str | None = None) -> None:
        steps = ["Give one of them another name: SELECT … AS other_name."]
        if first.casefold() == second.casefold():
            steps += [
                f"If they come from SELECT * over a join, leave one out: SELECT a.*, b.* EXCEPT ({name}).",
                f"Or join by it: JOIN … USING ({name}).",
            ]
        super().__init__(
            f"The columns '{first}' and '{second}' would both be called '{name}'.", where=where, steps=steps
        )


def sanitise(name: str) -> str:
    """
    >>> sanitise("Order ID"), sanitise("count(1)"), sanitise("(a + b)"), sanitise("plain"), sanitise("=")
    ('Order_ID', 'count_1', 'a_+_b', 'plain', '_')
    >>> sanitise("_change_type")
    'change_type'
    """
    if name.casefold() in _OF_THE_FEED:
        return name.removeprefix("_")
    if not _REFUSED.search(name):
        return name
    return _REFUSED.sub(" ", name).strip().replace(" ", "_") or "_"


def sanitise_all(names: Iterable[str], where: Span | str | None = None) -> tuple[str, ...]:
    """Every name sanitised; an error if two become one (case does not tell columns apart)."""
    seen: dict[str, str] = {}
    result: list[str] = []
    for name in names:
        clean = sanitise(name)
        if (other := seen.get(clean.casefold())) is not None:
            raise NameClash(other, name, clean, where)
        seen[clean.casefold()] = name
        result.append(clean)
    return tuple(result)


def not_own(system: Iterable[str], own: Iterable[str]) -> tuple[str, ...]:
    """The system columns of rows that have these columns of their own, which stand before them.

    >>> not_own(["_file", "_line"], ["id", "_Line"])
    ('_file',)
    """
    taken = {name.lower() for name in own}
    return tuple(name for name in system if name not in taken)


def is_hidden(name: str) -> bool:
    return name.lower().startswith(HIDDEN_PREFIX)


def is_plain(name: str) -> bool:
    """Whether the name can stand in SQL without quotes, also where Spark may take a word for a join's.

    >>> is_plain("orders"), is_plain("order id"), is_plain("left")
    (True, False, False)
    """
    return _PLAIN.fullmatch(name) is not None and name.lower() not in _JOIN_WORDS


def quote(name: str) -> str:
    """
    >>> quote("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def quote_all(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names)
