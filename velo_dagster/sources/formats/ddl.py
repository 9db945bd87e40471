"""Spark type texts and Arrow types: one spelling of each type, read and written here only.

A column's type travels as Spark DDL (`DECIMAL(18,2)`, ``STRUCT<`a b`: BIGINT>``), because that is what a table, a
declared column and a position hold. Readers work with Arrow types.
"""

from __future__ import annotations

import re

import pyarrow as pa

from velo_dagster.errors import Terminal, VeloError

TIMESTAMP = pa.timestamp("us", tz="UTC")

_SIMPLE: dict[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "INT": pa.int32(),
    "SMALLINT": pa.int16(),
    "TINYINT": pa.int8(),
    "FLOAT": pa.float32(),
    "BINARY": pa.binary(),
}
_ALIASES = {
    "LONG": "BIGINT",
    "INTEGER": "INT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "BOOL": "BOOLEAN",
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "CHAR": "STRING",
    "BYTES": "BINARY",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
_NAMES = {type_: name for name, type_ in _SIMPLE.items()}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^\s<>(),:`]+)|([<>(),:]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnreadableType(Terminal, VeloError):
    """A type text that no reader of ours knows."""

    code = "E321"

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"The type '{text}' cannot be read from a file.",
            steps=[
                "Declare the column with one of: " + ", ".join(sorted(_SIMPLE)) + ", DECIMAL(p,s), ARRAY, MAP, STRUCT."
            ],
        )

    def __reduce__(self):  # exceptions with their own __init__ must say how to travel between processes
        return type(self), (self.text,)


def to_arrow(text: str) -> pa.DataType:
    """
    >>> to_arrow("DECIMAL(18,2)")
    Decimal128Type(decimal128(18, 2))
    >>> to_arrow("ARRAY<STRUCT<a: INT>>")
    ListType(list<element: struct<a: int32>>)
    """
    parser = _Parser(text)
    type_ = parser.type()
    parser.end()
    return type_


def named_type(type_: pa.DataType) -> str:
    """
    >>> named_type(pa.int32()), named_type(pa.int64())
    ('an INT', 'a BIGINT')
    """
    name = to_ddl(type_)
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def to_ddl(type_: pa.DataType) -> str:
    """
    >>> to_ddl(pa.struct([("a b", pa.int64()), ("c", pa.list_(pa.string()))]))
    'STRUCT<`a b`: BIGINT, c: ARRAY<STRING>>'
    """
    if type_ in _NAMES:
        return _NAMES[type_]
    if pa.types.is_decimal128(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_struct(type_):
        return struct_ddl((field.name, to_ddl(field.type)) for field in type_)
    if pa.types.is_map(type_):
        return f"MAP<{to_ddl(type_.key_type)}, {to_ddl(type_.item_type)}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"ARRAY<{to_ddl(type_.value_type)}>"
    return _widened(type_)


def struct_ddl(fields) -> str:
    """A STRUCT of (name, type text) pairs, names quoted where Spark needs it."""
    return "STRUCT<" + ", ".join(f"{quoted(name)}: {text}" for name, text in fields) + ">"


def quoted(name: str) -> str:
    """A name as DDL takes it: plain if it may be, else in backticks."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _widened(type_: pa.DataType) -> str:
    """The Spark type that holds every value of an Arrow type which Spark lacks."""
    types = pa.types
    if types.is_dictionary(type_):
        return to_ddl(type_.value_type)
    if types.is_uint8(type_):
        return "SMALLINT"
    if types.is_uint16(type_):
        return "INT"
    if types.is_uint32(type_):
        return "BIGINT"
    if types.is_uint64(type_):
        return "DECIMAL(20,0)"
    if types.is_float16(type_):
        return "FLOAT"
    if types.is_large_string(type_) or types.is_string_view(type_):
        return "STRING"
    if types.is_large_binary(type_) or types.is_fixed_size_binary(type_) or types.is_binary_view(type_):
        return "BINARY"
    if types.is_date64(type_):
        return "DATE"
    if types.is_timestamp(type_):
        return "TIMESTAMP_NTZ" if type_.tz is None else "TIMESTAMP"
    raise UnreadableType(str(type_))


class _Parser:
    """Recursive descent over a type text; also takes ARRAY(t), MAP(k,v) and STRUCT(a t) as the language writes them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, bool]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise UnreadableType(text)
            quoted_name, word, mark = match.groups()
            self.tokens.append(
                (quoted_name.replace("``", "`"), True) if quoted_name is not None else (word or mark, False)
            )
            at = match.end()
        self.at = 0

    def type(self) -> pa.DataType:
        word = self._next().upper()
        word = _ALIASES.get(word, word)
        if word == "DECIMAL":
            return self._decimal()
        if word == "ARRAY":
            self._take("<", "(")
            element = self.type()
            self._take(">", ")")
            return pa.list_(pa.field("element", element))
        if word == "MAP":
            self._take("<", "(")
            key = self.type()
            self._take(",")
            value = self.type()
            self._take(">", ")")
            return pa.map_(key, value)
        if word == "STRUCT":
            return self._struct()
        if word not in _SIMPLE:
            raise UnreadableType(self.text)
        if word == "STRING" and self._peek() == "(":
            self._next()
            self._number()
            self._take(")")
        return _SIMPLE[word]

    def end(self) -> None:
        if self.at != len(self.tokens):
            raise UnreadableType(self.text)

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._next()
            precision = self._number()
            if self._peek() == ",":
                self._next()
                scale = self._number()
            self._take(")")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise UnreadableType(self.text)
        return pa.decimal128(precision, scale)

    def _struct(self) -> pa.DataType:
        close = ">" if self._take("<", "(") == "<" else ")"
        fields = []
        while True:
            name = self._next()
            if self._peek() == ":":
                self._next()
            fields.append(pa.field(name, self.type()))
            if self._take(",", close) == close:
                return pa.struct(fields)

    def _peek(self) -> str | None:
        if self.at < len(self.tokens) and not self.tokens[self.at][1]:
            return self.tokens[self.at][0]
        return None

    def _next(self) -> str:
        if self.at >= len(self.tokens):
            raise UnreadableType(self.text)
        self.at += 1
        return self.tokens[self.at - 1][0]

    def _take(self, *marks: str) -> str:
        if self._peek() not in marks:
            raise UnreadableType(self.text)
        return self._next()

    def _number(self) -> int:
        word = self._next()
        if not (word.isascii() and word.isdigit()):
            raise UnreadableType(self.text)
        return int(word)
