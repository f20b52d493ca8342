"""Temporary files and folders: the creator holds a lock, and later processes sweep unlocked ones.

A killed process removes nothing, but the system releases its locks. So any process that can lock a
temporary removes it. A forked child never removes temporaries of its parent.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from glob import escape
from pathlib import Path
from typing import BinaryIO

LINK_HERE = ["-save-temps=obj"]
"""Options of a C++ compiler that put the linker's temporary files beside its output.

In a `TemporaryFolder` they are swept after a kill; in the system's, nobody would remove them.
"""


class TemporaryFolder:
    """A private folder that lasts until `close`, or as long as the object and the process.

    As a context manager it yields the path.

    Parameters
    ----------
    within : Path, optional
        Parent folder; by default the system's temporary folder.

    Raises
    ------
    OSError
        If it cannot be created.
    """

    def __init__(self, within: Path | None = None) -> None:
        parent = within or Path(tempfile.gettempdir())
        sweep_once(parent, "vtaops-*.tmp")

        def make(token: str) -> tuple[Path, int]:
            path = parent / f"vtaops-{token}.tmp"
            path.mkdir(0o700)
            with suppress(FileNotFoundError):  # another process swept it before it was opened
                return path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return make(secrets.token_hex(4))

        self.path, lock = _held(make)
        self.close: Callable[[], object] = weakref.finalize(
            self, _remove, self.path, lock, os.getpid()
        )

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def temporary_file(target: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file beside `target`; unless the caller renames it to `target`, remove it on exit.

    Raises
    ------
    OSError
        If it cannot be created.
    """
    sweep(target.parent, f".{escape(target.name)}.*.tmp")

    def make(token: str) -> tuple[Path, int]:
        path = target.with_name(f".{target.name}.{token}.tmp")
        return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    path, lock = _held(make)
    maker = os.getpid()
    try:
        with open(lock, "wb", closefd=False) as file:
            yield path, file
    finally:
        _remove(path, lock, maker)


def sweep(folder: Path, pattern: str) -> None:
    """Remove unlocked temporaries in a folder; ignore those that cannot be removed."""
    with suppress(OSError):
        for path in folder.glob(pattern):
            with suppress(OSError):
                lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    if os.fstat(lock).st_uid == os.geteuid():
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        _delete(path)
                finally:
                    os.close(lock)


@cache
def sweep_once(folder: Path, pattern: str) -> None:
    """Sweep a folder at its first use by this process."""
    sweep(folder, pattern)


def _held(make: Callable[[str], tuple[Path, int]]) -> tuple[Path, int]:
    """Create and lock a temporary; retry if another process swept it before it was locked."""
    while True:
        path, lock = make(secrets.token_hex(4))
        with suppress(OSError):  # a file system without locks: no process sweeps there
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _remove(path: Path, lock: int, maker: int) -> None:
    """Remove a temporary, except in a forked child of its creator."""
    if os.getpid() == maker:
        _delete(path)
        os.close(lock)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
