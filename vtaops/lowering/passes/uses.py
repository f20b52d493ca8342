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
from vtaops.lowering.operation import Elements, Operation, Touch, distinct, largest

_NOTHING = np.zeros(0, np.int64)


class PerElement(dict[object, npt.NDArray[Any]]):
    """A number for each element of some memories, initially `fill`."""

    def __init__(self, fill: Any) -> None:
        super().__init__()
        self._fill = fill

    def of(self, memory: object, end: int) -> npt.NDArray[Any]:
        """Return the numbers of a memory, covering at least its first `end` elements."""
        found = self.get(memory, _NOTHING)
        if len(found) < end:
            grown = np.full(max(end, 2 * len(found)), self._fill)
            grown[: len(found)] = found
            self[memory] = found = grown
        return found


def last_conflicts(
    operations: Sequence[Operation], kinds: Sequence[int], count: int, ignored: str = ""
) -> Elements:
    """Return the last places on which operations depend, of each kind of operation.

    An operation depends on earlier ones that touch a common element, if either of the two writes.

    Parameters
    ----------
    operations : sequence of Operation
        In program order.
    kinds : sequence of int
        Kind of each operation, below `count`.
    count : int
        Number of kinds.
    ignored : str
        A memory whose touches are no dependence.

    Returns
    -------
    ndarray of int64, shape (operations, count)
        Places in `operations`; -1 if it depends on none of the kind.
    """
    found: Elements = _uses.last_conflicts([*operations], np.array(kinds, np.int64), count, ignored)
    return found


class LastWrites:
    """The places of the last write of each element; -1 if none."""

    def __init__(self) -> None:
        self._last = PerElement(-1)

    def note(self, operation: Operation, place: int) -> None:
        """Record the writes of an operation at `place`, which must follow all recorded places."""
        for touch in operation.writes:
            self._last.of(touch.space, touch.end)[touch.index] = place

    def of(self, space: str, elements: Elements) -> Elements:
        """Return the place of the last write of each element."""
        end = largest(elements) + 1 if elements.size else 0
        return self._last.of(space, end)[elements]

    def writers(self, space: str, elements: Elements) -> set[int]:
        """Return the distinct places of the last writes of elements, without -1."""
        last = distinct(self.of(space, elements) + 1) - 1
        return {*last.tolist()} - {-1}


class Live:
    """Liveness: the elements read before they are overwritten by operations after a place.

    Parameters
    ----------
    spaces : str
        Name prefixes of the memories to track.
    """

    def __init__(self, *spaces: str) -> None:
        self._spaces = spaces
        self._live = PerElement(False)

    def read(self, touch: Touch) -> npt.NDArray[np.bool_]:
        """Return for each element of a touch whether it is live."""
        return self._live.of(touch.space, touch.end)[touch.elements]

    def pass_back(self, operation: Operation) -> None:
        """Step backward over an operation."""
        touches = [touch for touch in operation.touches if touch.space.startswith(self._spaces)]
        for touch in touches:
            if touch.write:
                self._live.of(touch.space, touch.end)[touch.index] = False
        for touch in touches:
            if not touch.write or operation.in_place:
                self._live.of(touch.space, touch.end)[touch.index] = True
