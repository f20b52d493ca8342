"""The rules on tokens, and the resulting order: a vector clock per instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from vtaops.base.shapes import Indices
from vtaops.machine.isa import Unit
from vtaops.program.program import Program
from vtaops.program.verifier.format import Stream
from vtaops.program.verifier.rules import Clock, Rule, reject


@dataclass(frozen=True, eq=False)
class _TokenQueue:
    """The tokens from one unit to a neighbour: the instructions that send and take them."""

    program: Program
    sender: Unit
    receiver: Unit
    pushes: Indices
    pops: Indices

    @property
    def name(self) -> str:
        return f"{self.sender.name.lower()} -> {self.receiver.name.lower()}"

    def taken_too_early(self) -> Iterator[tuple[int, str]]:
        """Yield the first instruction that takes a token which no earlier one sends, and why."""
        sent = np.searchsorted(self.pushes, self.pops)
        for place in np.flatnonzero(sent <= np.arange(len(sent)))[:1].tolist():
            yield (
                int(self.pops[place]),
                f"it takes token {place + 1} of the queue {self.name}, "
                f"but earlier instructions send {sent[place]}",
            )

    def check_balance(self) -> None:
        """Check that each token that is sent is taken."""
        unpopped = self.pushes[len(self.pops) :]
        if unpopped.size:
            surplus = f"{len(unpopped)} tokens of the queue {self.name} are never taken"
            reject(
                self.program, int(unpopped[0]), Rule.TOKEN_BALANCE, f"{surplus}; this is the first"
            )

    def check_capacity(self, clocks: list[Clock], capacity: int) -> None:
        """Check that the queue can never hold more tokens."""
        known = [clocks[place][self.receiver] for place in self.pushes.tolist()]
        popped = np.searchsorted(self.pops + 1, known, side="right")
        outstanding = np.arange(1, len(known) + 1) - popped
        for place in np.flatnonzero(outstanding > capacity)[:1].tolist():
            reason = (
                f"the queue {self.name} can hold {outstanding[place]} tokens after it; "
                f"its capacity is {capacity}"
            )
            reject(self.program, int(self.pushes[place]), Rule.TOKEN_CAPACITY, reason)


def _queues(stream: Stream) -> Iterator[_TokenQueue]:
    tokens = stream.every
    for sender, receiver in product(Unit, Unit):
        if abs(sender - receiver) == 1:
            push, pop = ("next", "prev") if receiver > sender else ("prev", "next")
            pushes = (stream.units == sender) & (tokens[f"push_{push}"] > 0)
            pops = (stream.units == receiver) & (tokens[f"pop_{pop}"] > 0)
            both = np.flatnonzero(pushes), np.flatnonzero(pops)
            yield _TokenQueue(stream.program, sender, receiver, *both)


def happens_before(stream: Stream, capacity: int) -> list[Clock]:
    """Return the clock of every instruction at its start, after checking the token rules."""
    queues = [*_queues(stream)]
    early = [fault for queue in queues for fault in queue.taken_too_early()]
    if early:
        index, reason = min(early)
        reject(stream.program, index, Rule.TOKEN_ORDER, reason)
    clocks = _clocks(stream.units.tolist(), queues)
    for queue in queues:
        queue.check_capacity(clocks, capacity)
    for queue in queues:
        queue.check_balance()
    return clocks


def _clocks(units: list[int], queues: list[_TokenQueue]) -> list[Clock]:
    senders: dict[int, list[int]] = {}
    for queue in queues:
        for pop, push in zip(queue.pops.tolist(), queue.pushes.tolist(), strict=False):
            senders.setdefault(pop, []).append(push)
    clocks: list[Clock] = []
    known: list[Clock] = [(0, 0, 0) for _ in Unit]  # what each knows of the others
    for index, unit in enumerate(units):
        for place in senders.get(index, ()):
            known[unit] = _join(known[unit], clocks[place], units[place], place + 1)
        clocks.append(known[unit])
    return clocks


def _join(clock: Clock, other: Clock, sender: int, time: int) -> Clock:
    """Return `clock` with what the instruction of a sender knows when it has completed.

    Its clock is `other`.
    """
    times = [*map(max, clock, other)]
    times[sender] = max(times[sender], time)
    return (times[0], times[1], times[2])


def check_completion(stream: Stream, clocks: list[Clock]) -> None:
    """Check that FINISH happens after every other instruction."""
    clock, unfinished = clocks[-1], {}
    for unit in (Unit.LOAD, Unit.STORE):
        its = np.flatnonzero(stream.units == unit)
        if its.size and its[-1] + 1 > clock[unit]:
            unfinished[int(its[-1])] = unit
    if unfinished:
        index = max(unfinished)
        reason = (
            f"it does not wait for instruction {index} of the {unfinished[index].name.lower()} unit"
        )
        reject(stream.program, len(stream.program) - 1, Rule.COMPLETION, reason)
