"""The def-use index of operations: dependences, last writers of elements, and liveness.

Answers the passes' queries about scratchpad and DRAM elements. `last_conflicts` finds what each
operation depends on; its loop is C++ (the module ``vtaops._uses``, which also follows tokens and
what `forward` asks). `LastWrites` goes forward: it tracks the last write of each element. `Live`
goes backward: it tracks the elements that are read before they are overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._uses as _uses
from vtaops.lowering.operation import Elements, Operation
from vtaops.machine.accesses import Access, distinct
from vtaops.machine.config import Memory

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


def last_conflicts(operations: Sequence[Operation], kinds: Sequence[int], count: int) -> Elements:
    """Return the last places on which operations depend, of each kind of operation.

    An operation depends on earlier ones that access a common element, if either of the two writes.

    Parameters
    ----------
    operations : sequence of Operation
        In program order.
    kinds : sequence of int
        Kind of each operation, below `count`.
    count : int
        Number of kinds.

    Returns
    -------
    ndarray of int64, shape (operations, count)
        Places in `operations`; -1 if it depends on none of the kind.
    """
    found: Elements = _uses.last_conflicts([*operations], np.array(kinds, np.int64), count)
    return found


class LastWrites:
    """The places of the last write of each element; -1 if none."""

    def __init__(self) -> None:
        self._last = PerElement(-1)

    def note(self, operation: Operation, place: int) -> None:
        """Record the writes of an operation at `place`, which must follow all recorded places."""
        for access in operation.accesses:
            if access.writes:
                self._last.of(access.memory, access.end)[access.indices] = place

    def of(self, memory: Memory, elements: Elements) -> Elements:
        """Return the place of the last write of each element."""
        end = int(elements.max()) + 1 if elements.size else 0
        return self._last.of(memory, end)[elements]

    def writers(self, memory: Memory, elements: Elements) -> set[int]:
        """Return the distinct places of the last writes of elements, without -1."""
        last = distinct(self.of(memory, elements) + 1) - 1
        return {*last.tolist()} - {-1}


class Live:
    """Liveness: the elements of some memories that are read before they are overwritten."""

    def __init__(self, *memories: Memory) -> None:
        self._memories = memories
        self._elements = PerElement(False)

    def read(self, access: Access) -> npt.NDArray[np.bool_]:
        """Return for each element of an access whether it is live."""
        return self._elements.of(access.memory, access.end)[access.elements]

    def pass_back(self, operation: Operation) -> None:
        """Step backward over an operation, which reads before it writes."""
        own = [access for access in operation.scratchpads if access.memory in self._memories]
        for access in own:
            if access.writes:
                self._elements.of(access.memory, access.end)[access.indices] = False
        for access in own:
            if access.reads:
                self._elements.of(access.memory, access.end)[access.indices] = True
