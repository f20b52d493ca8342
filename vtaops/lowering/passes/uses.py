"""The def-use index of operations: last writers of elements, and liveness.

Answers the passes' queries about scratchpad elements. The loops of `read_later` and `last_writers`
are C++ (the module ``vtaops._uses``, which also links).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

import vtaops._uses as _uses
from vtaops.lowering.operation import Elements, Operation
from vtaops.machine.config import Memory

Flags = npt.NDArray[np.bool_]


class Followed(IntEnum):
    """When `Uses.read_later` follows what an operation does, as in C++."""

    NEVER = 0
    ALWAYS = 1
    IF_READ = 2


class Uses:
    """Answers about what some operations access, each in one walk."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._index = _uses.Uses([*operations])

    def read_later(self, followed: Sequence[Followed]) -> Flags:
        """Return of which operations a later, followed one reads a result, not yet overwritten."""
        flags: Flags = self._index.read_later(np.array(followed, np.int64))
        return flags

    def last_writers(self, asked: Sequence[bool]) -> Flags:
        """Return which operations wrote last what an `asked` one reads."""
        flags: Flags = self._index.last_writers(np.array(asked, np.int64))
        return flags

    def touching(self, accumulators: Flags, begin: int, end: int) -> int:
        """Return the place of the first of some operations that accesses one of these, or `end`."""
        place: int = self._index.touching(int(Memory.ACC), accumulators, begin, end)
        return place

    def writers(self, accumulators: Flags, end: int, dropped: Flags) -> tuple[int, int] | None:
        """Return the first and the last place of the last writers of these, before `end`.

        Those of operations that are dropped do not count. None if one was never written.
        """
        first, last = self._index.writers(int(Memory.ACC), accumulators, end, dropped)
        return None if first < 0 else (first, last)


def mask_of(elements: Elements, depth: int) -> Flags:
    """Return a flag for each of `depth` elements: whether it is among some."""
    mask = np.zeros(depth, np.bool_)
    mask[elements] = True
    return mask
