"""Placement of fragments in the scratchpads: side by side, or alternating.

A fragment is emitted as if it owned the scratchpads, starting at element 0. `pack_side_by_side`
places interleaved fragments next to each other. `ping_pong` moves sequential fragments apart, so
that the weights of one can be loaded while its predecessor computes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from vtaops.lowering.operation import Fragment, Operation, leaders
from vtaops.machine.config import POST_ROWS, Extension, HardwareConfig, Memory
from vtaops.machine.isa import Instruction, Load, Post, Store

ALIGNMENT = 4
"""Alignment of an operator's first element: the banks of the input memory."""

_MEMORIES = (Memory.INP, Memory.WGT, Memory.ACC, Memory.POST, Memory.TABLE)


def pack_side_by_side(fragments: Sequence[Fragment]) -> list[Fragment] | None:
    """Return fragments placed side by side in the scratchpads; None if they do not fit."""
    config = fragments[0].config
    offsets = dict.fromkeys(_MEMORIES, 0)
    placed = []
    for fragment in fragments:
        sizes = {memory: size for memory, size in _used(fragment).items() if size}
        placed.append(_shifted(fragment, {memory: offsets[memory] for memory in sizes}))
        for memory, size in sizes.items():
            end = offsets[memory] + size
            if end > _depth(memory, config):
                return None
            offsets[memory] = _aligned(end, memory)
    return placed


def ping_pong(
    fragments: Sequence[Fragment],
    groups: Collection[range],
    staying: Collection[int] = (),
    reserved: int = 0,
) -> list[Fragment]:
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
    staying : collection of int
        Numbers of the fragments whose weights stay: these have other places.
    reserved : int
        Elements of these at the end of the weight memory.
    """
    config = fragments[0].config
    first = leaders(groups)
    runs = [[*run] for _, run in groupby(range(len(fragments)), lambda k: first.get(k, k))]
    sizes = [*map(_used, fragments)]
    for number in staying:
        sizes[number][Memory.WGT] = 0
    places = {}
    moved = [Memory.WGT, Memory.TABLE, *[Memory.INP, Memory.ACC] * config.has(Extension.FORWARD)]
    for memory in moved:
        most = [max(sizes[k][memory] for k in run) for run in runs]
        depth = _depth(memory, config) - reserved * (memory is Memory.WGT)
        places[memory] = _alternating(most, memory, depth)
    return [
        _shifted(fragments[k], {memory: of_runs[number] for memory, of_runs in places.items()})
        for number, run in enumerate(runs)
        for k in run
    ]


def _alternating(sizes: Sequence[int], memory: Memory, depth: int) -> list[int]:
    """Return places in a scratchpad such that neighbours overlap as little as possible."""
    places = []
    begin, end = 0, depth  # of the previous fragment
    for size in sizes:
        place = 0
        if size:
            # After the previous one, before it, or else with minimal overlap.
            behind = _aligned(end, memory)
            place = behind if behind + size <= depth else 0 if size <= begin else depth - size
            place -= place % _alignment(memory)
            begin, end = place, place + size
        places.append(place)
    return places


def _alignment(memory: Memory) -> int:
    return ALIGNMENT if memory == Memory.INP else 1


def _aligned(end: int, memory: Memory) -> int:
    """Return the first valid start of an operator at or after `end`."""
    return end + -end % _alignment(memory)


def _depth(memory: Memory, config: HardwareConfig) -> int:
    return POST_ROWS if memory == Memory.POST else config.scratchpad(memory).depth


def _used(fragment: Fragment) -> dict[Memory, int]:
    """Return the extent of each scratchpad that a fragment uses, from element 0."""
    used = dict.fromkeys(_MEMORIES, 0)
    for operation in fragment.operations:
        for access in operation.scratchpads:
            # Biases and scales have half of the parameter memory each.
            rows = access.memory == Memory.POST
            end = int((access.elements % POST_ROWS).max()) + 1 if rows else access.end
            used[Memory(access.memory)] = max(used[Memory(access.memory)], end)
    return used


def _shifted(fragment: Fragment, offsets: Mapping[Memory, int]) -> Fragment:
    if not any(offsets.values()):
        return fragment
    shift = _Shift({**dict.fromkeys(_MEMORIES, 0), **offsets})
    keys = [(o.key, o.relocation) for o in fragment.operations]
    distinct = dict(zip(keys, fragment.operations, strict=True))
    moved = {key: shift.operation(operation) for key, operation in distinct.items()}
    return replace(fragment, operations=tuple(moved[key] for key in keys))


class _Shift:
    def __init__(self, offsets: dict[Memory, int]) -> None:
        self._offsets = offsets

    def operation(self, o: Operation) -> Operation:
        """Return the operation with its scratchpad elements relocated; DRAM is unchanged."""
        offsets, rows = self._offsets, o.micro_ops
        if rows is not None:
            on_array = any(access.memory == Memory.INP for access in o.scratchpads)
            source = offsets[Memory.INP] if on_array else offsets[Memory.ACC]
            weight = offsets[Memory.WGT] * on_array
            rows = rows + np.array([offsets[Memory.ACC], source, weight], np.int64)
        instruction = self._instruction(o.instruction)
        made = replace(o, instruction=instruction, micro_ops=rows, post=self._post(o.post))
        moved = (a._replace(first=a.first + offsets[Memory(a.memory)]) for a in o.scratchpads)
        vars(made)["scratchpads"] = tuple(moved)  # as it would find them itself, in less time
        return made

    def _instruction(self, i: Instruction) -> Instruction:
        if isinstance(i, Load | Store):
            memory = Memory(i.memory)
            memory = memory if memory in _MEMORIES else Memory.ACC
            return replace(i, sram_base=i.sram_base + self._offsets[memory])
        return self._post(i) if isinstance(i, Post) else i

    def _post(self, post: Post) -> Post:
        row = post.row + self._offsets[Memory.POST] * post.reads_row
        table = post.table_index + self._offsets[Memory.TABLE] * post.use_table
        return replace(post, row=row, table_index=table)
