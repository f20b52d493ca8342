"""The def-use index of operations: last writers of elements, and liveness.

Answers the passes' queries about scratchpad elements. The loops of `read_later` and `last_writers`
are C++ (the module ``vtaops._uses``, which also links). `LastWrites` tracks the last write of each
element for a pass that decides as it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._uses as _uses
from vtaops.lowering.operation import Elements, Operation
from vtaops.machine.config import Memory

Flags = npt.NDArray[np.bool_]

_NOTHING = np.zeros(0, np.int64)


class PerElement(dict[int, npt.NDArray[Any]]):
    """A number for each element of some memories, initially `fill`."""

    def __init__(self, fill: Any) -> None:
        super().__init__()
        self._fill = fill

    def of(self, memory: int, end: int) -> npt.NDArray[Any]:
        """Return the numbers of a memory, covering at least its first `end` elements."""
        found = self.get(memory, _NOTHING)
        if len(found) < end:
            grown = np.full(max(end, 2 * len(found)), self._fill)
            grown[: len(found)] = found
            self[memory] = found = grown
        return found


class Accumulators:
    """The operations that touch accumulators, in program order.

    Attributes
    ----------
    places : list of int
        The places of the operations that touch any.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._touched = [[a.indices for a in o.operands if a.memory == _ACC] for o in operations]
        self._depth = max((a.end for o in operations for a in o.of(Memory.ACC)), default=0)
        self.places = [place for place, touched in enumerate(self._touched) if touched]

    def mask(self, elements: slice | Elements) -> Flags:
        """Return a flag for each accumulator: whether it is among some."""
        mask = np.zeros(self._depth, np.bool_)
        mask[elements] = True
        return mask

    def written(self, place: int) -> slice | Elements:
        """Return an index of the accumulators that the operation at one of `places` writes."""
        return self._touched[place][0]

    def touches(self, place: int, mask: Flags) -> bool:
        """Whether the operation at a place touches accumulators that a mask has."""
        return any(mask[touched].any() for touched in self._touched[place])


_ACC = int(Memory.ACC)


class LastWrites:
    """The places of the last write of each element; -1 if none."""

    def __init__(self) -> None:
        self._last = PerElement(-1)

    def note(self, operation: Operation, place: int) -> None:
        """Record the writes of an operation at `place`, which must follow all recorded places."""
        for access in operation.scratchpads:
            if access.writes:
                self._last.of(access.memory, access.end)[access.indices] = place

    def of(self, memory: Memory, elements: Elements) -> Elements:
        """Return the place of the last write of each element."""
        end = int(elements.max()) + 1 if elements.size else 0
        return self._last.of(memory, end)[elements]


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
