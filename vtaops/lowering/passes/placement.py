"""Placement of fragments in the scratchpads: side by side, or alternating.

A fragment is emitted as if it owned the scratchpads, starting at element 0. `beside` places
interleaved fragments next to each other. `alternating` moves sequential fragments apart, so that
the weights of one can be loaded while its predecessor computes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from vtaops.lowering.operation import Fragment, Operation, Touch
from vtaops.machine.config import POST_ROWS, Extension, HardwareConfig, Memory
from vtaops.machine.isa import Instruction, Load, Post, Store

ALIGNMENT = 4
"""Alignment of an operator's first element: the banks of the input memory."""

_SPACES = ("inp", "wgt", "acc", "post", "table")


def beside(fragments: Sequence[Fragment]) -> list[Fragment] | None:
    """Return fragments placed side by side in the scratchpads; None if they do not fit."""
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
    """Move sequential fragments so that neighbours use different places, as far as possible.

    With the extension `forward` this applies to all memories: the first results of a fragment need
    not wait for stores, and its inputs may still be in the output memory. Without it, only to
    weights and tables: equal operators then share more micro-ops.

    Parameters
    ----------
    fragments : sequence of Fragment
        In order.
    groups : collection of range
        Interleaved fragments: they stay side by side.
    """
    config = fragments[0].config
    heads = heads_of(groups)
    runs = [[*run] for _, run in groupby(range(len(fragments)), lambda k: heads.get(k, k))]
    sizes = [_used(fragment) for fragment in fragments]
    places = {}
    for space in ("wgt", "table", *(("inp", "acc") if config.has(Extension.FORWARD) else ())):
        most = [max(sizes[k][space] for k in run) for run in runs]
        places[space] = _alternating(most, space, _depth(space, config))
    return [
        _shifted(fragments[k], {space: of_runs[number] for space, of_runs in places.items()})
        for number, run in enumerate(runs)
        for k in run
    ]


def heads_of(groups: Collection[range]) -> dict[int, int]:
    """Map each member of a group to the group's first member."""
    return {number: group[0] for group in groups for number in group}


def _alternating(sizes: Sequence[int], space: str, depth: int) -> list[int]:
    """Return places in a scratchpad such that neighbours overlap as little as possible."""
    places = []
    begin, end = 0, depth  # of the previous fragment
    for size in sizes:
        place = 0
        if size:
            # After the previous one, before it, or else with minimal overlap.
            behind = _aligned(end, space)
            place = behind if behind + size <= depth else 0 if size <= begin else depth - size
            place -= place % _alignment(space)
            begin, end = place, place + size
        places.append(place)
    return places


def _alignment(space: str) -> int:
    return ALIGNMENT if space == "inp" else 1


def _aligned(end: int, space: str) -> int:
    """Return the first valid start of an operator at or after `end`."""
    return end + -end % _alignment(space)


def _depth(space: str, config: HardwareConfig) -> int:
    depth: int = POST_ROWS if space == "post" else getattr(config, space).depth
    return depth


def _used(fragment: Fragment) -> dict[str, int]:
    """Return the extent of each scratchpad that a fragment uses, from element 0."""
    used = dict.fromkeys(_SPACES, 0)
    for touch in {id(touch): touch for o in fragment.operations for touch in o.touches}.values():
        if touch.space in used and touch.size:
            rows = touch.space == "post"  # biases and scales have half each
            end = int((touch.elements % POST_ROWS).max()) + 1 if rows else touch.end
            used[touch.space] = max(used[touch.space], end)
    return used


def _shifted(fragment: Fragment, offsets: Mapping[str, int]) -> Fragment:
    """Return a fragment relocated by `offsets` in the scratchpads."""
    if not any(offsets.values()):
        return fragment
    shift = _Shift({**dict.fromkeys(_SPACES, 0), **offsets})
    own = {id(o): o for o in fragment.operations}  # equal tiles share operations
    moved = {key: shift.operation(operation) for key, operation in own.items()}
    return replace(fragment, operations=tuple(moved[id(o)] for o in fragment.operations))


class _Shift:
    """Relocates operations in the scratchpads."""

    def __init__(self, offsets: dict[str, int]) -> None:
        self._offsets = offsets

    def operation(self, o: Operation) -> Operation:
        """Return the operation with its scratchpad elements relocated; DRAM is unchanged."""
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
            return i.with_fields(sram_base=i.sram_base + self._offsets[space])
        if isinstance(i, Post):
            row = i.row + self._offsets["post"] * i.reads_row
            table = i.table_index + self._offsets["table"] * i.use_table
            return i.with_fields(row=row, table_index=table)
        return i

    def _touch(self, touch: Touch) -> Touch:
        by = self._offsets.get(touch.space, 0)
        return touch.moved(by) if by else touch
