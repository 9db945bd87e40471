"""Types and literals that mean the same in DuckDB and in Spark; see `plain_select`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime

from sqlglot import exp

INTEGERS = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT"}
EXACT = {*INTEGERS, "string", "boolean", "date", "timestamp"}
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")


class NeedsSpark(Exception):
    """A SELECT, right or wrong, that only Spark can answer as Spark would. Not an error: it says who is asked next."""


@dataclass(frozen=True)
class Typed:
    """An expression in DuckDB's words with its type; `text` is what a text literal says."""

    sql: str
    type: str
    text: str | None = None
    aggregate: bool = False


def only(node: exp.Expr, known: set[str]) -> None:
    """No clause or modifier but the known ones may be there."""
    for key, value in node.args.items():
        if key not in known and value not in (None, False, []):
            raise NeedsSpark(f"{type(node).__name__} with {key.strip('_')}")


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(node: exp.Expr) -> Typed:
    """A literal whose type both engines see the same way."""
    if isinstance(node, exp.Literal):
        return Typed(text_literal(node.name), "string", node.name) if node.is_string else _number(node.name)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _number(f"-{node.this.name}")
    if isinstance(node, exp.Boolean):
        return Typed(str(node.this).upper(), "boolean")
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        only(node, {"this", "to"})
        for type_, kind in (("date", exp.DType.DATE), ("timestamp", exp.DType.TIMESTAMPTZ)):
            if node.to.this == kind:
                return _moment(node.this.name, type_)
    raise NeedsSpark(f"{type(node).__name__} in an expression")


def _number(text: str) -> Typed:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        for type_, bound in (("integer", 2**31), ("long", 2**63)):
            if int(digits) < bound:
                return Typed(f"CAST({text} AS {INTEGERS[type_]})", type_)
    if re.fullmatch(r"[0-9]*\.[0-9]+", digits):
        whole, fraction = digits.split(".")
        scale = len(fraction)
        precision = max(len(whole.lstrip("0")) + scale, scale, 1)
        if precision <= 38:
            return Typed(f"CAST('{text}' AS DECIMAL({precision},{scale}))", f"decimal({precision},{scale})")
    raise NeedsSpark(f"the number {text}")


def _moment(text: str, type_: str) -> Typed:
    """A date or a moment in UTC, from text of the one form that leaves nothing to interpret."""
    try:
        if type_ == "date" and DATE.fullmatch(text):
            return Typed(f"CAST('{date.fromisoformat(text)}' AS DATE)", "date")
        if type_ == "timestamp" and TIMESTAMP.fullmatch(text):
            moment = datetime.fromisoformat(text)
            return Typed(f"CAST('{moment.isoformat(' ')}+00' AS TIMESTAMPTZ)", "timestamp")
    except ValueError as error:
        raise NeedsSpark(f"'{text}' as a {type_}") from error
    raise NeedsSpark(f"'{text}' as a {type_}")


def alike(one: Typed, other: Typed) -> Typed:
    """Text compared with a date or a moment is read as one, as Spark does."""
    if one.text is not None and other.type in ("date", "timestamp"):
        return _moment(one.text, other.type)
    return one


def comparable(left: str, right: str) -> bool:
    """Whether both engines compare values of these types exactly, and alike.

    >>> comparable("long", "decimal(18,2)"), comparable("string", "long"), comparable("decimal(38,0)", "decimal(9,2)")
    (True, False, False)
    """
    if left == right:
        return exact(left) or left == "double"
    if "double" in (left, right):
        return {left, right} <= {"double", "integer"}
    sizes = [
        decimal(type_) or {"byte": (3, 0), "short": (5, 0), "integer": (10, 0), "long": (19, 0)}.get(type_)
        for type_ in (left, right)
    ]
    if sizes[0] is None or sizes[1] is None:
        return False
    (p, s), (q, t) = sizes[0], sizes[1]
    return max(p - s, q - t) + max(s, t) <= 38


def exact(type_: str) -> bool:
    return type_ in EXACT or decimal(type_) is not None


def decimal(type_: str) -> tuple[int, int] | None:
    told = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", type_)
    return (int(told.group(1)), int(told.group(2))) if told else None
