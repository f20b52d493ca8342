"""The DRAM that a program writes: separate buffers, and overlapping slots of the arena.

Races concern the memory, whichever buffers name it. Definedness concerns the buffer: a LOAD only
sees data stored through the buffer that it names. A memory can have millions of elements, of which
each is accessed once or twice: arrays have the times of each, whose untouched pages cost nothing
(the operating system provides zeros on first use).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vtaops.base.shapes import Indices, Int32Array, ceil_div
from vtaops.machine.isa import Unit
from vtaops.program.program import Buffer, Program, Role
from vtaops.program.verifier.rules import CheckedInstruction, Rule

Elements = slice | Indices
"""A non-empty set of elements: a range, or their indices in ascending order."""

_NOBODY = 0
"""Buffers count from 1 here, since untouched pages of zeros cost nothing."""


class _Memory:
    """A part of DRAM.

    For each element: when it was last stored, and last read by each unit; and the buffer that it
    was last stored through.
    """

    def __init__(self, size: int) -> None:
        self.stored: Int32Array = np.zeros(size, np.int32)
        self.owners: Int32Array = np.zeros(size, np.int32)
        self.read_by: dict[Unit, Int32Array] = {}


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
    arena : _Memory
        The memory of buffers with an offset.
    """

    def __init__(self, index: int, buffer: Buffer, granule: int, arena: _Memory) -> None:
        self.name = f"buffer {buffer.name!r} (elements of {granule} bytes)"
        self.role = buffer.role
        self._owner = index + 1
        self._first = (buffer.offset or 0) // granule
        self._size = ceil_div(buffer.nbytes, granule)
        self._memory = _Memory(self._size) if buffer.offset is None else arena
        # Elements read before any write, in a filled buffer: they must never be written.
        self._fill_read = None if buffer.fill is None else np.zeros(self._size, np.bool_)

    def read(self, step: CheckedInstruction, elements: Elements) -> None:
        """Check a LOAD; `elements` are relative to the start of the buffer."""
        inside = _shifted(elements, self._first)
        owners = self._memory.owners[inside]
        if self._fill_read is not None:
            self._fill_read[elements] |= owners == _NOBODY
        elif (owners != self._owner).any():
            place = int(np.argmax(owners != self._owner))
            what = "holds what another buffer left there"
            if owners[place] == _NOBODY:
                what = "was never written"
            reason = f"element {_element_at(elements, place)} of {self.name} {what}"
            step.reject(Rule.UNDEFINED_DRAM, reason)
        self._check_order(step, inside, Unit.STORE, self._memory.stored, "writes")
        read_by = self._memory.read_by
        if step.unit not in read_by:
            read_by[step.unit] = np.zeros_like(self._memory.stored)
        read_by[step.unit][inside] = step.time

    def write(self, step: CheckedInstruction, elements: Elements) -> None:
        """Check a STORE; `elements` are relative to the start of the buffer."""
        if self._fill_read is not None and self._fill_read[elements].any():
            element = _element_at(elements, int(np.argmax(self._fill_read[elements])))
            step.reject(
                Rule.FILL, f"element {element} of {self.name} was read with the value of its fill"
            )
        inside = _shifted(elements, self._first)
        for unit, times in self._memory.read_by.items():
            self._check_order(step, inside, unit, times, "reads")
        self._memory.stored[inside] = step.time
        self._memory.owners[inside] = self._owner

    def _check_order(
        self, step: CheckedInstruction, inside: Elements, unit: Unit, times: Int32Array, verb: str
    ) -> None:
        clocks = times[inside]
        place = int(clocks.argmax())
        if clocks.item(place) > step.clock[unit]:
            step.reject(
                Rule.RACE,
                f"instruction {clocks[place] - 1} of the {unit.name.lower()} unit {verb} element "
                f"{_element_at(inside, place) - self._first} of {self.name}, and no token orders "
                f"the two",
            )

    def never_written(self) -> Indices:
        """Return the elements that no instruction stored through this buffer."""
        own = self._memory.owners[self._first : self._first + self._size]
        return np.flatnonzero(own != self._owner)


def written_memory(program: Program, granule: int) -> dict[int, WrittenBuffer]:
    """Return the buffers that a program writes, by index.

    Parameters
    ----------
    program : Program
        The program.
    granule : int
        Granularity of accesses in bytes.
    """
    arena = _Memory(ceil_div(program.arena_nbytes, granule))
    return {
        index: WrittenBuffer(index, buffer, granule, arena)
        for index, buffer in enumerate(program.buffers)
        if buffer.role in (Role.OUTPUT, Role.SCRATCH)
    }


def block(first: int, count: int, size: int, stride: int) -> Elements:
    """Return the elements of rows, the first of which starts at `first`."""
    return _shifted(_rows(count, size, stride), first)


@lru_cache(maxsize=1024)
def _rows(count: int, size: int, stride: int) -> Elements:
    if count == 1 or stride <= size:
        return slice(0, (count - 1) * stride + size)
    starts = np.arange(count, dtype=np.intp)[:, np.newaxis] * stride
    return (starts + np.arange(size, dtype=np.intp)).reshape(-1)


def _shifted(elements: Elements, distance: int) -> Elements:
    """Return a set of elements moved by a distance."""
    if isinstance(elements, slice):
        return slice(elements.start + distance, elements.stop + distance)
    return elements + distance


def _element_at(elements: Elements, place: int) -> int:
    """Return the element at a place of a set."""
    return elements.start + place if isinstance(elements, slice) else int(elements[place])
