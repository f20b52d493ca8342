"""Two operators at once: the tiles of one that follows another run between those of the other.

A pointwise convolution keeps the array busy, the depthwise one behind it the memory port. One after
the other, each waits for what the other leaves idle. Where the second needs but a part of what the
first stores, its first tiles can run before the last ones of the first: load and store unit then
move the tiles of the one while the other computes.

Both must fit the scratchpads side by side (`beside`). The order is right by construction: no
operation passes one that touches the same element, where one of the two writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from vtaops.config import POST_ROWS, HardwareConfig, Memory
from vtaops.isa import Load, Post, Store
from vtaops.lowering.emit import Fragment
from vtaops.lowering.operation import Elements, Operation, Touch

LAG = 5
"""Tiles of the first operator between one that the second needs and the tile that needs it.

The load unit works in order and runs ahead of the computation: what it loads for the second
operator should be stored by then, or all that it loads later waits too."""

_ALIGNMENT = 4
"""Of the first element of the second operator: the banks of the input memory."""

_SPACES = ("inp", "wgt", "acc", "post")
_LOADED = {Memory.INP: "inp", Memory.WGT: "wgt", Memory.POST: "post"}

Group = list[Operation]


def beside(first: Fragment, second: Fragment) -> Fragment | None:
    """Return the second fragment in scratchpads beside the first; None if there is no room."""
    config = first.config
    offsets, sizes = _used(first), _used(second)
    for space in _SPACES:
        offsets[space] += -offsets[space] % _ALIGNMENT
        depth = POST_ROWS if space == "post" else getattr(config, space).depth
        if offsets[space] + sizes[space] > depth:
            return None
    moved = tuple(_moved(operation, offsets) for operation in second.operations)
    return replace(second, operations=moved)


def interleaved(first: Sequence[Operation], second: Sequence[Operation]) -> list[Operation]:
    """Return the operations of two operators, tile by tile in turns.

    Parameters
    ----------
    first, second : sequence of Operation
        Of the operators, in their order, with what they touch in DRAM. POST is off where each
        begins and ends.
    """
    order = _order(_tiles(first), _tiles(second))
    numbers = [operations[0].operator for operations in (first, second)]
    settings = [replace(_OFF, operator=number) for number in numbers]  # what each has set
    now = _OFF
    result: list[Operation] = []
    for stream, tile in order:
        if settings[stream].instruction != now.instruction:
            result.append(replace(settings[stream]))
        result += tile
        for operation in tile:
            if isinstance(operation.instruction, Post):
                settings[stream] = operation
        now = settings[stream]
    return result


_OFF = Operation(Post(), touches=(Touch("setting", np.zeros(1, np.int64), write=True),))


def _order(first: list[Group], second: list[Group]) -> Iterator[tuple[int, Group]]:
    """Yield the tiles in turns: those of the second as evenly as their needs allow."""
    needs = _needs(first, second)
    done, quota = 0, 0.0
    for place, tile in enumerate(first):
        yield 0, tile
        quota += len(second) / len(first)
        while done < len(second) and quota >= 1 and needs[done] + LAG <= place:
            yield 1, second[done]
            done, quota = done + 1, quota - 1
    for tile in second[done:]:
        yield 1, tile


def _needs(first: list[Group], second: list[Group]) -> list[int]:
    """Return for each tile of the second operator the last one of the first that it must follow."""
    touched: dict[tuple[str, bool], Elements] = {}
    for place, tile in enumerate(first):
        for space, write, elements in _touches(tile):
            key, size = (space, write), int(elements.max()) + 1
            known = touched.get(key, np.zeros(0, np.int64))
            if len(known) < size:
                known = np.concatenate([known, np.full(size - len(known), -1, np.int64)])
            known[elements] = place
            touched[key] = known
    needs, latest = [], -1
    for tile in second:
        for space, write, elements in _touches(tile):
            for other in (True, False) if write else (True,):
                known = touched.get((space, other), np.zeros(0, np.int64))
                found = known[elements[elements < len(known)]]
                latest = max(latest, int(found.max(initial=-1)))
        needs.append(latest)
    return needs


def _touches(tile: Group) -> Iterator[tuple[str, bool, Elements]]:
    for operation in tile:
        for touch in operation.touches:
            if touch.space != "setting" and touch.elements.size:
                yield touch.space, touch.write, touch.elements


def _tiles(operations: Sequence[Operation]) -> list[Group]:
    """Cut operations behind each run of stores."""
    tiles: list[Group] = [[]]
    for operation in operations:
        last = tiles[-1][-1].instruction if tiles[-1] else None
        if isinstance(last, Store) and not isinstance(operation.instruction, Store):
            tiles.append([])
        tiles[-1].append(operation)
    return tiles


# ------------------------------------------------------------------------------ addresses


def _used(fragment: Fragment) -> dict[str, int]:
    """Return how much of each scratchpad a fragment uses, from its beginning."""
    used = dict.fromkeys(_SPACES, 0)
    for operation in fragment.operations:
        for touch in operation.touches:
            if touch.space in used and touch.elements.size:
                last = touch.elements.max()
                if touch.space == "post":
                    last = (touch.elements % POST_ROWS).max()
                used[touch.space] = max(used[touch.space], int(last) + 1)
    return used


def _moved(operation: Operation, offsets: dict[str, int]) -> Operation:
    """Return an operation that uses the scratchpads from `offsets` on."""
    i = operation.instruction
    if isinstance(i, Load | Store):
        space = _LOADED.get(Memory(i.memory), "acc")
        i = replace(i, sram_base=i.sram_base + offsets[space])
    elif isinstance(i, Post) and i.reads_row:
        i = replace(i, row=i.row + offsets["post"])
    rows = operation.micro_ops
    if rows is not None:
        on_array = any(touch.space == "inp" for touch in operation.touches)
        source = offsets["inp"] if on_array else offsets["acc"]
        rows = rows + np.array([offsets["acc"], source, offsets["wgt"] * on_array], np.int64)
    touches = tuple(
        replace(t, elements=t.elements + offsets[t.space]) if t.space in offsets else t
        for t in operation.touches
    )
    return replace(operation, instruction=i, touches=touches, micro_ops=rows)


def halves(config: HardwareConfig) -> HardwareConfig:
    """Return the hardware with half of each scratchpad: for tilings that leave room for another."""
    return replace(
        config,
        log_inp_buff_size=config.log_inp_buff_size - 1,
        log_wgt_buff_size=config.log_wgt_buff_size - 1,
        log_acc_buff_size=config.log_acc_buff_size - 1,
    )
