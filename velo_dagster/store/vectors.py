"""Deletion vectors: which rows of a file are gone, beside the file, so that it need not be written anew.

All vectors of a commit are in one file at the top of the table's folder: a byte with the format's version, then each
with its length before and its checksum behind it. A vector is a set of row numbers, as Roaring bitmaps of 64 bits write
it, behind Delta's magic number.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from deltalake import DeltaTable

FEATURE = "deletionVectors"
SETTING = "delta.enableDeletionVectors"
MAGIC = struct.pack("<i", 1681511377)
VERSION = b"\x01"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def write_vectors(table: Path, gone: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """By file, the numbers of all rows that are gone from it; gives the vectors as the log describes them."""
    from pyroaring import BitMap64

    name = uuid.uuid4()
    content, described = bytearray(VERSION), {}
    for file, rows in gone.items():
        vector = MAGIC + BitMap64(rows.astype("uint64")).serialize()
        described[file] = {
            "storageType": "u",
            "pathOrInlineDv": _written(name),
            "offset": len(content),
            "sizeInBytes": len(vector),
            "cardinality": len(rows),
        }
        content += struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    (table / f"deletion_vector_{name}.bin").write_bytes(content)
    return described


def staying(table: DeltaTable) -> dict[str, np.ndarray]:
    """By the name of each file that has a vector, for each of its rows whether it is still there."""
    import pyarrow as pa

    if FEATURE not in (table.protocol().reader_features or ()):
        return {}
    found = pa.table(table.deletion_vectors())
    return {
        Path(file.as_py()).name: mask.values.to_numpy(zero_copy_only=False)
        for file, mask in zip(found["filepath"], found["selection_vector"], strict=True)
    }


def _written(name: uuid.UUID) -> str:
    """
    >>> _written(uuid.UUID("913b1728-29bc-446b-88d8-2f0e467e132e"))
    'KVKvcdze5:H$Bu<mT=16'
    """
    return base64.b85encode(name.bytes).translate(bytes.maketrans(_B85, _Z85)).decode()
