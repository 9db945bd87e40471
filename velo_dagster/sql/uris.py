"""Bare URIs in SQL text, and what may be shown of a URI.

A bare URI is not made of SQL tokens: `file:///logs/app-*.json` holds the start of a comment, `--` may stand in a path,
`?query="SELECT ..."` holds quotes. So URIs are found before the tokenizer runs and masked by a word of the same length,
which keeps every position true. `scheme://` cannot stand outside quotes in any other meaning.

A bare URI ends at white space, `;`, a comma outside `{}`, or a `)` that it did not open; a quoted value after `=` is
part of it, and so is a variable, `${NAME:-file:///a b.csv}`, which may stand for all of it.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from velo_dagster.sql.variables import VARIABLE

_MARK = re.compile(
    r"""
    (?P<comment>/\*)
  | --[^\r\n]*
  | (?<![A-Za-z0-9_])[rR]'[^']*' | (?<![A-Za-z0-9_])[rR]"[^"]*"
  | '(?:[^'\\]|\\.)*+'?
  | "(?:[^"\\]|\\.)*+"?
  | `(?:[^`]|``)*+`?
  | (?P<uri>(?<![A-Za-z0-9_.:`])(?:[A-Za-z][A-Za-z0-9+.\-]*://|file:(?=[^\s:;,)'"`=])|(?=\$\{[A-Za-z_])))
    """,
    re.VERBOSE | re.DOTALL,
)
_DATA_FILE = re.compile(r"\.(csv|tsv|jsonl?|ndjson|parquet|avro|orc|txt|log)(\.(gz|bz2|zst))?$", re.IGNORECASE)
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


def mask_uris(text: str) -> tuple[str, dict[int, str]]:
    """The text with every bare URI replaced by a word of its length, and the URIs by offset.

    >>> mask_uris("FROM file:///a-*.json x")
    ('FROM ________________ x', {5: 'file:///a-*.json'})
    >>> mask_uris("FROM ${ALL:-file:///a b.csv} x")
    ('FROM _______________________ x', {5: '${ALL:-file:///a b.csv}'})
    """
    if ":" not in text and "${" not in text:
        return text, {}
    found: dict[int, str] = {}
    parts: list[str] = []
    done = at = 0
    while mark := _MARK.search(text, at):
        at = mark.end()
        if mark["comment"]:
            at = _comment_end(text, mark.start())
        elif mark["uri"] is not None:
            start, at = mark.start(), _uri_end(text, at)
            found[start] = text[start:at]
            parts += [text[done:start], "_" * (at - start)]
            done = at
    return "".join([*parts, text[done:]]), found


def unclosed(text: str) -> int | None:
    """Where a quote or comment begins that never ends.

    >>> unclosed("SELECT 'a', 'b"), unclosed("a /* b */ c"), unclosed("a /* b")
    (12, None, 2)
    """
    at = 0
    while mark := _MARK.search(text, at):
        at = mark.end()
        word = mark.group()
        if mark["comment"]:
            at = _comment_end(text, mark.start())
            if not text[mark.start() + 2 : at].endswith("*/"):
                return mark.start()
        elif mark["uri"] is not None:
            at = _uri_end(text, at)
        elif word[0] in "'\"`" and (len(word) < 2 or word[-1] != word[0]):
            return mark.start()
    return None


def _comment_end(text: str, at: int) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def _uri_end(text: str, at: int) -> int:
    closing: list[str] = []
    while at < len(text):
        if variable := VARIABLE.match(text, at):
            at = variable.end()
            continue
        char = text[at]
        if char in "'\"" and text[at - 1] == "=":
            at = _quoted_end(text, at)
            continue
        if char.isspace() or char == ";" or (char == "," and "}" not in closing):
            return at
        if char in "({[":
            closing.append({"(": ")", "{": "}", "[": "]"}[char])
        elif char in ")}]":
            if not closing or closing[-1] != char:
                return at
            closing.pop()
        at += 1
    return at


def _quoted_end(text: str, at: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return min(at + 1, len(text))


def scheme(uri: str) -> str:
    """Of a URI that begins with a variable: its default's; none, if it has no default.

    >>> scheme("S3A://bucket/x"), scheme("file:data/x.csv"), scheme("${A:-file://a.csv}"), scheme("${A:?say it}")
    ('s3a', 'file', 'file', '')
    """
    variable = VARIABLE.match(uri)
    if variable is None:
        return uri.partition(":")[0].lower()
    return scheme(variable[3] + uri[variable.end() :]) if variable[2] == ":-" else ""


def label(uri: str) -> str:
    """The URI as messages may show it: without its query string and credentials.

    >>> label('postgresql://bob:secret@host/db?query="SELECT 1"')
    'postgresql://host/db'
    >>> label("sql://postgresql://bob:secret@host/db?query=x")
    'sql://postgresql://host/db'
    """
    if scheme(uri) not in ("", "file", "s3", "s3a", "s3n"):
        start = variable.end() if (variable := VARIABLE.match(uri)) else 0
        uri = uri[:start] + uri[start:].partition("?")[0]
    return _CREDENTIALS.sub("//", uri)


def is_file_name(name: str) -> bool:
    """Whether a name ends as files of data do.

    >>> is_file_name("a.CSV"), is_file_name("data/b.json.gz"), is_file_name("shop.orders")
    (True, True, False)
    """
    return _DATA_FILE.search(name) is not None


def relation_name(uri: str) -> str | None:
    """What a URI without an alias may be called in a query: the topic, table or file stem, if that is a plain word.

    >>> relation_name("kafka://localhost:9092/orders"), relation_name("file:///data/users.csv.gz"), relation_name("s3://b/a-*.csv")
    ('orders', 'users', None)
    """
    if variable := VARIABLE.match(uri):
        uri = (variable[3] or "") + uri[variable.end() :] if variable[2] != ":?" else uri[variable.end() :]
    if table := query_parameters(uri).get("table"):
        last = table.rpartition(".")[2]
    else:
        parts = urlsplit(uri.partition("?")[0])
        last = (parts.path.rstrip("/").rpartition("/")[2] or parts.netloc).partition(".")[0]
    return last if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", last) else None


def query_parameters(uri: str) -> dict[str, str]:
    """The parameters after `?`, unquoted; a quoted value may hold `&`.

    >>> query_parameters('mysql://h/db?table=orders&where="status=\\'a\\' & x"')
    {'table': 'orders', 'where': "status='a' & x"}
    """
    if scheme(uri) in ("file", "s3", "s3a", "s3n"):
        return {}
    pattern = re.compile(r"""([^=&]+)=(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^&]*))""")
    values: dict[str, str] = {}
    for key, double, single, plain in pattern.findall(uri.partition("?")[2]):
        quoted = double or single
        values[unquote(key)] = re.sub(r"\\(.)", r"\1", quoted) if quoted else unquote(plain)
    return values
