"""KernelCache: compiled kernels in memory and on disk, keyed by the content of their sources.

The key of a kernel is the hash of its operator, its target, the version of TVM and the source text
of the modules that declare, schedule and compile it. So a file is never stale, and a change
elsewhere does not invalidate it. The oldest files are deleted when there are too many. A damaged
file is compiled again (`vtaops.base.cache`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vtaops.base import cache as disk
from vtaops.base.forks import ForkLock
from vtaops.base.temporary import TemporaryFolder

_PACKAGE = Path(__file__).parent.parent

MOST_KERNELS = 4096
"""Kernels that a process keeps, and files that the folder does: some 100 MB."""


def cache_directory() -> Path:
    """Return the folder of compiled kernels: VTAOPS_KERNEL_CACHE, or that of the XDG standard."""
    if own := os.environ.get("VTAOPS_KERNEL_CACHE"):
        return Path(own).absolute()
    return disk.cache_directory("kernels")


class KernelCache:
    """Compiled kernels by key.

    Parameters
    ----------
    directory : Path, optional
        Where the files lie; `cache_directory` by default.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._loaded: dict[str, Any] = {}
        self._lock = ForkLock()

    @property
    def directory(self) -> Path:
        """Where the files lie."""
        return self._directory or cache_directory()

    def path(self, op: Any, target: Any, sources: tuple[str, ...] = ()) -> Path:
        """Return the file of the kernel of an operator (a dataclass) for a target (another)."""
        return self.directory / f"{kernel_key(op, target, sources)}.so"

    def get(
        self,
        op: Any,
        target: Any,
        compile: Callable[[], Any],
        sources: tuple[str, ...] = (),
    ) -> Any:
        """Return the kernel function of `op`, from memory, from disk, or by ``compile()``.

        Parameters
        ----------
        op, target : dataclass
            What is computed, and for which machine; their ``repr`` must tell them apart.
        compile : callable
            Returns a TVM executable; called only if there is no usable file.
        sources : tuple of str
            Folders and files below the package that its machine code depends on.
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
    """Return the content hash that names a kernel."""
    text = "\n".join([type(op).__name__, repr(op), repr(target), _toolchain(sources)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def _toolchain(sources: tuple[str, ...]) -> str:
    """Return the versions of what turns an operator into machine code, our own text included."""
    digest = hashlib.sha256(version("apache-tvm").encode())
    digest.update(version("apache-tvm-ffi").encode())
    for source in sources:
        found = _PACKAGE / source
        for path in [found] if found.is_file() else sorted(found.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(path: Path) -> Any:
    """Return the entry of a stored kernel, or None if there is no usable file."""
    if not disk.intact(path):
        return None
    import tvm  # noqa: F401  # its runtime library must be loaded before a kernel is
    from tvm_ffi import load_module

    try:
        return load_module(str(path.resolve()))["main"]
    except (OSError, RuntimeError, AttributeError):
        return None


def _compile_and_store(compile: Callable[[], Any], path: Path) -> Any:
    """Compile, and keep the result on disk if there are a C compiler to link it and a folder."""
    executable = compile()
    if shutil.which("g++") or shutil.which("cc") or os.environ.get("CXX"):
        # A read-only home, a full disk, a broken linker: the kernel works from memory.
        with suppress(OSError, RuntimeError):
            _store(executable, path)
    return executable["main"]


def _store(executable: Any, path: Path) -> None:
    with TemporaryFolder() as folder:
        finished = folder / path.name
        executable.export_library(str(finished), workspace_dir=str(folder))
        disk.keep_code(finished, path)
    _drop_oldest(path.parent)


def _drop_oldest(directory: Path) -> None:
    """Delete an eighth of the files, those that were stored first, when there are too many."""
    paths = list(directory.glob("*.so"))
    if len(paths) <= MOST_KERNELS:
        return
    ages: dict[Path, float] = {}
    for path in paths:
        with suppress(OSError):  # another process deleted it
            ages[path] = path.stat().st_mtime
    for path in sorted(ages, key=lambda path: ages[path])[: MOST_KERNELS // 8]:
        path.unlink(missing_ok=True)


_IMPORT = re.compile(r"^from vtaops\.([\w.]+) import", re.MULTILINE)
"""An import at the top of a module. Parsing the files would cost a process a tenth of a second."""


@cache
def sources_of(*modules: str) -> tuple[str, ...]:
    """Return the files of modules of the package and of all that they import at their top."""
    found: dict[str, None] = {}
    waiting = list(modules)
    while waiting:
        path = waiting.pop().removeprefix("vtaops.").replace(".", "/")
        path += ".py" if (_PACKAGE / f"{path}.py").is_file() else "/__init__.py"
        if path not in found and (_PACKAGE / path).is_file():
            found[path] = None
            waiting += _IMPORT.findall((_PACKAGE / path).read_text())
    return tuple(sorted(found))
