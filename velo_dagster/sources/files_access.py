"""The files of one pattern, by their names: where they are, their bytes, and why the system refuses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO

from velo_dagster.sources import files_messages as messages
from velo_dagster.sources.errors import SourceError
from velo_dagster.sources.files_end import Opened
from velo_dagster.sources.files_formats import FormatSettings, kind_of, reader_of
from velo_dagster.sources.files_listing import Location, locate


class FileAccess:
    """Cheap to make: nothing is touched before the first call."""

    def __init__(self, written: str, root: Path, settings: FormatSettings) -> None:
        self.written = written
        self.root = root
        self.settings = settings

    @cached_property
    def location(self) -> Location:
        return locate(self.written, self.root)

    def open(self, name: str) -> BinaryIO:
        return self.location.path(name).open("rb")

    def opened(self, name: str) -> Opened:
        open_ = partial(self.open, name)
        kind = kind_of(self.settings, name, open_)
        return Opened(open_, reader_of(self.settings, kind), kind)

    def exists(self, name: str) -> bool:
        with self.told():
            return self.location.path(name).exists()

    @contextmanager
    def told(self) -> Iterator[None]:
        """What the system refuses is told in our words."""
        try:
            yield
        except OSError as error:
            raise self._from_system(error) from error

    def _from_system(self, error: OSError) -> SourceError:
        """What the system said, about the file that it named."""
        name = str(error.filename)
        if name.startswith(f"{self.location.base}/"):
            return messages.from_system(error, self.location, name[len(str(self.location.base)) + 1 :])
        return messages.from_system(error, self.location)
