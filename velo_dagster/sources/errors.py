"""What can go wrong with a source, as types.

The category of an error (missing, network, auth, config, unknown) is a class, and whether trying again can help follows
from it. `categorise` turns what the operating system raised into one of them by its type and number, never by words.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from velo_dagster.errors import Span, Terminal, Transient, VeloError
from velo_dagster.sources.contract import BadRow

Category = Literal["missing", "network", "auth", "config", "unknown"]

_WHOLE_FILE = "Put a whole file there (write it under another name, then rename it), and load again."
WAITING_IS_NO_USE = "Waiting won't help: this stays as it is until somebody changes it."


class SourceError(VeloError):
    """Base of all errors of sources. `original` is what the world said, shown last."""

    code = "E300"
    category: ClassVar[Category] = "unknown"

    def __init__(
        self,
        what: str,
        *,
        where: Span | str | None = None,
        steps: Sequence[str] = (),
        original: BaseException | str | None = None,
    ) -> None:
        self.original = original
        super().__init__(what, where=where, steps=steps)

    def render(self) -> str:
        """
        >>> print(SourceError("It broke.", steps=["Mend it."], original="disk on fire").render())
        error E300 It broke.
          1. Mend it.
        Original error: disk on fire
        """
        text = super().render()
        return text if self.original is None else f"{text}\nOriginal error: {self.original}"

    def after_waiting(self, seconds: str, waited_for: str) -> SourceError:
        """The same error, told by a load that has waited for `waited_for` in vain."""
        what = f"Timeout waiting for {waited_for} after {seconds}. {self.what}"
        return type(self)(what, where=self.where, steps=self.steps, original=self.original)


class MissingSource(SourceError, Transient):
    """The source is not there (yet)."""

    code = "E301"
    category = "missing"


class SourceUnreachable(SourceError, Transient):
    """The way to the source is blocked: connection refused, reset, timed out, too many requests."""

    code = "E302"
    category = "network"


class SourceRefused(SourceError, Terminal):
    """The source is there and says no: wrong credentials, missing rights."""

    code = "E303"
    category = "auth"


class SourceMisconfigured(SourceError, Terminal):
    """What the statement says about the source can't be right."""

    code = "E304"
    category = "config"


class UnsupportedSource(SourceMisconfigured):
    """A kind of source that this version can't read."""

    code = "E306"


class SourceFailed(SourceError, Transient):
    """Anything else that the world raised; trying again may help."""

    code = "E307"
    category = "unknown"


class SourceChanged(SourceError, Transient):
    """What was read is not what the position describes: the source changed during the load."""

    code = "E308"
    category = "unknown"


class BadRows(SourceError, Terminal):
    """Rows that can't be delivered: some of them with their places, and how many there are."""

    code = "E310"
    category = "config"

    def __init__(self, label: str, rows: Sequence[BadRow], count: int) -> None:
        self.label, self.rows, self.count = label, tuple(rows), count
        shown = "".join(f"\n    {row.place}: {row.reason}: {row.text}" for row in rows)
        more = f"\n    and {count - len(rows)} more" if count > len(rows) else ""
        noun = "row" if count == 1 else "rows"
        encoded = any(row.reason.endswith(" is not utf-8") for row in rows)
        super().__init__(
            f"{label}: {count} {noun} can't be read.{shown}{more}",
            where=rows[0].place if rows else None,
            steps=[
                *(['Say how the file is encoded, if not in UTF-8: WITH ("encoding" = "latin-1").'] if encoded else []),
                "Mend the rows, then load again.",
                'Or keep them aside with their reasons: WITH ("failure_strategy" = "SendToDLQ").',
                'Or leave them out: WITH ("failure_strategy" = "LogAndContinue").',
            ],
        )


class SchemaRefused(SourceError, Terminal):
    """A new column under `schema.evolution` = strict, or a name that can't be a column."""

    code = "E311"
    category = "config"


class BrokenFile(SourceError, Transient):
    """A file whose bytes are not what its format or compression promises: perhaps it is still being written."""

    code = "E312"
    category = "unknown"

    def __init__(self, what: str, **fields: Any) -> None:
        super().__init__(what, **{"steps": [_WHOLE_FILE], **fields})


_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV}
_NETWORK = {
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.EHOSTDOWN,
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.ENETRESET,
    errno.EPIPE,
    errno.ESTALE,
    errno.EREMOTEIO,
}
_CONFIG = {errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP}


_NUMBERS: dict[Category, set[int]] = {
    "missing": _MISSING,
    "auth": _REFUSED,
    "network": _NETWORK,
    "config": _CONFIG,
}


def category_of(error: BaseException) -> Category:
    """
    >>> category_of(FileNotFoundError(2, "gone")), category_of(PermissionError(13, "no")), category_of(ValueError())
    ('missing', 'auth', 'unknown')
    """
    if isinstance(error, SourceError):
        return error.category
    if isinstance(error, TimeoutError | ConnectionError):
        return "network"
    number = getattr(error, "errno", None)
    found: list[Category] = [category for category, numbers in _NUMBERS.items() if number in numbers]
    return found[0] if found else "unknown"
