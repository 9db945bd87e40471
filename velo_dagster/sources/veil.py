"""Values of environment variables, kept out of what a source says.

A statement writes `${NAME}` because the value is nobody's business: a secret, or a path of one machine. A source works
with the values; its errors, probes and notes show the names.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from velo_dagster.errors import VeloError
from velo_dagster.sources.contract import BadRow, Probe, Source, Survey

# A shorter value stands in many words by chance.
_TELLING = 4
_SPEAKING = ("probe", "end", "scan", "schema", "survey", "read", "verify", "reached", "lost", "acknowledge", "notes")


class Noted(Mapping[str, str]):
    """An environment that notes which of its variables were asked for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.used: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        value = self._environ[name]
        self.used[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


class Veil:
    """Puts what was written where values stand. A short value of the source's own place counts only within a path."""

    def __init__(self, used: Mapping[str, str], written: str = "", place: str = "") -> None:
        """`written` and `place`: where the source is, in the statement and in truth."""
        self._texts: list[str] = []
        patterns: list[str] = []
        whole = (place.rpartition("://")[2], written.rpartition("://")[2])
        if whole[0] != whole[1] and len(whole[0]) >= _TELLING:
            patterns.append(re.escape(whole[0]))
            self._texts.append(whole[1])
        for name, value in sorted(used.items(), key=lambda item: -len(item[1])):
            exact = re.escape(value)
            if len(value) < _TELLING:
                if not value.strip() or f"${{{name}" not in written:
                    continue
                exact = rf"(?<![\w\s]){exact}(?![\w\s])"
            patterns.append(exact)
            self._texts.append(f"${{{name}}}")
        # One pattern for all, so that nothing is replaced within a replacement.
        self._pattern = re.compile("|".join(f"({pattern})" for pattern in patterns))

    def __bool__(self) -> bool:
        return bool(self._texts)

    def text(self, text: str) -> str:
        """
        >>> Veil({"DIR": "/srv/me", "ENV": "a"}, "${DIR}/${ENV}").text("There is a file /srv/me/a/x.csv.")
        'There is a file ${DIR}/${ENV}/x.csv.'
        """
        return self._pattern.sub(lambda match: self._texts[(match.lastindex or 1) - 1], text)

    def error(self, error: VeloError) -> VeloError:
        """The same error without the values."""
        veiled = copy.copy(error)
        veiled.what = self.text(error.what)
        veiled.steps = tuple(map(self.text, error.steps))
        if isinstance(error.where, str):
            veiled.where = self.text(error.where)
        original = getattr(error, "original", None)
        if original is not None:
            vars(veiled)["original"] = self.text(str(original))
        veiled.args = (veiled.render(),)
        return veiled

    def said(self, result: Any) -> Any:
        """What a source answers, as far as it is meant to be shown."""
        if isinstance(result, Probe):
            return replace(result, message=self.text(result.message))
        if isinstance(result, Survey):
            rows = (BadRow(self.text(row.place), self.text(row.reason), row.text) for row in result.bad_rows)
            return replace(result, bad_rows=tuple(rows))
        if isinstance(result, list):
            return [self.text(note) for note in result]
        return result

    def over(self, source: Source) -> None:
        """Let all that this source says pass through the veil."""
        for name in _SPEAKING:
            setattr(source, name, self._over(getattr(source, name)))

    def _over(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def veiled(*given: Any, **named: Any) -> Any:
            try:
                return self.said(method(*given, **named))
            except VeloError as error:
                # Not chained: the cause would show the value.
                raise self.error(error) from None

        return veiled
