"""The rules on tokens, and the resulting order: a vector clock per instruction."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from vtaops.machine.isa import Unit
from vtaops.program.verifier.rules import CheckedInstruction, Clock, Rule


@dataclass
class _TokenQueue:
    """The tokens from one unit to a neighbour: the instructions that send and take them."""

    sender: Unit
    receiver: Unit
    pushes: list[CheckedInstruction] = field(default_factory=list)
    pops: list[int] = field(default_factory=list)
    """Times of these."""

    @property
    def name(self) -> str:
        return f"{self.sender.name.lower()} -> {self.receiver.name.lower()}"

    def pop(self, step: CheckedInstruction) -> CheckedInstruction:
        """Return the instruction that sends the next token to one that takes it."""
        taken, sent = len(self.pops), len(self.pushes)
        if taken == sent:
            step.reject(
                Rule.TOKEN_ORDER,
                f"it takes token {taken + 1} of the queue {self.name}, but earlier instructions "
                f"send {sent}",
            )
        self.pops.append(step.time)
        return self.pushes[taken]

    def check_capacity(self, capacity: int) -> None:
        """Check that the queue can never hold more tokens."""
        for sent, step in enumerate(self.pushes, 1):
            tokens = sent - bisect_right(self.pops, step.clock[self.receiver])
            if tokens > capacity:
                step.reject(
                    Rule.TOKEN_CAPACITY,
                    f"the queue {self.name} can hold {tokens} tokens after it; its capacity is "
                    f"{capacity}",
                )

    def check_balance(self) -> None:
        """Check that each token that is sent is taken."""
        unpopped = self.pushes[len(self.pops) :]
        if unpopped:
            surplus = f"{len(unpopped)} tokens of the queue {self.name} are never taken"
            unpopped[0].reject(Rule.TOKEN_BALANCE, f"{surplus}; this is the first")


def happens_before(steps: Sequence[CheckedInstruction], capacity: int) -> None:
    """Set the clock of every instruction at its start, after checking the token rules."""
    pairs = (Unit.LOAD, Unit.COMPUTE), (Unit.COMPUTE, Unit.STORE)
    queues: dict[tuple[int, int], _TokenQueue] = {}
    queues |= {(a, b): _TokenQueue(a, b) for pair in pairs for a, b in (pair, pair[::-1])}
    known: list[Clock] = [(0, 0, 0) for _ in Unit]  # what each knows of the others
    for step in steps:
        i, unit = step.instruction, step.unit
        for pops, neighbour in ((i.pop_prev, unit - 1), (i.pop_next, unit + 1)):
            if pops:
                known[unit] = _join(known[unit], queues[neighbour, unit].pop(step))
        step.clock = known[unit]
        for pushes, neighbour in ((i.push_prev, unit - 1), (i.push_next, unit + 1)):
            if pushes:
                queues[unit, neighbour].pushes.append(step)
    for queue in queues.values():
        queue.check_capacity(capacity)
    for queue in queues.values():
        queue.check_balance()


def _join(clock: Clock, sender: CheckedInstruction) -> Clock:
    """Return `clock` with what the sender of a token knows when it has completed."""
    times = [*map(max, clock, sender.clock)]
    times[sender.unit] = max(times[sender.unit], sender.time)
    return (times[0], times[1], times[2])


def check_completion(steps: Sequence[CheckedInstruction]) -> None:
    """Check that FINISH happens after every other instruction."""
    last = steps[-1]
    for step in reversed(steps):
        if step.unit != Unit.COMPUTE and step.time > last.clock[step.unit]:
            unit = step.unit.name.lower()
            reason = f"it does not wait for instruction {step.index} of the {unit} unit"
            last.reject(Rule.COMPLETION, reason)
