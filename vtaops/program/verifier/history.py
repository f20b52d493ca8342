"""History of reads and writes to a scratchpad; the rules on undefined elements and races."""

from __future__ import annotations

from vtaops.machine.isa import Unit
from vtaops.program.verifier.operands import first_of
from vtaops.program.verifier.rules import CheckedInstruction, Rule


class _Unordered:
    """The accesses of one unit behind the last one that another unit has waited for.

    A queue with the union of its sets. The older part has the union from each access on, so that
    to forget the oldest access costs nothing, and every access moves there once.
    """

    def __init__(self) -> None:
        self._old: list[tuple[int, int, int]] = []  # time, set, union of this and later ones
        self._new: list[tuple[int, int]] = []
        self._union = 0

    def add(self, time: int, elements: int) -> None:
        self._new.append((time, elements))
        self._union |= elements

    def after(self, time: int) -> int:
        """Forget the accesses up to a time, which never decreases; return the union of the rest."""
        while self._old and self._old[-1][0] <= time:
            self._old.pop()
        if not self._old and self._new and self._new[0][0] <= time:
            union = 0
            for at, elements in reversed(self._new):
                if at <= time:
                    break
                union |= elements
                self._old.append((at, elements, union))
            self._new, self._union = [], 0
        return self._old[-1][2] | self._union if self._old else self._union

    def latest(self, elements: int) -> tuple[int, int]:
        """Return the time of the last access to some of these elements, and the first of them."""
        accesses = [*reversed(self._old), *self._new]
        at, touched = next(access[:2] for access in reversed(accesses) if access[1] & elements)
        return at, first_of(touched & elements)


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
            writes = self._writes[step.unit]
            if writes.after(step.clock[self._writer]) & elements:
                self._race(step, writes, elements, self._writer, "writes")
            self._reads[step.unit].add(step.time, elements)

    def write(self, step: CheckedInstruction, elements: int) -> None:
        for unit, reads in self._reads.items():
            if reads.after(step.clock[unit]) & elements:
                self._race(step, reads, elements, unit, "reads")
            self._writes[unit].add(step.time, elements)
        self._written |= elements

    def _race(
        self, step: CheckedInstruction, others: _Unordered, elements: int, unit: Unit, verb: str
    ) -> None:
        time, element = others.latest(elements)
        step.reject(
            Rule.RACE,
            f"instruction {time - 1} of the {unit.name.lower()} unit {verb} element {element} of "
            f"{self.name}, and no token orders the two",
        )
