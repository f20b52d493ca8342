"""The def-use index of operations: last writers and readers of elements, and liveness.

Answers the passes' queries about scratchpad and DRAM elements. `LastUses` goes forward: it tracks
the last write and read of each element, and so the dependences of an operation. `Live` goes
backward: it tracks the elements that are read before they are overwritten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

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


class LastUses:
    """The places of the last write and the last read of each element; -1 if none."""

    def __init__(self) -> None:
        self._last = PerElement(-1)

    def note(self, touch: Touch, place: int) -> None:
        """Record a touch at `place`, which must follow all recorded places."""
        self._last.of((touch.space, touch.write), touch.end)[touch.index] = place

    def note_writes(self, operation: Operation, place: int) -> None:
        """Record the writes of the operation at `place`."""
        for touch in operation.writes:
            self.note(touch, place)

    def last_writes(self, space: str, elements: Elements) -> Elements:
        """Return the place of the last write of each element."""
        end = largest(elements) + 1 if elements.size else 0
        return self._last.of((space, True), end)[elements]

    def writers(self, space: str, elements: Elements) -> set[int]:
        """Return the distinct places of the last writes of elements, without -1."""
        last = distinct(self.last_writes(space, elements) + 1) - 1
        return {*last.tolist()} - {-1}

    def conflict(self, touch: Touch) -> int:
        """Return the last place on which a touch depends; -1 if none.

        A touch depends on earlier touches of a common element if either of the two writes.
        """
        latest = -1
        for write in (True, False) if touch.write else (True,):
            last = self._last.get((touch.space, write))
            if last is not None and touch.size:
                if len(last) < touch.end:
                    last = self._last.of((touch.space, write), touch.end)
                latest = max(latest, largest(last[touch.index]))
        return latest


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
