"""History of reads and writes to each element; the rules on undefined elements and races."""

from __future__ import annotations

import numpy as np

from vtaops.base.shapes import Array, Indices, Int32Array
from vtaops.machine.isa import Unit
from vtaops.program.verifier.rules import CheckedInstruction, Rule
from vtaops.program.verifier.tokens import Clock

Elements = slice | Indices
"""A non-empty set of elements of a memory: a range, or their indices in ascending order."""


class History:
    """For each element of one memory: when it was last written, and last read by each other unit.

    Only one unit writes a memory; what that unit reads itself needs no entry. Untouched pages of
    the arrays cost nothing (the operating system provides zeros on first use).
    """

    def __init__(self, name: str, size: int, writer: Unit) -> None:
        self.name = name
        self.size = size
        self.writer = writer
        self.written: Int32Array = np.zeros(size, np.int32)
        self.read_by: dict[Unit, Int32Array] = {}

    def read(self, step: CheckedInstruction, clock: Clock, elements: Elements) -> None:
        """Check that what an instruction reads was written, and in a defined order."""
        written = self.written[elements]
        place = int(written.argmin())
        if not written.item(place):
            element = element_at(elements, place)
            step.reject(Rule.UNDEFINED_SRAM, f"element {element} of {self.name} was never written")
        if step.unit is not self.writer:
            self._note_read(step, clock, elements, written)

    def read_any(self, step: CheckedInstruction, clock: Clock, elements: Elements) -> None:
        """Check that a read is ordered after the writes before it, if there are any."""
        if step.unit is not self.writer:
            self._note_read(step, clock, elements, self.written[elements])

    def _note_read(
        self, step: CheckedInstruction, clock: Clock, elements: Elements, written: Int32Array
    ) -> None:
        self._check_order(step, clock, elements, self.writer, written, "writes")
        if step.unit not in self.read_by:
            self.read_by[step.unit] = np.zeros(self.size, np.int32)
        self.read_by[step.unit][elements] = step.time

    def write(self, step: CheckedInstruction, clock: Clock, elements: Elements) -> None:
        for unit, times in self.read_by.items():
            self._check_order(step, clock, elements, unit, times[elements], "reads")
        self.written[elements] = step.time

    def _check_order(
        self,
        step: CheckedInstruction,
        clock: Clock,
        elements: Elements,
        unit: Unit,
        times: Int32Array,
        verb: str,
    ) -> None:
        place = int(times.argmax())
        latest = times.item(place)
        if latest > clock[unit]:
            step.reject(
                Rule.RACE,
                f"instruction {latest - 1} of the {unit.name.lower()} unit {verb} element "
                f"{element_at(elements, place)} of {self.name}, and no token orders the two",
            )


def first_zero(memory: Array, elements: Elements) -> int | None:
    """Return the first of the elements whose time or flag is 0; None if there is none."""
    values = memory[elements]
    place = int(values.argmin())
    return None if values.item(place) else element_at(elements, place)


def shifted(elements: Elements, distance: int) -> Elements:
    """Return a set of elements moved by a distance."""
    if isinstance(elements, slice):
        return slice(elements.start + distance, elements.stop + distance)
    return elements + distance


def element_at(elements: Elements, place: int) -> int:
    """Return the element at a place of a set."""
    return elements.start + place if isinstance(elements, slice) else int(elements[place])
