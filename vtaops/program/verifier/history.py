"""History of reads and writes to a scratchpad; the rules on undefined elements and races."""

from __future__ import annotations

from collections import deque

from vtaops.machine.isa import Unit
from vtaops.program.verifier.operands import first_of
from vtaops.program.verifier.rules import CheckedInstruction, Rule


class _Unordered:
    """The accesses of one unit behind the last one that another unit has waited for."""

    def __init__(self) -> None:
        self._accesses: deque[tuple[int, int]] = deque()  # time, set

    def add(self, time: int, elements: int) -> None:
        self._accesses.append((time, elements))

    def after(self, time: int, elements: int) -> tuple[int, int] | None:
        """Return the time of the last access after a time to some elements, and the first of them.

        Accesses up to a time, which never decreases, are forgotten.
        """
        while self._accesses and self._accesses[0][0] <= time:
            self._accesses.popleft()
        for at, touched in reversed(self._accesses):
            if touched & elements:
                return at, first_of(touched & elements)
        return None


class History:
    """What of one scratchpad was written, and who read and wrote it when.

    Only one unit writes it; what that unit reads itself is in order.
    """

    def __init__(self, name: str, writer: Unit, readers: tuple[Unit, ...]) -> None:
        self.name = name
        self._writer = writer
        self._written = 0
        self._writes = {unit: _Unordered() for unit in readers}
        """Those that a reader has not waited for."""
        self._reads = {unit: _Unordered() for unit in readers}
        """Those that the writer has not waited for."""

    def read(self, step: CheckedInstruction, elements: int) -> None:
        """Check that what an instruction reads was written, and in a defined order."""
        if elements & self._written != elements:
            missing = first_of(elements & ~self._written)
            step.reject(Rule.UNDEFINED_SRAM, f"element {missing} of {self.name} was never written")
        if step.unit != self._writer:
            self._check_order(step, self._writes[step.unit], elements, self._writer, "writes")
            self._reads[step.unit].add(step.time, elements)

    def write(self, step: CheckedInstruction, elements: int) -> None:
        for unit, reads in self._reads.items():
            self._check_order(step, reads, elements, unit, "reads")
            self._writes[unit].add(step.time, elements)
        self._written |= elements

    def _check_order(
        self, step: CheckedInstruction, others: _Unordered, elements: int, unit: Unit, verb: str
    ) -> None:
        if found := others.after(step.clock[unit], elements):
            time, element = found
            step.reject(
                Rule.RACE,
                f"instruction {time - 1} of the {unit.name.lower()} unit {verb} element {element} "
                f"of {self.name}, and no token orders the two",
            )
