"""The caches on disk: where they lie, and files that are whole or count as not there.

Owns what all caches share. What is loaded as machine code ends with the hash of the rest: the
system's loader maps a library before it looks at it, so a truncated one would kill the process. ELF
ignores what follows its sections. Files appear by renaming, hence many processes share a folder. No
fault of the disk is an error here: what cannot be kept is made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

_HASH_BYTES = hashlib.sha256().digest_size


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


def intact(path: Path) -> bool:
    """Whether a file is there and ends with the hash of the rest."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    body, stored = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
    return hashlib.sha256(body).digest() == stored


def keep(file: Path, path: Path) -> None:
    """Move a finished file to its place in a cache, the hash of its content behind it.

    Raises
    ------
    OSError
        If the folder cannot be made or written; what was at `path` is still there then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / path.name
        shutil.copyfile(file, whole)
        with whole.open("ab") as stream:
            stream.write(hashlib.sha256(file.read_bytes()).digest())
        whole.replace(path)


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
        with tempfile.TemporaryDirectory() as folder:
            made = make(Path(folder))
            try:
                keep(made, path)
                return path
            except OSError:
                keep(made, scratch)
                return scratch


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, if its folder can hold one."""
    with ExitStack() as stack:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.with_suffix(".lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def _scratch() -> Path:
    """Return a folder that is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="vtaops-")
    _folders.append(folder)
    return Path(folder.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Keeps them until the process ends."""
