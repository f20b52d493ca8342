"""Files that are read whole, within a bound: a sparse file may be larger than any memory."""

from __future__ import annotations

import errno
from pathlib import Path

DOCUMENT = 16 << 20
"""Most bytes of a JSON or TOML document."""

NETWORK = 2 << 30
"""Most bytes of a network's file; Protobuf and FlatBuffers have the same bound."""


def read_file(path: str | Path, most: int = DOCUMENT) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises
    ------
    OSError
        If it cannot be read, or holds more.
    """
    with Path(path).open("rb") as file:
        if file.seekable() and file.seek(0, 2) > most:
            raise OSError(errno.EFBIG, f"File has more than {most} bytes", str(path))
        if file.seekable():
            file.seek(0)
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"File has more than {most} bytes", str(path))
    return content
