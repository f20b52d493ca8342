"""What a process does with freed memory, when it collects garbage, and the threads of products.

Each program allocates and frees megabytes. By default glibc's malloc returns them to the system and
obtains them again, page by page, which takes a tenth of a sweep's time; Dask's nanny even makes its
workers return memory at once (``MALLOC_TRIM_THRESHOLD_``), and two such processes slow each other.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of mallopt(3)
_KEPT_BYTES = 1 << 30
_LARGEST_ON_HEAP = 32 << 20  # glibc's maximum


@cache
def keep_freed_memory() -> bool:
    """Let malloc keep up to 1 GiB of freed memory in this process; return whether it does.

    Applies to glibc only.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = {_MMAP_THRESHOLD: _LARGEST_ON_HEAP, _TRIM_THRESHOLD: _KEPT_BYTES}
    accepted = [libc.mallopt(name, value) for name, value in settings.items()]
    return all(accepted)


def return_memory() -> None:
    """Return freed memory to the system, which glibc would keep; other libraries do as they do."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the garbage collector if it runs; as a context manager or as a decorator.

    For computations of many small objects without cycles, which it would walk again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy's products use one thread; as a context manager or as a decorator.

    For products of which many are small: between them OpenBLAS's other threads spin. ViT-Tiny's
    proof takes 27 s of CPU with two threads and 19 s with one, and equally long (2026-11-29).
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # on a board
        yield
        return
    with threadpool_limits(1, "blas"):
        yield
