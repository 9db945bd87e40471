"""`${VAR}`, `${VAR:-default}` and `${VAR:?message}` in property values and URIs.

Resolved only at the moment a value is used, so that a secret is never part of a plan, a fingerprint or a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from velo_dagster.errors import Span, Terminal, VeloError

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)([^}]*))?\}")


class MissingVariable(Terminal, VeloError):
    """A property asks for an environment variable that is not set."""

    code = "E141"

    def __init__(self, variable: str, key: str, message: str, where: Span | str | None = None) -> None:
        what = message or f"The environment variable {variable} is not set."
        super().__init__(
            f"{what} (needed by the property '{key}')",
            where=where,
            steps=[f"Set it: export {variable}=…", f"Or give a default: '{key}' = '${{{variable}:-default}}'"],
        )


def resolve(key: str, value: str, environ: Mapping[str, str], where: Span | str | None = None) -> str:
    """The value with its variables replaced; as in a shell, an empty variable counts as not set if a default is given.

    >>> resolve("host", "${HOST:-localhost}:${PORT}", {"PORT": "5432"})
    'localhost:5432'
    """

    def replace(match: re.Match[str]) -> str:
        name, operator, word = match.groups()
        found = environ.get(name)
        if operator is None and found is not None:
            return found
        if found:
            return found
        if operator == ":-":
            return word
        raise MissingVariable(name, key, word or "", where)

    return VARIABLE.sub(replace, value)


def resolve_all(
    properties: Mapping[str, str], environ: Mapping[str, str], where: Span | str | None = None
) -> dict[str, str]:
    return {key: resolve(key, value, environ, where) for key, value in properties.items()}


def has_variables(value: str) -> bool:
    return VARIABLE.search(value) is not None
