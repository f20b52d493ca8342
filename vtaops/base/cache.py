"""On-disk caches: their location, trust and integrity.

Files that are loaded as machine code end with a hash of their content: the system's loader maps a
library before checking it, so a truncated one would kill the process. ELF ignores trailing bytes. A
hash does not authenticate, so files that other users could have written are ignored. No folder and
no link on the way to a file may be under another user's control either: he could put something else
in its place between the check and the load.
Files are created by an atomic rename, so processes can share a folder. Disk failures are not errors
here: an entry that cannot be stored is rebuilt.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import hashlib
import logging
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from vtaops.base.files import replace_file
from vtaops.base.temporary import TemporaryFolder, sweep_once

PATIENCE = 5
"""Seconds to wait for another process before telling the user."""

_HASH_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger(__name__)


def cache_directory(name: str) -> Path:
    """Return the folder of a cache: ``$XDG_CACHE_HOME/vtaops/<name>``, or below ``~/.cache``.

    A relative ``XDG_CACHE_HOME`` is ignored, as the XDG Base Directory Specification demands.
    Without a home directory, the folder lasts as long as the process.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home().absolute() / ".cache"
        except RuntimeError:  # neither HOME nor an entry in the list of users
            base = _scratch()
    return base / "vtaops" / name


def make_private(folder: Path) -> bool:
    """Create a cache folder; return whether only this user and root can write to it."""
    with suppress(OSError):
        for place in (*reversed(folder.parents), folder):
            place.mkdir(mode=0o700, exist_ok=True)
    return _is_used(folder)


def trusted(path: Path) -> bool:
    """Whether a file exists and only this user and root control it and its folders.

    The first use of a folder removes temporaries left by killed processes.
    """
    return _is_used(path.parent) and _is_private(path)


def checksum_ok(path: Path) -> bool:
    """Whether a file is `trusted` and ends with the hash of its content."""
    if not trusted(path):
        return False
    try:
        content = path.read_bytes()
    except OSError:
        return False
    body, stored = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
    return hashlib.sha256(body).digest() == stored


def _is_used(folder: Path) -> bool:
    try:
        foreign = _foreign(folder)
    except OSError:
        return False
    if foreign is None:
        sweep_once(folder, ".*.tmp")
    else:
        _warn_of(folder, foreign)
    return foreign is None


def _is_private(path: Path) -> bool:
    try:
        return _foreign(path) is None
    except OSError:
        return False


def _foreign(path: Path) -> Path | None:
    """Return the first place on the way to a path that another user controls, if there is one.

    What belongs to this user or root, in a folder of which the same holds, no other user can
    replace: not if he cannot write to the folder, nor if it is sticky, as ``/tmp`` is.

    Raises
    ------
    OSError
        If the path does not exist.
    """
    path.stat()  # also raises for links in a circle
    places = [*_way(path.absolute())]
    for place in places:
        status = place.lstat()
        is_writable = _is_writable(status, is_end=place is places[-1])
        if status.st_uid not in (0, os.geteuid()) or is_writable:
            return place
    return None


def _way(path: Path) -> Iterator[Path]:
    """Yield the folders and links that lead to a path, from the root on, and what it names."""
    for place in (*reversed(path.parents), path):
        yield place
        if place.is_symlink():
            yield from _way(place.parent / place.readlink())


def _is_writable(found: os.stat_result, *, is_end: bool) -> bool:
    """Whether other users can write to a place, or rename what is in it."""
    mode = found.st_mode
    if stat.S_ISLNK(mode):
        return False
    if is_end:
        return bool(mode & 0o022)
    by_group = mode & 0o020 and not _is_own_group(found.st_gid)
    return bool(mode & 0o002 or by_group) and not mode & stat.S_ISVTX


@cache
def _is_own_group(number: int) -> bool:
    """Whether a group is the user's own: of his name, with no other member.

    Where users have such groups, their files are often writable to the group.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return number == user.pw_gid and {group.gr_name, *group.gr_mem} == {user.pw_name}


@cache
def _warn_of(folder: Path, foreign: Path) -> None:
    _log.warning(
        "the cache %s is not used, because other users control %s: chmod go-w it, if it is yours, "
        "or let XDG_CACHE_HOME (for kernels VTAOPS_KERNEL_CACHE) name a folder of yours",
        folder,
        foreign,
    )


def store(content: bytes, path: Path) -> None:
    """Write a cache file, readable by this user only.

    Raises
    ------
    OSError
        If the folder cannot be created or written, or others control it; `path` is then unchanged.
    """
    if not make_private(path.parent):
        raise OSError(errno.EACCES, "No folder that only this user controls", str(path.parent))
    replace_file(path, content, 0o600)


def store_code(file: Path, path: Path) -> None:
    """Copy a finished machine-code file into a cache and append its hash.

    Raises
    ------
    OSError
        As `store`, or if others control the folder of `file`.
    """
    if not _is_used(file.parent):
        raise OSError(errno.EACCES, "Other users control its folder", str(file))
    content = file.read_bytes()
    store(content + hashlib.sha256(content).digest(), path)


def get_or_build(path: Path, make: Callable[[Path], Path]) -> Path:
    """Return an intact file: the one at `path`, or a new one built by `make`.

    Parameters
    ----------
    path : Path
        Location in a cache.
    make : callable
        Creates the file in the empty folder passed to it and returns its path. Concurrent processes
        that need the same file wait for the first.

    Returns
    -------
    Path
        `path`, or, if it cannot be written, a file that lasts as long as the process.
    """
    scratch = _scratch().joinpath(*path.absolute().parts[1:])
    for place in (path, scratch):
        if checksum_ok(place):
            return place
    with _locked(path):
        if checksum_ok(path):
            return path
        with TemporaryFolder() as folder:
            made = make(folder)
            try:
                store_code(made, path)
                return path
            except OSError:
                store_code(made, scratch)
                return scratch


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file if its folder supports locking."""
    with ExitStack() as stack:
        with suppress(OSError):
            if make_private(path.parent):
                lock = path.with_suffix(".lock")
                opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, opened)
                _wait(opened, path)
        yield


def _wait(opened: int, path: Path) -> None:
    """Wait for a lock; tell the user if that takes longer than `PATIENCE` seconds."""
    for _ in range(20 * PATIENCE):
        with suppress(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)
    _log.warning("waiting for another process, which makes %s", path)
    fcntl.flock(opened, fcntl.LOCK_EX)


def _scratch() -> Path:
    """Return a folder that lasts as long as this process."""
    return _folder_of(os.getpid()).path


@cache
def _folder_of(process: int) -> TemporaryFolder:
    return TemporaryFolder()
