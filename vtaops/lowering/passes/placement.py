"""Where fragments lie in the scratchpads: side by side, or neighbours in different places.

A fragment is emitted for scratchpads of its own, from their first elements on. `beside` gives
fragments that run in turns places next to each other. `alternating` gives those that run one after
the other different places: then the weights of one can be loaded while the one before it computes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from vtaops.lowering.operation import Fragment, Operation, Touch, Variants
from vtaops.machine.config import POST_ROWS, HardwareConfig, Memory
from vtaops.machine.isa import Instruction, Load, Post, Store

ALIGNMENT = 4
"""Of the first element of an operator: the banks of the input memory."""

_SPACES = ("inp", "wgt", "acc", "post", "table")


def beside(fragments: Sequence[Fragment]) -> list[Fragment] | None:
    """Return fragments in scratchpads side by side; None if there is no room."""
    config = fragments[0].config
    offsets = dict.fromkeys(_SPACES, 0)
    placed = []
    for fragment in fragments:
        placed.append(_shifted(fragment, offsets))
        for space, size in _used(fragment).items():
            end = offsets[space] + size
            if end > _depth(space, config):
                return None
            offsets[space] = _aligned(end, space)
    return placed


def alternating(fragments: Sequence[Fragment], groups: Collection[range]) -> list[Fragment]:
    """Return fragments that run one after the other, neighbours in other places as far as they go.

    With the extension `forward` so is all their memory: the first results of one wait for no store,
    and what it reads may still be in the output memory. Without, it is only weights and tables:
    equal operators share more micro-ops.

    Parameters
    ----------
    fragments : sequence of Fragment
        In their order.
    groups : collection of range
        Those that run together: they stay side by side.
    """
    config = fragments[0].config
    heads = heads_of(groups)
    runs = [[*run] for _, run in groupby(range(len(fragments)), lambda k: heads.get(k, k))]
    sizes = [_used(fragment) for fragment in fragments]
    places = {}
    for space in ("wgt", "table", *(("inp", "acc") if "forward" in config.extensions else ())):
        most = [max(sizes[k][space] for k in run) for run in runs]
        places[space] = _alternating(most, space, _depth(space, config))
    return [
        _shifted(fragments[k], {space: of_runs[number] for space, of_runs in places.items()})
        for number, run in enumerate(runs)
        for k in run
    ]


def heads_of(groups: Collection[range]) -> dict[int, int]:
    """Return for each member of a group the first of it."""
    return {number: group[0] for group in groups for number in group}


def _alternating(sizes: Sequence[int], space: str, depth: int) -> list[int]:
    """Return places of neighbours in a scratchpad: they overlap as little as they can."""
    places = []
    begin, end = 0, depth  # of the last one
    for size in sizes:
        place = 0
        if size:
            # Behind the one before, in front of it, or else where they overlap least.
            behind = _aligned(end, space)
            place = behind if behind + size <= depth else 0 if size <= begin else depth - size
            place -= place % _alignment(space)
            begin, end = place, place + size
        places.append(place)
    return places


def _alignment(space: str) -> int:
    return ALIGNMENT if space == "inp" else 1


def _aligned(end: int, space: str) -> int:
    """Return the first place from `end` on where an operator may begin."""
    return end + -end % _alignment(space)


def _depth(space: str, config: HardwareConfig) -> int:
    depth: int = POST_ROWS if space == "post" else getattr(config, space).depth
    return depth


def _used(fragment: Fragment) -> dict[str, int]:
    """Return how much of each scratchpad a fragment uses, from its beginning."""
    used = dict.fromkeys(_SPACES, 0)
    for touch in {id(touch): touch for o in fragment.operations for touch in o.touches}.values():
        if touch.space in used and touch.elements.size:
            rows = touch.space == "post"  # of which biases and scales have a half each
            end = int((touch.elements % POST_ROWS).max()) + 1 if rows else touch.end
            used[touch.space] = max(used[touch.space], end)
    return used


def _shifted(fragment: Fragment, offsets: Mapping[str, int]) -> Fragment:
    """Return a fragment that uses the scratchpads from `offsets` on."""
    if not any(offsets.values()):
        return fragment
    shift = _Shift({**dict.fromkeys(_SPACES, 0), **offsets})
    return replace(fragment, operations=tuple(map(shift.operation, fragment.operations)))


class _Shift:
    """Moves operations in the scratchpads; what operations share is moved once."""

    def __init__(self, offsets: dict[str, int]) -> None:
        self._offsets = offsets
        self._variants = Variants()
        self._touches: dict[int, Touch] = {}

    def operation(self, o: Operation) -> Operation:
        """Return the operation with its scratchpads moved; DRAM stays."""
        offsets, rows = self._offsets, o.micro_ops
        if rows is not None:
            on_array = any(touch.space == "inp" for touch in o.touches)
            source = offsets["inp"] if on_array else offsets["acc"]
            rows = rows + np.array([offsets["acc"], source, offsets["wgt"] * on_array], np.int64)
        instruction, touches = self._instruction(o.instruction), tuple(map(self._touch, o.touches))
        return Operation(instruction, o.relocation, touches, rows, o.operator, o.post)

    def _instruction(self, i: Instruction) -> Instruction:
        if isinstance(i, Load | Store):
            name = Memory(i.memory).name.lower()
            space = name if name in _SPACES else "acc"
            return self._variants.of(i, sram_base=i.sram_base + self._offsets[space])
        if isinstance(i, Post):
            row = i.row + self._offsets["post"] * i.reads_row
            table = i.table_index + self._offsets["table"] * i.use_table
            return self._variants.of(i, row=row, table_index=table)
        return i

    def _touch(self, touch: Touch) -> Touch:
        by = self._offsets.get(touch.space, 0)
        if not by:
            return touch
        if id(touch) not in self._touches:
            self._touches[id(touch)] = replace(touch, elements=touch.elements + by)
        return self._touches[id(touch)]
