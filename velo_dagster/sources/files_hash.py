"""Knowing a file again: hashes of the bytes that were read.

By default the first and the last 64 KB are hashed, which costs the same for any size; `file.verify` = full hashes all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import BinaryIO

END_BYTES = 64 * 1024
_BLOCK = 4 * 1024 * 1024

Open = Callable[[], BinaryIO]


@dataclass(frozen=True)
class Seen:
    """Hashes of the first `length` bytes of a file."""

    head: str
    tail: str
    full: str | None


def look(open_: Open, length: int, *, full: bool) -> Seen:
    """Hash the first `length` bytes. A file that is shorter by now simply gives other hashes."""
    with open_() as file:
        head = file.read(min(END_BYTES, length))
        file.seek(max(length - END_BYTES, 0))
        tail = file.read(min(END_BYTES, length))
        return Seen(_short(head), _short(tail), _all(file, length) if full else None)


def covers(length: int, full: str | None) -> bool:
    """Whether the hashes saw every byte, so that equal hashes mean equal content."""
    return full is not None or length <= 2 * END_BYTES


def _all(file: BinaryIO, length: int) -> str:
    file.seek(0)
    digest, left = blake2b(digest_size=16), length
    while left > 0 and (block := file.read(min(_BLOCK, left))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


def _short(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()
