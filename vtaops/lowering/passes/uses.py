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

class Accumulators:
    """The accumulators that operations touch: indices, by their place.

    Attributes
    ----------
    touched : list of list
        What each operation reads and writes.
    written : list
        What each writes, or None.
    places : list of int
        The places of the operations that touch any.
    """

    def __init__(self, operations: Sequence[Operation], depth: int) -> None:
        own = [[a for a in o.operands if a.memory == Memory.ACC] for o in operations]
        self._depth = depth
        self.touched = [[access.indices for access in accesses] for accesses in own]
        self.written = [next((a.indices for a in accesses if a.writes), None) for accesses in own]
        self.places = [place for place, accesses in enumerate(own) if accesses]

    def mask(self, elements: slice | Elements) -> Flags:
        """Return a flag for each accumulator: whether it is among some."""
        mask = np.zeros(self._depth, np.bool_)
        mask[elements] = True
        return mask

    def touches(self, place: int, mask: Flags) -> bool:
        """Whether the operation at a place touches accumulators that a mask has."""
        return any(mask[touched].any() for touched in self.touched[place])

    def never(self) -> Elements:
        """Return a place for each accumulator at which it was written last: -1, nowhere yet."""
        return np.full(self._depth, -1)


class Followed(IntEnum):
    """When `read_later` follows what an operation does, as in C++."""

    NEVER = 0
    ALWAYS = 1
    IF_READ = 2


def read_later(operations: Sequence[Operation], followed: Sequence[Followed]) -> Flags:
    """Return of which operations a later, followed one reads a result, not yet overwritten."""
    found: Flags = _uses.read_later([*operations], np.array(followed, np.int64))
    return found


def last_writers(operations: Sequence[Operation], asked: Sequence[bool]) -> Flags:
    """Return which operations wrote last what an `asked` one reads."""
    found: Flags = _uses.last_writers([*operations], np.array(asked, np.int64))
    return found
