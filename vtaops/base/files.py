"""Reading and writing whole files.

Readers accept regular files only, because a pipe may never end, and only up to a limit, because a
sparse file may be larger than memory. They allocate what the file has, not what it could have.
Writers replace a file in one step or leave the old one.
"""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vtaops.base.temporary import temporary_file

DOCUMENT = 16 << 20
"""Most bytes of a JSON or TOML document."""

NETWORK = 2 << 30
"""Most bytes of a network's file; Protobuf and FlatBuffers have the same bound."""

SPARE = 500_000_000
"""Bytes of memory that a file may take beside twice its size."""


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises
    ------
    OSError
        If it cannot be opened, is a pipe or a device, or no file can have such a name.
    """
    try:
        file = open(path, "rb", opener=_at_once)  # noqa: SIM115
    except ValueError as error:  # a byte 0
        raise OSError(errno.EINVAL, f"No name of a file: {error}", str(path)) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file, but a pipe or a device", str(path))
    return file


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for whoever writes a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_file(path: str | Path, most: int = DOCUMENT) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises
    ------
    OSError
        If it cannot be read, or holds more.
    """
    with open_file(path) as file:
        return read_open(file, most)


def read_open(file: BinaryIO, most: int) -> bytes:
    """Return the content of an open file of at most `most` bytes, from its first byte.

    Raises
    ------
    OSError
        If it cannot be read, holds more, or more than fits in memory.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise OSError(errno.EFBIG, f"File has {size} bytes, more than {most}", file.name)
    file.seek(0)
    try:
        return file.read(size)
    except (MemoryError, OverflowError) as error:  # overflow: Python of 32 bits
        raise OSError(errno.ENOMEM, f"No memory for {size} bytes", file.name) from error


def write_file(path: str | Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file, whole or not at all: a reader never sees half of it.

    `mode` is what the file may be used for, less the umask.

    Raises
    ------
    OSError
        If it cannot be written, or no file can have such a name.
    """
    require_folder(path)
    try:
        with temporary_file(Path(path), mode) as (temporary, file):
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except ValueError as error:  # a byte 0, or no name at all
        raise OSError(errno.EINVAL, f"No name of a file: {error}", str(path)) from error
    except OSError as error:  # it may name the temporary file
        raise OSError(error.errno, reason_of(error), str(path)) from error


def reason_of(error: Exception) -> str:
    """Return what is wrong with a file, without its name."""
    return getattr(error, "strerror", None) or str(error)


def require_folder(path: str | Path) -> None:
    """Refuse the name of a file to write if its folder is not there.

    Raises
    ------
    OSError
        If so; with the folder as the caller wrote it.
    """
    folder = Path(path).parent
    if not exists(folder):
        raise OSError(errno.ENOENT, f"There is no folder {str(folder)!r}", str(path))


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


def check_unpacked(file: BinaryIO) -> None:
    """Refuse a ZIP archive whose members are much larger than itself, before one is unpacked.

    Raises
    ------
    OSError
        If they take more than twice the archive and `SPARE`.
    """
    if not zipfile.is_zipfile(file):
        file.seek(0)
        return
    nbytes = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    file.seek(0)
    if unpacked > 2 * nbytes + SPARE:
        raise OSError(
            errno.EFBIG,
            f"{nbytes:,} bytes unpack to {unpacked:,}; save such arrays uncompressed, "
            "with numpy.savez",
        )


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
