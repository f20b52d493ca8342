"""The def-use index of operations: who wrote or read an element last, and who reads it next.

Owns what the passes ask about elements of scratchpads and of DRAM. `LastUses` goes forward: it
knows the last operation that wrote, or read, each element, hence what must stay behind what. `Live`
goes backward: it knows which elements are read before they are overwritten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Elements, Operation, Touch, distinct

_NOTHING = np.zeros(0, np.int64)


class PerElement(dict[object, npt.NDArray[Any]]):
    """A number for each element of some memories; `fill` until it is set."""

    def __init__(self, fill: Any) -> None:
        super().__init__()
        self._fill = fill

    def of(self, memory: object, end: int) -> npt.NDArray[Any]:
        """Return the numbers of a memory, at least of its first `end` elements."""
        found = self.get(memory, _NOTHING)
        if len(found) < end:
            grown = np.full(max(end, 2 * len(found)), self._fill)
            grown[: len(found)] = found
            self[memory] = found = grown
        return found


class LastUses:
    """The place of the last operation that wrote, and that read, each element; -1 is none."""

    def __init__(self) -> None:
        self._last = PerElement(-1)

    def note(self, touch: Touch, place: int) -> None:
        """Remember that what is at `place`, behind all that was noted before, touches elements."""
        self._last.of((touch.space, touch.write), touch.end)[touch.index] = place

    def note_writes(self, operation: Operation, place: int) -> None:
        """Remember what the operation at `place` writes."""
        for touch in operation.writes:
            self.note(touch, place)

    def last_writes(self, space: str, elements: Elements) -> Elements:
        """Return where each of some elements was written last."""
        return self._last.of((space, True), int(elements.max(initial=-1)) + 1)[elements]

    def writers(self, space: str, elements: Elements) -> set[int]:
        """Return the places where some elements were written last; without -1."""
        last = distinct(self.last_writes(space, elements) + 1) - 1
        return {*last.tolist()} - {-1}

    def conflict(self, touch: Touch) -> int:
        """Return the last place that what touches elements must stay behind; -1 if none.

        That is one that touches a common element, where one of the two writes.
        """
        latest = -1
        for write in (True, False) if touch.write else (True,):
            last = self._last.get((touch.space, write))
            if last is not None:
                if len(last) < touch.end:
                    last = self._last.of((touch.space, write), touch.end)
                latest = max(latest, int(last[touch.index].max()))
        return latest


class Live:
    """Which elements are read before they are overwritten, by the operations behind a place.

    Parameters
    ----------
    spaces : str
        How the names of the memories begin that are followed.
    """

    def __init__(self, *spaces: str) -> None:
        self._spaces = spaces
        self._live = PerElement(False)

    def read(self, touch: Touch) -> npt.NDArray[np.bool_]:
        """Return which elements of a touch are read."""
        return self._live.of(touch.space, touch.end)[touch.elements]

    def pass_back(self, operation: Operation) -> None:
        """Go to the place in front of an operation."""
        touches = [touch for touch in operation.touches if touch.space.startswith(self._spaces)]
        for touch in touches:
            if touch.write:
                self._live.of(touch.space, touch.end)[touch.index] = False
        for touch in touches:
            if not touch.write or operation.in_place:
                self._live.of(touch.space, touch.end)[touch.index] = True
