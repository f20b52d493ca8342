"""The rules on tokens, and the resulting order: a vector clock per instruction."""

from __future__ import annotations

from bisect import bisect_right
from itertools import product

from vtaops.machine.isa import Unit
from vtaops.program.verifier.rules import ProofStep, Rule

Clock = tuple[int, int, int]
"""For each unit the `ProofStep.time` of its last instruction that has certainly completed."""


class _TokenQueue:
    """The tokens from one unit to a neighbour, in program order."""

    def __init__(self, sender: Unit, receiver: Unit) -> None:
        self.name = f"{sender.name.lower()} -> {receiver.name.lower()}"
        self.receiver = receiver
        self.pushes: list[ProofStep] = []
        self.pop_times: list[int] = []

    def pop(self, step: ProofStep) -> ProofStep:
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

    def push(self, step: ProofStep, clock: Clock, capacity: int) -> None:
        """Send a token; `clock` is that of the sender."""
        self.pushes.append(step)
        taken = bisect_right(self.pop_times, clock[self.receiver])
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


def happens_before(steps: list[ProofStep], capacity: int) -> list[Clock]:
    """Return the clock of every instruction at its start, after checking the token rules."""
    queues = {
        (sender, receiver): _TokenQueue(sender, receiver)
        for sender, receiver in product(Unit, Unit)
        if abs(sender - receiver) == 1
    }
    clocks: list[Clock] = []
    known: dict[Unit, Clock] = dict.fromkeys(Unit, (0, 0, 0))  # at the completion of its last one
    for step in steps:
        clock = known[step.unit]
        for queue in step.pops():
            sender = queues[queue].pop(step)
            clock = _join(clock, _advance(clocks[sender.index], sender))
        clocks.append(clock)
        for queue in step.pushes():
            queues[queue].push(step, clock, capacity)
        known[step.unit] = _advance(clock, step)
    for pending in queues.values():
        pending.check_empty()
    return clocks


def _join(a: Clock, b: Clock) -> Clock:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))


def _advance(clock: Clock, step: ProofStep) -> Clock:
    """Return the clock when `step` has completed, given the clock at its start."""
    times = [*clock]
    times[step.unit] = step.time
    return (times[0], times[1], times[2])


def check_completion(steps: list[ProofStep], clocks: list[Clock]) -> None:
    """Check that FINISH happens after every other instruction."""
    finish, clock = steps[-1], clocks[-1]
    for step in reversed(steps[:-1]):
        if step.time > clock[step.unit]:
            finish.reject(
                Rule.COMPLETION,
                f"it does not wait for instruction {step.index} of the "
                f"{step.unit.name.lower()} unit",
            )
