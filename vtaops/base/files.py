"""Files that are read whole, within a bound: a sparse file may be larger than any memory."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

DOCUMENT = 16 << 20
"""Most bytes of a JSON or TOML document."""

NETWORK = 2 << 30
"""Most bytes of a network's file; Protobuf and FlatBuffers have the same bound."""


def open_file(path: str | Path) -> BinaryIO:
    """Open a file for reading.

    Raises
    ------
    OSError
        If it cannot be opened, or no file can have such a name.
    """
    try:
        return Path(path).open("rb")
    except ValueError as error:  # a byte 0
        raise OSError(errno.EINVAL, f"No name of a file: {error}", str(path)) from error


def read_file(path: str | Path, most: int = DOCUMENT) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises
    ------
    OSError
        If it cannot be read, or holds more.
    """
    with open_file(path) as file:
        if file.seekable() and file.seek(0, 2) > most:
            raise OSError(errno.EFBIG, f"File has more than {most} bytes", str(path))
        if file.seekable():
            file.seek(0)
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"File has more than {most} bytes", str(path))
    return content


def read_array(path: str | Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the array of a ``.npy`` file.

    Raises
    ------
    OSError
        If it cannot be read, holds no array, or one that does not fit in memory.
    """
    with open_file(path) as file:
        try:
            found = np.load(file, allow_pickle=False)
        except Exception as error:  # of NumPy's headers, of zip files, of memory
            raise OSError(errno.EINVAL, f"No NumPy array: {error}", str(path)) from error
        if not isinstance(found, np.ndarray):
            found.close()
            raise OSError(errno.EINVAL, "Several NumPy arrays", str(path))
    return found


def is_file(path: str | Path) -> bool:
    """Whether a file is there; not so for names that no file can have."""
    try:
        return Path(path).is_file()
    except OSError:  # a name that is too long
        return False


def exists(path: str | Path) -> bool:
    """Whether a file or folder is there; not so for names that none can have."""
    try:
        return Path(path).exists()
    except OSError:
        return False
