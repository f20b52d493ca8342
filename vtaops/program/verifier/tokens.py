"""The rules on tokens, and the resulting order: a vector clock per instruction."""

from __future__ import annotations

from bisect import bisect_right
from itertools import product

from vtaops.machine.isa import Unit
from vtaops.program.verifier.rules import CheckedInstruction, Clock, Rule


class _TokenQueue:
    """The tokens from one unit to a neighbour, in program order."""

    def __init__(self, sender: Unit, receiver: Unit) -> None:
        self.name = f"{sender.name.lower()} -> {receiver.name.lower()}"
        self.receiver = receiver
        self.pushes: list[CheckedInstruction] = []
        self.pop_times: list[int] = []

    def pop(self, step: CheckedInstruction) -> CheckedInstruction:
        """Take a token; return the instruction that sends it."""
        place = len(self.pop_times)
        if place == len(self.pushes):
            step.reject(
                Rule.TOKEN_ORDER,
                f"it takes token {place + 1} of the queue {self.name}, "
                f"but earlier instructions send {place}",
            )
        self.pop_times.append(step.time)
        return self.pushes[place]

    def push(self, step: CheckedInstruction, capacity: int) -> None:
        """Send a token."""
        self.pushes.append(step)
        taken = bisect_right(self.pop_times, step.clock[self.receiver])
        outstanding = len(self.pushes) - taken
        if outstanding > capacity:
            step.reject(
                Rule.TOKEN_CAPACITY,
                f"the queue {self.name} can hold {outstanding} tokens after it; "
                f"its capacity is {capacity}",
            )

    def check_empty(self) -> None:
        left = self.pushes[len(self.pop_times) :]
        if left:
            left[0].reject(
                Rule.TOKEN_BALANCE,
                f"{len(left)} tokens of the queue {self.name} are never taken; this is the first",
            )


def set_clocks(steps: list[CheckedInstruction], capacity: int) -> None:
    """Set the clock of every instruction, after checking the token rules."""
    queues: dict[tuple[int, int], _TokenQueue] = {
        (sender, receiver): _TokenQueue(sender, receiver)
        for sender, receiver in product(Unit, Unit)
        if abs(sender - receiver) == 1
    }
    known: dict[Unit, Clock] = dict.fromkeys(Unit, (0, 0, 0))  # what each knows of the others
    for step in steps:
        i, unit = step.instruction, step.unit
        if i.pop_prev or i.pop_next:
            for sender in [unit - 1] * i.pop_prev + [unit + 1] * i.pop_next:
                known[unit] = _join(known[unit], queues[sender, unit].pop(step))
        step.clock = known[unit]
        if i.push_prev or i.push_next:
            for receiver in [unit - 1] * i.push_prev + [unit + 1] * i.push_next:
                queues[unit, receiver].push(step, capacity)
    for pending in queues.values():
        pending.check_empty()


def _join(clock: Clock, sender: CheckedInstruction) -> Clock:
    """Return `clock` with what `sender` knows when it has completed."""
    times = [*map(max, clock, sender.clock)]
    times[sender.unit] = max(times[sender.unit], sender.time)
    return (times[0], times[1], times[2])


def check_completion(steps: list[CheckedInstruction]) -> None:
    """Check that FINISH happens after every other instruction."""
    finish = steps[-1]
    for step in reversed(steps[:-1]):
        if step.unit is not finish.unit and step.time > finish.clock[step.unit]:
            finish.reject(
                Rule.COMPLETION,
                f"it does not wait for instruction {step.index} of the "
                f"{step.unit.name.lower()} unit",
            )
