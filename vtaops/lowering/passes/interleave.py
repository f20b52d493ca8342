"""Interleave the tiles of consecutive operators.

A pointwise convolution keeps the array busy, the depthwise one after it the memory port. Executed
sequentially, each waits for a resource that the other leaves idle. If an operator needs only part
of its predecessor's output, its first tiles can run before the predecessor's last ones: the load
and store units then move the tiles of one while the other computes.

All operators must fit the scratchpads side by side
(`vtaops.lowering.placement.pack_side_by_side`). The order is correct by construction: no operation
passes one that accesses a common element, if one of the two writes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import add

import numpy as np

from vtaops.lowering.operation import Operation, PassContext
from vtaops.lowering.passes.uses import last_conflicts
from vtaops.machine.accesses import OFF
from vtaops.machine.config import Memory
from vtaops.machine.isa import Instruction, Load, Post, Unit

# MobileNetV1 on pynq_ext, 2026-11-29 (`benchmarks heuristics`): 2 +0.00 %, 8 -0.01 % cycles.
LAG = 4
"""Groups of an operator between a producer group and its consumer.

The load unit works in order, and a load of stored data waits for the compute unit to relay that the
store is done: the data should be stored by then, or all later loads and computation wait too."""

# `python -m benchmarks heuristics`, MobileNet on pynq_ext, 2026-11-28: AHEAD 1 +0.11 %, 4 +0.14 %
# cycles; WEIGHTS_AHEAD 8 and 128: none.
AHEAD = 2
"""Groups by which loads precede the group that uses them, if their places are free."""

WEIGHTS_AHEAD = 32
"""The same for weights if operators are a lag apart: their places may hold a whole sweep."""

Group = list[Operation]
"""Loads of the load unit, and the operations up to the next loads."""


def in_turns(operations: list[Operation], context: PassContext) -> list[Operation]:
    """Interleave the tiles of the operators of each range."""
    if not context.interleave:
        return operations
    first = context.leaders
    lags = {numbers[0]: lag for numbers, lag in context.interleave.items()}
    result: list[Operation] = []
    for leader, run in groupby(operations, lambda o: first.get(o.operator, o.operator)):
        if leader in lags:
            streams = groupby(run, lambda o: o.operator)
            run = iter(interleaved([[*stream] for _, stream in streams], lags[leader]))
        result += run
    return result


def interleaved(streams: Sequence[Sequence[Operation]], lag: int) -> list[Operation]:
    """Interleave the operations of operators, group by group.

    Parameters
    ----------
    streams : sequence of sequence of Operation
        The operators' operations, in order, with their accesses to DRAM. Each begins and ends with
        POST off.
    lag : int
        Groups between a producer group and its consumer. Below `LAG`, each tile closely follows
        the tiles that it reads, as the extension `forward` requires.
    """
    close = lag < LAG
    ahead = AHEAD if close else WEIGHTS_AHEAD
    groups = [_hoisted(_groups(stream, after_stores=close), ahead) for stream in streams]
    # Each stream's last POST setting, restored when its turn comes.
    settings = [Operation(OFF, operator=stream[0].operator) for stream in streams]
    now: Instruction = OFF
    result: list[Operation] = []
    for number, group in _order(groups, lag):
        computes = any(operation.instruction.unit is Unit.COMPUTE for operation in group)
        if computes and settings[number].instruction != now:
            result.append(settings[number])
        result += group
        posts = [operation for operation in group if isinstance(operation.instruction, Post)]
        settings[number] = [settings[number], *posts][-1]
        if computes:
            now = settings[number].instruction
    return result


# ---------------------------------------------------------------------------------- order


@dataclass
class _Stream:
    """The groups of an operator and its progress; `begun` is its start as a fraction of all."""

    number: int
    groups: list[Group]
    needs: list[list[int]]
    done: int = 0
    begun: float = 0.0
    waits: bool = True

    @property
    def progress(self) -> float:
        return self.begun + self.done / len(self.groups)

    def may_run(self, streams: Sequence[_Stream], lag: int) -> bool:
        """Whether its next group is at least `lag` groups behind all that it needs."""
        return all(
            last < other.done and (last + lag < other.done or other.done == len(other.groups))
            for other, last in zip(streams, self.needs[self.done], strict=False)
        )

    def look(self, streams: Sequence[_Stream], lag: int, now: float) -> None:
        """Note whether it waits; one that waited goes on at the pace `now` of the others."""
        waited, self.waits = self.waits, not self.may_run(streams, lag)
        if waited and not self.waits:
            self.begun += max(0.0, now - self.progress)


def _order(groups: list[list[Group]], lag: int) -> Iterator[tuple[int, Group]]:
    """Yield the groups in turn: all operators at one pace, as their dependences allow.

    A stalled operator continues at the common pace: catching up would give it all units. `lag`
    groups lie between a producer group and its consumer.
    """
    streams = [
        _Stream(k, own, needs)
        for k, (own, needs) in enumerate(zip(groups, _needs(groups), strict=True))
    ]
    for _ in range(sum(map(len, groups))):
        left = [stream for stream in streams if stream.done < len(stream.groups)]
        now = min((stream.progress for stream in left if not stream.waits), default=0.0)
        for stream in left:
            stream.look(streams, lag, now)
        ready = [stream for stream in left if not stream.waits]
        chosen = min(ready, key=lambda stream: (stream.progress, -stream.number))
        yield chosen.number, chosen.groups[chosen.done]
        chosen.done += 1


def _needs(streams: list[list[Group]]) -> list[list[list[int]]]:
    """Return for each group of each operator the last group of each earlier operator it depends on.

    -1 is none.
    """
    operations = [o for groups in streams for group in groups for o in group]
    group_of = np.array([k for groups in streams for k, g in enumerate(groups) for _ in g])
    counts = [sum(map(len, groups)) for groups in streams]
    numbers = np.repeat(range(len(streams)), counts).tolist()
    found = last_conflicts(operations, numbers, len(streams))
    found = np.where(found >= 0, group_of[found], -1)
    needs = []
    for number, (groups, end) in enumerate(zip(streams, np.cumsum(counts), strict=True)):
        own = found[end - counts[number] : end, :number]
        latest = np.maximum.accumulate(np.pad(own, ((1, 0), (0, 0)), constant_values=-1))
        needs.append(latest[np.cumsum([*map(len, groups)])].tolist())
    return needs


# --------------------------------------------------------------------------------- groups


def _groups(operations: Sequence[Operation], *, after_stores: bool) -> list[Group]:
    """Split operations before each run of load-unit loads, and optionally after stores."""
    groups: list[Group] = [[]]
    last = None
    for operation in operations:
        unit = operation.instruction.unit
        loads = unit is Unit.LOAD and last not in (None, Unit.LOAD)
        if loads or (after_stores and last is Unit.STORE and unit is not Unit.STORE):
            groups.append([])
        groups[-1].append(operation)
        last = unit
    return groups


def _hoisted(groups: list[Group], weights_ahead: int) -> list[Group]:
    """Hoist loads into earlier groups as far as dependences allow.

    Weights move up to `weights_ahead` groups, other loads up to `AHEAD`.
    """
    operations = [operation for group in groups for operation in group]
    places = np.repeat(range(len(groups)), [*map(len, groups)])
    rests = [operation.instruction.unit is not Unit.LOAD for operation in operations]
    last = last_conflicts(operations, rests, 2)[:, 1]
    earliest = np.where(last >= 0, places[last] + 1, 0)  # behind the last rest it depends on
    loads: list[Group] = [[] for _ in groups]
    others: list[Group] = [[] for _ in groups]
    slots: dict[int, int] = defaultdict(int)  # loads of one memory keep their order
    columns = zip(operations, places.tolist(), rests, earliest.tolist(), strict=True)
    for operation, place, rest, first in columns:
        if rest:
            others[place].append(operation)
            continue
        assert isinstance(operation.instruction, Load)
        memory = operation.instruction.memory
        ahead = weights_ahead if memory == Memory.WGT else AHEAD
        slots[memory] = min(place, max(slots[memory], place - ahead, first))
        loads[slots[memory]].append(operation)
    return [*map(add, loads, others)]
