"""The DRAM that a program writes: separate buffers, and overlapping slots of the arena.

Races concern the memory, whichever buffers name it. Definedness concerns the buffer: a LOAD only
sees data stored through the buffer that it names.
"""

from __future__ import annotations

import numpy as np

from vtaops.base.shapes import Indices, Int32Array, ceil_div
from vtaops.machine.isa import Unit
from vtaops.program.program import Buffer, Program, Role
from vtaops.program.verifier.history import Elements, History, element_at, shifted
from vtaops.program.verifier.rules import CheckedInstruction, Rule
from vtaops.program.verifier.tokens import Clock

_NOBODY = 0
"""Buffers count from 1 here, since untouched pages of zeros cost nothing."""


Memory = tuple[History, Int32Array]
"""The accesses to a part of DRAM; for each element, the buffer that it was last written through."""


class WrittenBuffer:
    """A buffer that a program writes.

    Parameters
    ----------
    index : int
        Its index in the program.
    buffer : Buffer
        The buffer.
    granule : int
        Granularity of accesses in bytes.
    arena : Memory
        The memory of buffers with an offset.
    """

    def __init__(self, index: int, buffer: Buffer, granule: int, arena: Memory) -> None:
        self.name = f"buffer {buffer.name!r} (elements of {granule} bytes)"
        self._owner = index + 1
        self._first = (buffer.offset or 0) // granule
        self._size = ceil_div(buffer.nbytes, granule)
        memory = _memory(self.name, self._size) if buffer.offset is None else arena
        self._history, self._owners = memory
        # Elements read before any write, in a filled buffer: they must never be written.
        self._fill_read = None if buffer.fill is None else np.zeros(self._size, np.bool_)

    def read(self, step: CheckedInstruction, clock: Clock, elements: Elements) -> None:
        """Check a LOAD; `elements` are relative to the start of the buffer."""
        inside = shifted(elements, self._first)
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
        self._history.read_any(step, clock, inside)

    def write(self, step: CheckedInstruction, clock: Clock, elements: Elements) -> None:
        """Check a STORE; `elements` are relative to the start of the buffer."""
        if self._fill_read is not None and self._fill_read[elements].any():
            element = element_at(elements, int(np.argmax(self._fill_read[elements])))
            step.reject(
                Rule.FILL, f"element {element} of {self.name} was read with the value of its fill"
            )
        inside = shifted(elements, self._first)
        self._history.write(step, clock, inside)
        self._owners[inside] = self._owner

    def never_written(self) -> Indices:
        """Return the elements that no instruction stored through this buffer."""
        end = self._first + self._size
        return np.flatnonzero(self._owners[self._first : end] != self._owner)


def written_memory(program: Program, granule: int) -> dict[int, WrittenBuffer]:
    """Return the buffers that a program writes, by index.

    Parameters
    ----------
    program : Program
        The program.
    granule : int
        Granularity of accesses in bytes.
    """
    arena = _memory("the arena", ceil_div(program.arena_nbytes, granule))
    return {
        index: WrittenBuffer(index, buffer, granule, arena)
        for index, buffer in enumerate(program.buffers)
        if buffer.role in (Role.OUTPUT, Role.SCRATCH)
    }


def _memory(name: str, size: int) -> Memory:
    return History(name, size, Unit.STORE), np.zeros(size, np.int32)
