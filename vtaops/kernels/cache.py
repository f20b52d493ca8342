"""KernelCache: compiled kernels in memory and on disk, keyed by the content of their sources.

A kernel's key is a hash of its operator, its target, the version of TVM, and the source text of all
that declares, schedules and compiles the operators of its backend. So a file is never stale, and
changes elsewhere do not invalidate it. Above a limit, the oldest files are deleted. A damaged file
is recompiled (`vtaops.base.cache`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vtaops.base import cache as disk
from vtaops.base.forks import ForkLock
from vtaops.base.temporary import LINK_HERE, TemporaryFolder

_PACKAGE = Path(__file__).parents[1]

_SHARED = "base/shapes.py", "base/window.py", "kernels/build.py", "kernels/ops"
"""Folders and files, relative to the package, that every kernel depends on."""

MOST_KERNELS = 4096
"""Maximum number of kernels in memory, and of files on disk: some 100 MB."""


def cache_directory() -> Path:
    """Return the folder of compiled kernels: VTAOPS_KERNEL_CACHE, or the XDG cache folder."""
    if own := os.environ.get("VTAOPS_KERNEL_CACHE"):
        return Path(own).absolute()
    return disk.cache_directory("kernels")


class KernelCache:
    """Compiled kernels by key.

    Parameters
    ----------
    directory : Path, optional
        Folder of the files; by default `cache_directory`.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._loaded: dict[str, Any] = {}
        self._lock = ForkLock()

    @property
    def directory(self) -> Path:
        """Folder of the files."""
        return self._directory or cache_directory()

    def path(self, op: Any, target: Any, sources: tuple[str, ...] = ()) -> Path:
        """Return the file of an operator's kernel for a target; both are dataclasses."""
        return self.directory / f"{kernel_key(op, target, sources)}.so"

    def get(
        self,
        op: Any,
        target: Any,
        compile: Callable[[], Any],
        sources: tuple[str, ...] = (),
    ) -> Any:
        """Return the kernel function of `op` from memory, from disk, or from ``compile()``.

        Parameters
        ----------
        op, target : dataclass
            Operator and machine; their ``repr`` must identify them.
        compile : callable
            Returns a TVM executable; called only without a usable file.
        sources : tuple of str
            Further folders and files, relative to the package, that the machine code depends on.
        """
        path = self.path(op, target, sources)
        with self._lock:
            if path.name not in self._loaded:
                if len(self._loaded) >= MOST_KERNELS:
                    del self._loaded[next(iter(self._loaded))]
                self._loaded[path.name] = _load(path) or _compile_and_store(compile, path)
            return self._loaded[path.name]

    def clear(self) -> None:
        """Forget all kernels and delete their files."""
        with self._lock:
            self._loaded.clear()
            for path in self.directory.glob("*.so"):
                path.unlink(missing_ok=True)


def kernel_key(op: Any, target: Any, sources: tuple[str, ...] = ()) -> str:
    """Return the content hash that identifies a kernel."""
    text = "\n".join([type(op).__name__, repr(op), repr(target), _toolchain(sources)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def _toolchain(sources: tuple[str, ...]) -> str:
    """Return a hash of everything that compiles an operator: TVM's versions and our sources."""
    digest = hashlib.sha256(version("apache-tvm").encode())
    digest.update(version("apache-tvm-ffi").encode())
    for source in (*_SHARED, *sources):
        entry = _PACKAGE / source
        for path in [entry] if entry.is_file() else sorted(entry.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(path: Path) -> Any:
    """Return the entry point of a stored kernel, or None without a usable file."""
    if not disk.checksum_ok(path):
        return None
    import tvm  # noqa: F401  # its runtime library must be loaded before a kernel is
    from tvm_ffi import load_module

    try:
        return load_module(str(path.resolve()))["main"]
    except (OSError, RuntimeError, AttributeError):
        return None


def _compile_and_store(compile: Callable[[], Any], path: Path) -> Any:
    """Compile; store the result if a C compiler can link it and the folder is writable."""
    executable = compile()
    if shutil.which("g++") or shutil.which("cc") or os.environ.get("CXX"):
        # A read-only home, a full disk, a broken linker: the kernel still works in memory.
        with suppress(OSError, RuntimeError):
            _store(executable, path)
    return executable["main"]


def _store(executable: Any, path: Path) -> None:
    with TemporaryFolder() as folder:
        finished = folder / path.name
        executable.export_library(str(finished), workspace_dir=str(folder), options=LINK_HERE)
        disk.store_code(finished, path)
    _drop_oldest(path.parent)


def _drop_oldest(directory: Path) -> None:
    """If there are too many files, delete all but the newest seven eighths of the limit."""
    paths = list(directory.glob("*.so"))
    if len(paths) <= MOST_KERNELS:
        return
    ages: dict[Path, float] = {}
    for path in paths:
        with suppress(OSError):  # another process deleted it
            ages[path] = path.stat().st_mtime
    for path in sorted(ages, key=lambda path: ages[path])[: MOST_KERNELS // 8]:
        path.unlink(missing_ok=True)
