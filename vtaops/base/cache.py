"""The caches on disk: where they lie, and files that are whole or count as not there.

Owns what all caches share. What is loaded as machine code ends with the hash of the rest: the
system's loader maps a library before it looks at it, so a truncated one would kill the process. ELF
ignores what follows its sections. A hash proves no author, so folders and files that other users
could have written are not used. Files appear by renaming, hence many processes share a folder. No
fault of the disk is an error here: what cannot be kept is made again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from vtaops.base.files import write_file
from vtaops.base.temporary import TemporaryFolder, sweep_once

PATIENCE = 5.0
"""Seconds of waiting for another process after which the user is told."""

_HASH_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger(__name__)


def cache_directory(name: str) -> Path:
    """Return the folder of a cache: ``$XDG_CACHE_HOME/vtaops/<name>``, or below ``~/.cache``.

    A relative ``XDG_CACHE_HOME`` is ignored, as the XDG Base Directory Specification demands. Where
    there is no home, the folder lasts as long as the process.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home().absolute() / ".cache"
        except RuntimeError:  # neither HOME nor an entry in the list of users
            base = _scratch()
    return base / "vtaops" / name


def usable(folder: Path) -> bool:
    """Make the folder of a cache; return whether only this user and root can write it."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _is_used(folder)


def trusted(path: Path) -> bool:
    """Whether a file and its folder are there, and only this user and root can have written them.

    At the first use of a folder, temporaries of processes that were killed are removed.
    """
    return _is_used(path.parent) and _is_private(path)


def intact(path: Path) -> bool:
    """Whether a file is `trusted` and ends with the hash of the rest."""
    if not trusted(path):
        return False
    try:
        content = path.read_bytes()
    except OSError:
        return False
    body, stored = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
    return hashlib.sha256(body).digest() == stored


def _is_used(folder: Path) -> bool:
    if _is_private(folder):
        sweep_once(folder, ".*.tmp")
        return True
    if folder.is_dir():
        _warn_of(folder)
    return False


def _is_private(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


@cache
def _warn_of(folder: Path) -> None:
    _log.warning(
        "the cache %s is not used, because other users can write it: chmod go-w it, or let "
        "XDG_CACHE_HOME (for kernels VTAOPS_KERNEL_CACHE) name a folder of yours",
        folder,
    )


def keep(content: bytes, path: Path) -> None:
    """Write a file of a cache, for this user only.

    Raises
    ------
    OSError
        If the folder cannot be made or written, or others can write it; what was at `path` is still
        there then.
    """
    if not usable(path.parent):
        raise OSError(errno.EACCES, "No folder that only this user can write", str(path.parent))
    write_file(path, content, 0o600)


def keep_code(file: Path, path: Path) -> None:
    """Write a finished file of machine code to its place in a cache, its hash behind it.

    Raises
    ------
    OSError
        As `keep`.
    """
    content = file.read_bytes()
    keep(content + hashlib.sha256(content).digest(), path)


def obtain(path: Path, make: Callable[[Path], Path]) -> Path:
    """Return an intact file: the one at `path`, or else what `make` makes.

    Parameters
    ----------
    path : Path
        Its place in a cache.
    make : callable
        Makes the file somewhere in the empty folder that it is given, and returns where. Processes
        that need the same file wait for the first.

    Returns
    -------
    Path
        `path`; where it cannot be written, a file that lasts as long as the process.
    """
    scratch = _scratch().joinpath(*path.absolute().parts[1:])
    for place in (path, scratch):
        if intact(place):
            return place
    with _locked(path):
        if intact(path):
            return path
        with TemporaryFolder() as folder:
            made = make(folder)
            try:
                keep_code(made, path)
                return path
            except OSError:
                keep_code(made, scratch)
                return scratch


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, if its folder can hold one."""
    with ExitStack() as stack:
        with suppress(OSError):
            if usable(path.parent):
                lock = path.with_suffix(".lock")
                opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, opened)
                _wait(opened, path, lock)
                os.truncate(opened, 0)
                os.pwrite(opened, str(os.getpid()).encode(), 0)
        yield


def _wait(opened: int, path: Path, lock: Path) -> None:
    """Wait for a lock; after some seconds say for whom."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    holder = os.pread(opened, 20, 0).decode("ascii", "replace") or "unknown"
    _log.warning("waiting for process %s, which makes %s and holds %s", holder, path, lock)
    fcntl.flock(opened, fcntl.LOCK_EX)


def _scratch() -> Path:
    """Return a folder that lasts as long as this process."""
    return _folder_of(os.getpid()).path


@cache
def _folder_of(process: int) -> TemporaryFolder:
    return TemporaryFolder()
