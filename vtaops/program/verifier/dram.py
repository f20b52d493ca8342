"""The DRAM that a program writes: buffers of their own, and slots of the arena that overlap.

What counts for a race is the memory, whichever buffers name it. What counts for definedness is
the buffer: a LOAD sees only what was stored through the buffer that it names.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtaops.machine.isa import Unit
from vtaops.program.program import Program, Role
from vtaops.program.verifier.history import Elements, History, element_at
from vtaops.program.verifier.rules import ProofStep, Rule
from vtaops.program.verifier.tokens import Clock

_NOBODY = 0
"""Untouched pages of zeros cost nothing, so buffers count from 1 here."""


class WrittenBuffer:
    """One buffer that a program writes.

    Parameters
    ----------
    name : str
        What messages call it.
    index : int
        Its number in the program.
    history : History
        The accesses to the memory that it lies in.
    owners : ndarray of int32
        For each element of that memory: through which buffer it was last written.
    first, size : int
        Its elements in that memory.
    filled : bool
        Whether it has a value when the program begins.
    """

    def __init__(
        self,
        name: str,
        index: int,
        history: History,
        owners: npt.NDArray[np.int32],
        first: int,
        size: int,
        filled: bool,
    ) -> None:
        self.name = name
        self._owner = index + 1
        self._history = history
        self._owners = owners
        self._first = first
        self._size = size
        # What was read before it was written, in a filled buffer: it must never be written.
        self._fill_read = np.zeros(size, np.bool_) if filled else None

    def read(self, step: ProofStep, clock: Clock, elements: Elements) -> None:
        """Check a LOAD; `elements` count from the start of the buffer."""
        inside = self._inside(elements)
        owners = self._owners[inside]
        if self._fill_read is not None:
            self._fill_read[elements] |= owners == _NOBODY
        elif (owners != self._owner).any():
            place = int(np.argmax(owners != self._owner))
            what = "holds what another buffer left there"
            if owners[place] == _NOBODY:
                what = "was never written"
            step.reject(
                Rule.UNDEFINED_DRAM,
                f"element {element_at(elements, place)} of {self.name} {what}",
            )
        self._history.read(step, clock, inside)

    def write(self, step: ProofStep, clock: Clock, elements: Elements) -> None:
        """Check a STORE; `elements` count from the start of the buffer."""
        if self._fill_read is not None and self._fill_read[elements].any():
            element = element_at(elements, int(np.argmax(self._fill_read[elements])))
            step.reject(
                Rule.FILL, f"element {element} of {self.name} was read with the value of its fill"
            )
        inside = self._inside(elements)
        self._history.write(step, clock, inside)
        self._owners[inside] = self._owner

    def never_written(self) -> npt.NDArray[np.intp]:
        """Return the elements that no instruction stored through this buffer."""
        end = self._first + self._size
        return np.flatnonzero(self._owners[self._first : end] != self._owner)

    def _inside(self, elements: Elements) -> Elements:
        """Return elements of the memory."""
        if not self._first:
            return elements
        if isinstance(elements, slice):
            return slice(elements.start + self._first, elements.stop + self._first)
        return elements + self._first


def written_memory(program: Program, granule: int) -> dict[int, WrittenBuffer]:
    """Return the buffers of a program that it writes, by their numbers.

    Parameters
    ----------
    program : Program
        The program.
    granule : int
        Bytes by which accesses are counted.
    """
    written = (Role.OUTPUT, Role.SCRATCH)
    arena = _memory("the arena", -(-program.arena_nbytes // granule))
    found = {}
    for index, buffer in enumerate(program.buffers):
        if buffer.role in written:
            name = f"buffer {buffer.name!r} (elements of {granule} bytes)"
            size = -(-buffer.nbytes // granule)
            history, owners = arena if buffer.offset is not None else _memory(name, size)
            first = (buffer.offset or 0) // granule
            filled = buffer.fill is not None
            found[index] = WrittenBuffer(name, index, history, owners, first, size, filled)
    return found


def _memory(name: str, size: int) -> tuple[History, npt.NDArray[np.int32]]:
    return History(name, size, Unit.STORE, (Unit.LOAD, Unit.COMPUTE)), np.zeros(size, np.int32)
