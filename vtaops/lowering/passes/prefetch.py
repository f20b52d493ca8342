"""Weights ahead of their operator: loaded while the array is busy with the operators before it.

What an operator loads first is exposed: the array waits for it, and it waits for what the operator
before it stores last. Its weights need not: where their places are free they are loaded earlier, as
early as it takes to hide them under computation. `apart` makes places free: an operator uses other
parts of the scratchpads than the one before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

import numpy as np

from vtaops.lowering.emission.emit import Fragment
from vtaops.lowering.operation import Elements, Operation
from vtaops.lowering.passes.interleave import ALIGNMENT, shifted, used
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Alu, Gemm, Load, Pool, Unit

_BEHIND = 8
"""Loads between the last use of a place and the load that fills it anew: it waits for that use, and
all loads behind it wait too."""

_FAR = 4000
"""Operations by which weights are loaded ahead at most."""


def apart(fragments: Sequence[Fragment], groups: Collection[range]) -> list[Fragment]:
    """Return fragments that run one after the other, neighbours in other places as far as they go.

    Then the weights of an operator can be loaded while the one before it computes. With the
    extension `forward` all its memory is apart: its first results wait for no store, and what it
    reads may still be in the output memory. Without, equal operators share more micro-ops.

    Parameters
    ----------
    fragments : sequence of Fragment
        In their order.
    groups : collection of range
        Those that run together: they stay side by side.
    """
    config = fragments[0].config
    heads = {group[0]: group for group in groups}
    runs: list[range] = []
    while not runs or runs[-1].stop < len(fragments):
        begin = runs[-1].stop if runs else 0
        runs.append(heads.get(begin, range(begin, begin + 1)))
    sizes = [[used(fragments[number]) for number in run] for run in runs]
    here = {space: [0] * len(runs) for space in ("inp", "acc", "post")}
    spaces = ("wgt", "table", *(("inp", "acc") if "forward" in config.extensions else ()))
    for space in spaces:
        most = [max(s[space] for s in own) for own in sizes]
        alignment = ALIGNMENT if space == "inp" else 1
        here[space] = _alternating(most, getattr(config, space).depth, alignment)
    return [
        shifted(fragments[number], {space: places[k] for space, places in here.items()})
        for k, run in enumerate(runs)
        for number in run
    ]


def _alternating(sizes: Sequence[int], depth: int, alignment: int) -> list[int]:
    """Return places of neighbours in a scratchpad: they overlap as little as they can."""
    places = []
    begin, end = 0, depth  # of the last one
    for size in sizes:
        if not size:
            places.append(0)
            continue
        aligned = end + -end % alignment
        # Behind the one before, in front of it, or else where they overlap least.
        place = aligned if aligned + size <= depth else 0 if size <= begin else depth - size
        place -= place % alignment
        places.append(place)
        begin, end = place, place + size
    return places


def weights_ahead(
    operations: Sequence[Operation], groups: Collection[range], config: HardwareConfig
) -> list[Operation]:
    """Return the operations with the first weights of each operator loaded as early as it pays.

    Parameters
    ----------
    operations : sequence of Operation
        Of operators that follow each other, in program order.
    groups : collection of range
        Operators that run together.
    config : HardwareConfig
        The hardware.
    """
    first_of = {number: group[0] for group in groups for number in group}
    slack = [_computed(o) - _loaded(o, config) for o in operations]
    loads_before = np.cumsum([o.instruction.unit is Unit.LOAD for o in operations])
    used_before = np.full(config.wgt.depth, -1, np.int64)  # last use by the operators before
    order = 2 * np.arange(len(operations))
    begin = 0
    for _, run in groupby(operations, lambda o: first_of.get(o.operator, o.operator)):
        own = [*run]
        loads = _first_weights(own, begin, config)
        uses = [int(used_before[operations[k].touches[0].elements].max()) for k in loads]
        wanted = [loads_before[use] + _BEHIND if use >= 0 else 0 for use in uses]
        earliest = np.searchsorted(loads_before, wanted)
        _hoist(loads, begin, operations, slack, earliest, order, config)
        for place, operation in enumerate(own, start=begin):
            for touch in operation.touches:
                if touch.space == "wgt":
                    used_before[touch.elements] = place
        begin += len(own)
    return [operations[k] for k in np.argsort(order, kind="stable")]


def _first_weights(
    operations: Sequence[Operation], begin: int, config: HardwareConfig
) -> list[int]:
    """Return the loads of weights to elements that none of the operations has touched before.

    Of a single operator those in front of the first that comes round to its places again.
    """
    single = operations[0].operator == operations[-1].operator
    fresh = np.ones(config.wgt.depth, np.bool_)
    loads = []
    for place, operation in enumerate(operations, start=begin):
        instruction = operation.instruction
        if isinstance(instruction, Load) and instruction.memory == Memory.WGT:
            elements = operation.touches[0].elements
            if len(operation.touches) == 1 and fresh[elements].all():
                loads.append(place)
            elif single:
                break
            fresh[elements] = False
    return loads


def _hoist(
    loads: list[int],
    begin: int,
    operations: Sequence[Operation],
    slack: list[float],
    earliest: Elements,
    order: Elements,
    config: HardwareConfig,
) -> None:
    """Find earlier places for the first weights of an operator that begins at `begin`.

    They go where the array has as much to do until they are needed as the port has to load: as many
    of them as that hides.
    """
    limit = max(0, begin - _FAR)
    hidden = np.cumsum(slack[limit:begin][::-1])
    beats = np.cumsum([_loaded(operations[k], config) for k in loads])
    count = int(np.searchsorted(beats, hidden.max(initial=0.0), side="right"))
    for k in range(count - 1, -1, -1):
        wanted = beats[count - 1] - (beats[k - 1] if k else 0)
        steps = int(np.argmax(hidden >= wanted)) + 1
        place = max(begin - steps, limit, int(earliest[k]))
        if place > begin:
            continue
        order[loads[k]] = 2 * place - 1  # in front of it
        moved_beats = _loaded(operations[loads[k]], config)
        slack[place] -= moved_beats
        slack[loads[k]] += moved_beats


def _loaded(operation: Operation, config: HardwareConfig) -> float:
    """Return the beats of the port that a load takes."""
    i = operation.instruction
    if not isinstance(i, Load):
        return 0
    size = i.y_size * i.x_size * config.dram_element_bytes(Memory(i.memory))
    return size * 8 / config.board.bus_bits


def _computed(operation: Operation) -> float:
    """Return the cycles of the array, or of the vector ALU."""
    i = operation.instruction
    if not isinstance(i, Gemm | Alu | Pool):
        return 0
    return i.iter_out * i.iter_in * (i.uop_end - i.uop_begin)
