"""Bytes deflated for a file: those of 32-bit numbers, of which neighbours are alike, by place.

The first byte of each four stands in front of all second ones, and so on: the bytes that hold the
exponents of floats say much the same, those of mantissas do not.
"""

from __future__ import annotations

import zlib

import numpy as np

from vtaops.base.errors import ProgramError, raising
from vtaops.base.files import SPARE

_PLACES = 4
_LEVEL = 1
"""Of zlib: floats take twice the time on the highest level, and are 0.3 % smaller."""


def deflated(data: bytes) -> bytes:
    """Return bytes deflated; `inflated` is the inverse."""
    whole = np.frombuffer(data + bytes(-len(data) % _PLACES), np.uint8)
    return zlib.compress(whole.reshape(-1, _PLACES).T.tobytes(), _LEVEL)


def inflated(data: bytes | memoryview, nbytes: int) -> bytes:
    """Return the bytes that were deflated; no more memory is taken than they may need.

    Raises
    ------
    ProgramError
        If they are not so many, or more than twice the deflated ones plus `SPARE`.
    """
    if not 0 <= nbytes <= 2 * len(data) + SPARE:
        raise ProgramError(f"{len(data):,} deflated bytes cannot be {nbytes:,}")
    padded = nbytes + -nbytes % _PLACES
    stream = zlib.decompressobj()
    with raising(ProgramError, "what is deflated is damaged", zlib.error):
        found = stream.decompress(data, padded + 1)
    if len(found) != padded or not stream.eof or stream.unused_data:
        raise ProgramError(f"{len(data):,} deflated bytes are not {nbytes:,}, as the file says")
    return bytes(np.frombuffer(found, np.uint8).reshape(_PLACES, -1).T.tobytes()[:nbytes])
