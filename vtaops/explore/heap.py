"""Keeps freed memory in processes that compile one program after the other.

Each program takes and frees megabytes. By default glibc's malloc gives them back to the system and
gets them again, page by page, which takes a tenth of the time of a sweep; Dask's nanny tells its
workers to do so at once (``MALLOC_TRIM_THRESHOLD_``), and two processes that do it slow each other.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of mallopt(3)
_KEPT_BYTES = 1 << 30
_LARGEST_ON_HEAP = 32 << 20  # the most that glibc accepts


@cache
def keep_freed_memory() -> bool:
    """Let malloc keep up to 1 GiB of freed memory in this process; return whether it does.

    Only glibc is told; elsewhere nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = {_MMAP_THRESHOLD: _LARGEST_ON_HEAP, _TRIM_THRESHOLD: _KEPT_BYTES}
    accepted = [libc.mallopt(name, value) for name, value in settings.items()]
    return all(accepted)
