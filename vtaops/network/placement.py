"""Placement of fragments in the scratchpads: side by side, or alternating.

A fragment is emitted as if it owned the scratchpads, starting at element 0. `pack_side_by_side`
places interleaved fragments next to each other. `ping_pong` moves sequential fragments apart, so
that the weights of one can be loaded while its predecessor computes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from vtaops.lowering.operation import Fragment
from vtaops.machine.config import POST_ROWS, Extension, HardwareConfig, Memory

ALIGNMENT = 4
"""Alignment of an operator's first element: the banks of the input memory."""


def pack_side_by_side(fragments: Sequence[Fragment]) -> list[Fragment] | None:
    """Return fragments placed side by side in the scratchpads; None if they do not fit."""
    config = fragments[0].config
    offsets = dict.fromkeys(Memory, 0)
    places = []
    for fragment in fragments:
        sizes = {memory: size for memory, size in fragment.extents.items() if size}
        places.append({memory: offsets[memory] for memory in sizes})
        for memory, size in sizes.items():
            end = offsets[memory] + size
            if end > _depth(memory, config):
                return None
            offsets[memory] = _aligned(end, memory)
    return [*map(Fragment.elsewhere, fragments, places)]


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
    runs = _runs(len(fragments), groups)
    sizes = [dict(fragment.extents) for fragment in fragments]
    for number in staying:
        sizes[number][Memory.WGT] = 0
    places = {}
    moved = [Memory.WGT, Memory.TABLE, *[Memory.INP, Memory.ACC] * config.has(Extension.FORWARD)]
    for memory in moved:
        most = [max(sizes[k][memory] for k in run) for run in runs]
        depth = _depth(memory, config) - reserved * (memory is Memory.WGT)
        places[memory] = _alternating(most, memory, depth)
    return [
        fragments[k].elsewhere({memory: of_runs[number] for memory, of_runs in places.items()})
        for number, run in enumerate(runs)
        for k in run
    ]


def _runs(count: int, groups: Collection[range]) -> list[list[int]]:
    """Return the numbers below `count`: those of a group together, others alone."""
    first = {number: numbers[0] for numbers in groups for number in numbers}
    return [[*run] for _, run in groupby(range(count), lambda k: first.get(k, k))]


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
