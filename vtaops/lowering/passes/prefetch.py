"""Weight prefetching: load an operator's weights while earlier operators keep the array busy.

An operator's first loads are exposed: the array waits for them, and its inputs wait for the
previous operator's last stores. Weights need not wait: if their places are free they are loaded
earlier, early enough to be hidden under computation. `vtaops.lowering.placement.ping_pong`
frees places: an operator uses other parts of the scratchpads than its predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Elements, Operation, PassContext
from vtaops.lowering.passes.uses import last_conflicts
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Alu, Load, LoopInstruction, Unit

_BEHIND = 8  # 2: -0.08 %, 32: no cycle of MobileNet (`benchmarks heuristics`, 2026-11-28)
"""Minimum loads between the last use of a slot and the load that refills it: the load queue is in
order, so a load that waits for a slot to be read stalls all behind it."""


def weights_ahead(operations: list[Operation], context: PassContext) -> list[Operation]:
    """Move the first weight loads of each operator, or interleaved group, as early as pays off."""
    config, first = context.config, context.leaders
    runs = [[*run] for _, run in groupby(operations, lambda o: first.get(o.operator, o.operator))]
    if len(runs) < 2:
        return operations
    beats = _beats(operations, config)
    slack = np.array([_computed(o) for o in operations]) - beats
    loads_before = np.cumsum([o.instruction.unit is Unit.LOAD for o in operations])
    last = last_conflicts(operations, [0] * len(operations), 1)[:, 0]
    order = 2 * np.arange(len(operations))
    begin = 0
    for own in runs:
        loads = _first_weights(own, begin, config) if begin else []
        wanted = np.where(last[loads] >= 0, loads_before[last[loads]] + _BEHIND, 0)
        earliest = np.searchsorted(loads_before, wanted)
        _hoist(loads, begin, beats, slack, earliest, order)
        begin += len(own)
    return [operations[k] for k in np.argsort(order, kind="stable")]


def _first_weights(
    operations: Sequence[Operation], begin: int, config: HardwareConfig
) -> list[int]:
    """Return the weight loads to elements that no operation has touched before.

    For a single operator, only those before the first load that reuses a place.
    """
    single = operations[0].operator == operations[-1].operator
    fresh = np.ones(config.wgt.depth, np.bool_)
    loads = []
    for place, operation in enumerate(operations, start=begin):
        instruction = operation.instruction
        if isinstance(instruction, Load) and instruction.memory == Memory.WGT:
            elements = operation.scratchpads[0].indices
            if not operation.dram and fresh[elements].all():
                loads.append(place)
            elif single:
                break
            fresh[elements] = False
    return loads


def _hoist(
    loads: list[int],
    begin: int,
    beats: list[float],
    slack: npt.NDArray[np.float64],
    earliest: Elements,
    order: Elements,
) -> None:
    """Find earlier places for the first weights of an operator that begins at `begin`.

    Each goes to where the remaining array work covers the `beats` of its load; only as many loads
    are moved as can be hidden.
    """
    if not loads:
        return
    hidden = np.cumsum(slack[:begin][::-1])
    total = np.cumsum([beats[k] for k in loads])
    count = int(np.searchsorted(total, hidden.max(initial=0.0), side="right"))
    for k in range(count - 1, -1, -1):
        wanted = total[count - 1] - (total[k - 1] if k else 0)
        steps = int(np.argmax(hidden >= wanted)) + 1
        place = max(begin - steps, 0, int(earliest[k]))
        if place > begin:
            continue
        order[loads[k]] = 2 * place - 1  # before it
        slack[place] -= beats[loads[k]]
        slack[loads[k]] += beats[loads[k]]


def _beats(operations: Sequence[Operation], config: HardwareConfig) -> list[float]:
    """Return the port beats of each load; 0 for others."""
    nbytes = [config.dram_element_bytes(memory) for memory in Memory]
    return [
        i.y_size * i.x_size * nbytes[i.memory] / config.port_width if isinstance(i, Load) else 0
        for i in (operation.instruction for operation in operations)
    ]


def _computed(operation: Operation) -> float:
    """Return the cycles of the array or the vector ALU, which takes two for two tiles."""
    i = operation.instruction
    if operation.micro_ops is None or not isinstance(i, LoopInstruction):
        return 0
    of_tiles = isinstance(i, Alu) and not i.use_imm
    return i.iterations << of_tiles
