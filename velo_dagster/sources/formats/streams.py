"""Files that must be read from their start: compressed ones, and encodings whose bytes are not those of ASCII.

Such a file is opened as a stream of UTF-8 bytes. Seeking forward reads and throws away; seeking back is not needed, as
every reader opens the file anew. Broken or cut streams are told apart from broken records: nothing of them is trusted.
"""

from __future__ import annotations

import bz2
import codecs
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import zstandard

from velo_dagster.sources.formats.base import BrokenFile, Compression, Open

_CHUNK = 1024 * 1024


def is_ascii_based(encoding: str) -> bool:
    """Whether line ends, delimiters and quotes can be found in the encoded bytes as they are.

    >>> is_ascii_based("utf-8"), is_ascii_based("cp1252"), is_ascii_based("utf-16")
    (True, True, False)
    """
    if encoding == "utf-8":
        return True
    # A decoder that gives no character for some byte waits for more: its characters have several bytes.
    fresh = codecs.getincrementaldecoder(encoding)
    characters = [fresh("replace").decode(bytes([value])) for value in range(256)]
    return all(len(character) == 1 for character in characters) and characters[:128] == [*map(chr, range(128))]


def opened(open_: Open, compression: Compression | None, encoding: str) -> BinaryIO:
    """The file itself where its bytes can be read anywhere, else a stream of UTF-8."""
    recode = not is_ascii_based(encoding)
    if compression is None and not recode:
        return open_()
    file = open_()
    pieces = _raw(file)
    if compression is not None:
        pieces = _UNPACKERS[compression](pieces)
    return cast(BinaryIO, Pieces(file, _recoded(pieces, encoding) if recode else pieces))


class Pieces:
    """Bytes that come in pieces, as a file that is read forward; closing it closes the file behind it."""

    def __init__(self, file: BinaryIO, pieces: Iterator[bytes]) -> None:
        self._file = file
        self._pieces = pieces
        self._rest = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < size and (part := next(self._pieces, None)) is not None:
            parts.append(part)
            have += len(part)
        data = b"".join(parts)
        self._rest = data[size:]
        self._at += min(size, have)
        return data[:size]

    def seek(self, offset: int) -> int:
        if offset < self._at:
            raise ValueError("a stream is read forward only")
        while self._at < offset and self.read(min(_CHUNK, offset - self._at)):
            pass
        return self._at

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _raw(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(_CHUNK):
        yield part


def _members(
    parts: Iterator[bytes],
    fresh: Callable[[], Any],
    name: str,
    errors: tuple[type[Exception], ...],
    padding: bytes = b"",
) -> Iterator[bytes]:
    """One or several packed streams in a row, as `cat a.gz b.gz` makes them. An empty file is an empty stream."""
    unpacker: Any = None
    begun = False
    for data in parts:
        while data:
            if unpacker is None:
                data = data.lstrip(padding) if padding else data
                if not data:
                    break
                unpacker = fresh()
            try:
                plain = unpacker.decompress(data)
            except errors as error:
                if not begun and not data.startswith(_MAGIC[name]):
                    reason = f"its name says that it is compressed by {name}, and it is not"
                    remedy = "Take the ending for compression off its name, or compress it."
                    raise BrokenFile(reason, remedy) from error
                raise BrokenFile(f"the {name} stream is broken: {error}") from error
            begun = True
            if plain:
                yield plain
            data, unpacker = (unpacker.unused_data, None) if unpacker.eof else (b"", unpacker)
    if unpacker is not None:
        raise BrokenFile(f"the {name} stream ends in the middle: the file is cut short")


def _gzip(parts: Iterator[bytes]) -> Iterator[bytes]:
    # Some tools fill a gzip file up with zeros.
    return _members(parts, lambda: zlib.decompressobj(wbits=31), "gzip", (zlib.error,), padding=b"\0")


def _bz2(parts: Iterator[bytes]) -> Iterator[bytes]:
    return _members(parts, bz2.BZ2Decompressor, "bz2", (OSError, EOFError))


def _zstd(parts: Iterator[bytes]) -> Iterator[bytes]:
    return _members(parts, lambda: zstandard.ZstdDecompressor().decompressobj(), "zstd", (zstandard.ZstdError,))


_MAGIC = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "zstd": b"\x28\xb5\x2f\xfd"}
"""How files of each kind begin."""
_UNPACKERS: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {"gzip": _gzip, "bz2": _bz2, "zstd": _zstd}


def _recoded(parts: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for part in parts:
            yield decoder.decode(part).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise BrokenFile(f"the file is not {encoding}: {error}") from error
