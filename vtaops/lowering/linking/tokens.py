"""Exact and minimal synchronization: insert tokens between instructions.

Walk the instructions in program order. An instruction must wait for the last earlier instruction
of another unit that touches a common element, if one of the two writes it (RAW, WAR, WAW); a token
from that instruction is inserted unless program order and earlier tokens already imply the order.
For each unit, ``known`` holds the latest instruction of every unit that it has waited for, directly
or transitively (a vector clock), so the check is one comparison.

Why this is exact: instructions of one unit execute in order, so waiting for the last conflicting
one covers all earlier ones. Why it is minimal: an order that a token enforces ends at the
instruction that pops it, and every token inserted later ends later, so none can make an earlier
one redundant. Why it cannot deadlock: every token is pushed by an instruction that precedes its
pop in program order.

The load and store units are not neighbours; a dependence between them (operators chained through
DRAM) is relayed by a no-operation on the compute unit.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations

from vtaops.lowering.operation import Operation
from vtaops.lowering.passes.uses import last_conflicts
from vtaops.machine.config import Memory
from vtaops.machine.isa import Finish, Load, Unit

NONE = -1

_UNITS = tuple(Unit)
_PAIRS = tuple(permutations(_UNITS, 2))

Clock = list[int]
"""Position of the latest instruction of each unit known to be complete, or NONE."""


def insert_tokens(operations: list[Operation]) -> list[Operation]:
    """Return the operations with token flags set, relays added, and a final FINISH."""
    inserter = _Inserter()
    units = [operation.instruction.unit for operation in operations]
    needs = last_conflicts([operation.touches for operation in operations], units, len(Unit))
    places: list[int] = []  # of the operations, behind relays
    for operation, need in zip(operations, needs.tolist(), strict=True):
        places.append(inserter.append(operation, [places[n] if n != NONE else n for n in need]))
    last = operations[-1].operator if operations else 0
    inserter.append(Operation(Finish(), operator=last), inserter.last_of_units())
    return inserter.finished()


class _Inserter:
    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._known: list[Clock] = [[NONE] * len(Unit) for _ in Unit]
        self._clock_after: list[Clock] = []
        self._flags: dict[int, set[str]] = defaultdict(set)

    def last_of_units(self) -> Clock:
        """Return the last instructions of the load and store units."""
        return [NONE if u is Unit.COMPUTE else self._known[u][u] for u in _UNITS]

    def append(self, operation: Operation, need: Clock) -> int:
        """Append an operation that waits for the instructions `need`; return its position."""
        unit = operation.instruction.unit
        known = self._known[unit]
        need = [n if n > known[v] else NONE for v, n in enumerate(need)]
        opposite = {Unit.LOAD: Unit.STORE, Unit.STORE: Unit.LOAD}.get(unit)
        if opposite is not None and need[opposite] != NONE:
            need = self._relay(need, opposite, operation.operator)
        self._drop_implied(need)
        position = len(self._operations)
        for source in _UNITS:
            if need[source] != NONE:
                self._token(need[source], source, position, unit)
        known[unit] = position
        self._clock_after.append(list(known))
        self._operations.append(operation)
        return position

    def _relay(self, need: Clock, opposite: Unit, operator: int) -> Clock:
        """Wait for the far end of the chain through a no-operation of the compute unit."""
        waiting = [NONE] * len(Unit)
        waiting[opposite] = need[opposite]
        relay = self.append(Operation(Load(memory=Memory.UOP), operator=operator), waiting)
        direct = list(need)
        direct[opposite] = NONE
        direct[Unit.COMPUTE] = relay
        return direct

    def _drop_implied(self, need: Clock) -> None:
        """Drop a wait that another wait of the same instruction implies."""
        for via, other in _PAIRS:
            waits = need[via] != NONE != need[other]
            if waits and self._clock_after[need[via]][other] >= need[other]:
                need[other] = NONE

    def _token(self, pusher: int, source: Unit, popper: int, unit: Unit) -> None:
        toward_next = unit > source
        self._flags[pusher].add("push_next" if toward_next else "push_prev")
        self._flags[popper].add("pop_prev" if toward_next else "pop_next")
        known = self._known[unit]
        for v, seen in enumerate(self._clock_after[pusher]):
            known[v] = max(known[v], seen)

    def finished(self) -> list[Operation]:
        """Return all operations with their token flags."""
        for position, flags in self._flags.items():
            operation = self._operations[position]
            operation.instruction = operation.instruction.with_fields(**dict.fromkeys(flags, 1))
        return self._operations
