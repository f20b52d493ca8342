"""Reading and writing whole files.

Readers accept regular files only (a pipe may never end), and only up to a size limit (a sparse file
may be larger than memory). They allocate the actual file size, not the limit. Writers replace a
file atomically or leave the old one.
"""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vtaops.base.temporary import temporary_file

DOCUMENT = 16 << 20
"""Maximum size of a JSON or TOML document, in bytes."""

NETWORK = 2 << 30
"""Maximum size of a network file, in bytes; Protobuf and FlatBuffers have the same bound."""

is_file, is_folder, exists = os.path.isfile, os.path.isdir, os.path.exists
"""What a path is; False for invalid names, of which the methods of `Path` raise."""

SPARE = 500_000_000
"""Bytes that an unpacked archive may take beyond twice its packed size."""


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises
    ------
    OSError
        If it cannot be opened, is a pipe or a device, or its name is invalid.
    """
    try:
        file = open(os.fspath(path), "rb", opener=_at_once)  # noqa: SIM115
    except ValueError as error:  # a byte 0
        raise OSError(errno.EINVAL, f"Invalid file name: {error}", str(path)) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file, but a pipe or a device", str(path))
    return file


def _at_once(path: str, flags: int) -> int:
    """Open without blocking on the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_file(path: str | Path, most: int = DOCUMENT) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises
    ------
    OSError
        If it cannot be read, or is larger.
    """
    with open_file(path) as file:
        return read_open(file, most)


def read_open(file: BinaryIO, most: int) -> bytes:
    """Return the content of an open file of at most `most` bytes, from its start.

    Raises
    ------
    OSError
        If it cannot be read, is larger, or does not fit in memory.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise OSError(errno.EFBIG, f"File has {size} bytes, more than {most}", file.name)
    file.seek(0)
    try:
        return file.read(size)
    except (MemoryError, OverflowError) as error:  # overflow: Python of 32 bits
        raise OSError(errno.ENOMEM, f"No memory for {size} bytes", file.name) from error


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file that the user named, in place of what is there.

    Links are followed; devices and pipes are written to. A regular file is replaced atomically,
    with the permissions of the old one, so a reader never sees half of it.

    Raises
    ------
    OSError
        If it cannot be written, or its name is invalid.
    """
    with _named(path):
        require_folder(path)
        if is_special(path):
            with Path(path).open("wb") as file:
                file.write(content)
            return
        target = Path(os.path.realpath(path))
        if target.is_symlink():  # of a circle of links
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        if mode is not None and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        _replace(target, content, 0o666, mode)


def replace_file(path: str | Path, content: bytes, mode: int) -> None:
    """Write a file of our own, such as one of a cache, atomically, in place of whatever is there.

    `mode` holds the permission bits, before the umask.

    Raises
    ------
    OSError
        If it cannot be written, or its name is invalid.
    """
    with _named(path):
        require_folder(path)
        _replace(Path(path), content, mode)


def _replace(path: Path, content: bytes, mode: int, exact_mode: int | None = None) -> None:
    with temporary_file(path, mode) as (temporary, file):
        if exact_mode is not None:
            os.fchmod(file.fileno(), exact_mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(path)


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Raise errors under the name of a path."""
    try:
        yield
    except ValueError as error:  # a byte 0, or no name at all
        raise OSError(errno.EINVAL, f"Invalid file name: {error}", str(path)) from error
    except OSError as error:  # it may name the temporary file
        raise OSError(error.errno, reason_of(error), str(path)) from error


def is_special(path: str | Path) -> bool:
    """Whether a path is a device, a pipe or a socket; False for invalid names."""
    return exists(path) and not is_file(path) and not is_folder(path)


def same_file(path: Path, other: Path) -> bool:
    """Whether two paths name the same existing regular file; False for invalid names."""
    return is_file(path) and exists(other) and path.samefile(other)


def write_folder(folder: Path, files: Mapping[str, bytes], *, force: bool = False) -> None:
    """Write files, given by their paths within a folder, which is created if necessary.

    Raises
    ------
    OSError
        As `write_file` and `require_own`.
    """
    if not force:
        require_own(folder, files)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / name, content)


def require_own(folder: Path, names: Iterable[str]) -> None:
    """Require that files can be written to a folder without a loss of what something else wrote.

    The files of an earlier call are known by being complete.

    Raises
    ------
    OSError
        If some of the files exist, but not all.
    """
    there = {name: os.path.lexists(folder / name) for name in names}
    if any(there.values()) and not all(there.values()):
        existing = ", ".join(name for name, exists in there.items() if exists)
        raise FileExistsError(
            errno.EEXIST, f"It has a {existing} of something else; --force replaces it", str(folder)
        )


def reason_of(error: Exception) -> str:
    """Return the reason of a file error, without the file name."""
    return getattr(error, "strerror", None) or str(error)


def require_folder(path: str | Path) -> None:
    """Require that the folder of a file to be written exists.

    Raises
    ------
    OSError
        If it does not; the message quotes the folder as the caller wrote it.
    """
    folder = Path(path).parent
    if not exists(folder):
        raise OSError(errno.ENOENT, f"There is no folder {str(folder)!r}", str(path))


def read_array(path: str | Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the array of a ``.npy`` file.

    Raises
    ------
    OSError
        If it cannot be read, holds no array, or does not fit in memory.
    """
    with open_file(path) as file:
        try:
            array = np.load(file, allow_pickle=False)
        except Exception as error:  # of NumPy's headers, of zip files, of memory
            raise OSError(errno.EINVAL, f"Not a NumPy array: {error}", str(path)) from error
        if not isinstance(array, np.ndarray):
            array.close()
            raise OSError(errno.EINVAL, "Several NumPy arrays", str(path))
    return array


def check_unpacked(file: BinaryIO) -> None:
    """Reject a ZIP archive that would unpack to much more than its size, before unpacking.

    Raises
    ------
    OSError
        If the members take more than twice the archive plus `SPARE`.
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
