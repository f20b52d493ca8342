"""Arrays between pages that nobody may touch: a kernel that reads or writes outside them faults.

Every kernel runs twice, on arrays that begin right behind such a page and on arrays that end right
before one, whatever the caller gave it: its own inputs, packed weights or an `out`. Inputs cannot
be written, and what is left of their pages holds NaN.
"""

from __future__ import annotations

import ctypes
import mmap
from unittest import mock

import numpy as np

_NONE = 0
"""PROT_NONE, which `mmap` does not name."""

_SYSTEM = ctypes.CDLL(None)


def place(array, at_end: bool, written: bool):
    """Return a copy of an array that begins behind, or ends before, a page without access."""
    page, nbytes = mmap.PAGESIZE, array.nbytes
    room = -(-nbytes // page) * page
    memory = np.frombuffer(mmap.mmap(-1, room + 2 * page), np.uint8)
    memory[page : page + room] = 0xFF
    first = page + (room - nbytes if at_end else 0)
    placed = memory[first : first + nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    access = mmap.PROT_READ | (mmap.PROT_WRITE if written else 0)
    _protect(memory[:page], _NONE)
    _protect(memory[page : page + room], access)
    _protect(memory[page + room :], _NONE)
    return placed


def _protect(pages, access: int) -> None:
    address, size = ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(pages.nbytes)
    if _SYSTEM.mprotect(address, size, access):
        raise OSError("mprotect refused")


def guarded(run):
    """Return a function that runs machine code, ``run(*inputs, result)``, on guarded arrays."""

    def call(*arrays):
        *inputs, result = arrays
        for at_end in (False, True):
            written = place(result, at_end, True)
            run(*(place(array, at_end, False) for array in inputs), written)
        result[...] = written

    return call


def guarded_kernels():
    """Guard the CPU kernels that are made meanwhile."""
    from vtaops.kernels.cpu import CACHE

    get = CACHE.get
    return mock.patch.object(CACHE, "get", lambda *given: guarded(get(*given)))
