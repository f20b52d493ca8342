"""Temporary files and folders: who makes one holds its lock, and the next process sweeps the rest.

A process that is killed removes nothing, but the system drops its locks. So whoever can lock a
temporary removes it. A forked child removes nothing of its parent's.
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


class TemporaryFolder:
    """A folder of this user that lasts until `close`, or as long as the object and the process.

    As a context manager it is the path. Nobody else can read it.

    Parameters
    ----------
    within : Path, optional
        Where it is made; by default where the system keeps temporary files.

    Raises
    ------
    OSError
        If it cannot be made.
    """

    def __init__(self, within: Path | None = None) -> None:
        parent = within or Path(tempfile.gettempdir())
        sweep_once(parent, "vtaops-*.tmp")

        def make(token: str) -> tuple[Path, int]:
            path = parent / f"vtaops-{token}.tmp"
            path.mkdir(0o700)
            return path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)

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
    """Open a new file beside `target`, which may be renamed to it; else it is gone at the end.

    Raises
    ------
    OSError
        If it cannot be made.
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
    """Remove the temporaries in a folder that nobody holds; what cannot be removed stays."""
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
    """Sweep a folder when this process first uses it."""
    sweep(folder, pattern)


def _held(make: Callable[[str], tuple[Path, int]]) -> tuple[Path, int]:
    """Make and lock a temporary; again if another process swept it before it was locked."""
    while True:
        path, lock = make(secrets.token_hex(4))
        with suppress(OSError):  # a file system without locks: nobody sweeps there
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _remove(path: Path, lock: int, maker: int) -> None:
    """Remove a temporary, unless this is a forked child of its maker."""
    if os.getpid() == maker:
        _delete(path)
        os.close(lock)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
