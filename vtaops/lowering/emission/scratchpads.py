"""Scratchpad addresses of tile buffers, with one context per virtual thread.

Each buffer has one or more places that its tiles use in turn; a load is omitted if its tile is
still in one of them. The ALU works in place, so the result of an ALU stage shares the address of
its first operand; a chain of stages is one tile.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ScheduleError
from vtaops.base.shapes import ceil_div
from vtaops.lowering.options import Capacity
from vtaops.lowering.parsing import nests
from vtaops.lowering.parsing.accumulate import JOIN_CALL
from vtaops.lowering.parsing.expressions import Expression
from vtaops.machine.config import POST_ROWS, HardwareConfig
from vtaops.schedule.intrinsics import ALU_CALL, REQUANTIZE_CALL

Index = TypeVar("Index", int, npt.NDArray[np.int64])


ROWS = {"bias": 0, "scale": POST_ROWS}
"""First tile of each half of the POST parameters."""


def thread_count(nodes: Iterable[nests.Node]) -> int:
    """Return the number of virtual threads."""
    loops = [node for node in nodes if isinstance(node, nests.LoopNode)]
    return max(
        (max(thread_count(n.body), n.loop.extent if n.threads else 1) for n in loops), default=1
    )


@dataclass(frozen=True)
class DenseTile:
    """Dense packing of a buffer's elements: row-major over the loops that fill it.

    TVM's compaction gives a buffer the bounding box of all its tiles, which exceeds a tile if tiles
    overhang the operator. Scratchpads are small, so the gaps are removed.

    Attributes
    ----------
    strides : tuple of int
        TVM's strides of the loops in elements, decreasing.
    packed : tuple of int
        The strides without gaps.
    elements : int
        Elements of the tile.
    """

    strides: tuple[int, ...]
    packed: tuple[int, ...]
    elements: int

    @staticmethod
    def filled_by(loops: tuple[nests.Loop, ...], index: Expression, lanes: int) -> DenseTile:
        """Return the packing of a buffer that a leaf nest fills at scalar `index`."""
        origin = dict.fromkeys(index.names, 0)
        base = index(origin)
        steps = {loop: index({**origin, loop.name: 1}) - base for loop in loops}
        outer_first = sorted(
            ((step // lanes, loop.extent) for loop, step in steps.items() if step >= lanes),
            reverse=True,
        )
        *packed, elements = accumulate(
            (extent for _, extent in reversed(outer_first)), mul, initial=1
        )
        strides = tuple(stride for stride, _ in outer_first)
        return DenseTile(strides, tuple(reversed(packed)), elements)

    def place(self, element: Index) -> Index:
        """Return the packed positions of elements of TVM's buffer."""
        if self.strides == self.packed:
            return element
        position, rest = element * 0, element
        for stride, step in zip(self.strides, self.packed, strict=True):
            position, rest = position + rest // stride * step, rest % stride
        return position


class _Region:
    """The places of one buffer in one thread's context; replacement is least recently used."""

    def __init__(self, first: int, elements: int, places: int) -> None:
        self.elements = elements * places
        addresses = [first + place * elements for place in range(places)]
        # Unique placeholders until the first tiles are loaded.
        self._contents = OrderedDict[Hashable, int]((object(), address) for address in addresses)
        self.current = first

    def fill(self, content: Hashable) -> bool:
        """Allocate a place for `content` and return True; False if it is still resident."""
        fresh = content not in self._contents
        if fresh:
            _, self._contents[content] = self._contents.popitem(last=False)
        self._contents.move_to_end(content)
        self.current = self._contents[content]
        return fresh


class Addresses:
    """Addresses of every buffer's tiles, for each virtual thread.

    Parameters
    ----------
    tree : Tree
        The parsed function.
    config : HardwareConfig
        Sizes of the scratchpads.
    capacity : Capacity
        Tiles that a thread holds of each operand.

    Attributes
    ----------
    used : dict
        Occupied elements of each scratchpad.

    Raises
    ------
    ScheduleError
        If a scratchpad overflows.
    """

    def __init__(self, tree: nests.Tree, config: HardwareConfig, capacity: Capacity) -> None:
        self._config = config
        self._tiles: dict[str, DenseTile] = {}
        self._memory = {buffer.name: buffer.scratchpad for buffer in tree.allocations}
        threads = thread_count(tree.body)
        places: dict[str, int] = {}
        for leaf in nests.leaves(tree.body):
            buffer = leaf.dst.buffer
            if buffer.scratchpad and buffer.name not in self._tiles:
                lanes = self.lanes(buffer)
                tile = DenseTile.filled_by(leaf.loops, leaf.dst.offset, lanes)
                self._tiles[buffer.name] = tile
                places[buffer.name] = _places(leaf, tile, lanes, capacity, threads)
        self.used = {"inp": 0, "wgt": 0, "acc": 0, **dict.fromkeys(ROWS, 0)}
        self._regions: dict[tuple[str, int], _Region] = {}
        self._root = _roots(tree)
        for buffer in tree.allocations:
            if self.root(buffer.name) == buffer.name:
                self._allocate(buffer, places[buffer.name], threads)
        for name, elements in self.used.items():
            depth = POST_ROWS if name in ROWS else getattr(config, name).depth
            if elements > depth:
                raise ScheduleError(
                    f"the schedule needs {elements} elements of the {name} scratchpad, which has "
                    f"{depth}: {elements - depth} too many "
                    f"({self._occupants(name)})"
                )

    def _occupants(self, scratchpad: str) -> str:
        """Describe the contents of a scratchpad, largest first, for messages."""
        sizes: Counter[str] = Counter()
        for (name, _), region in self._regions.items():
            if self._memory[name] == scratchpad:
                sizes[name] += region.elements
        return ", ".join(f"{name.split('_local.')[0]} {n}" for name, n in sizes.most_common())

    def _allocate(self, buffer: nests.TileBuffer, places: int, threads: int) -> None:
        """Allocate every thread's places for a buffer, contiguously."""
        elements = self._tiles[buffer.name].elements
        for thread in range(threads):
            first = self.used[buffer.scratchpad]
            self._regions[buffer.name, thread] = _Region(first, elements, places)
            self.used[buffer.scratchpad] += elements * places

    def root(self, buffer: str) -> str:
        """Return the buffer whose place a buffer shares, or the buffer itself."""
        return self._root.get(buffer, buffer)

    def fill(self, buffer: str, thread: int, content: Hashable | None = None) -> bool:
        """Begin a tile of a buffer in its next place.

        Returns False, and keeps the old place, if `content` is known and still resident.
        """
        fresh = object() if content is None else content
        return self._regions[self.root(buffer), thread].fill(fresh)

    def base(self, buffer: str, thread: int) -> int:
        """Return the address of the current tile of a buffer."""
        return self._regions[self._root.get(buffer, buffer), thread].current

    def is_overwritten(self, buffer: str) -> bool:
        """Whether an ALU stage overwrites the loaded contents of a buffer in place."""
        return buffer in self._root.values()

    def lanes(self, buffer: nests.TileBuffer) -> int:
        """Return the number of scalars in an on-chip element of a buffer."""
        lanes: int = getattr(self._config, buffer.memory).lanes
        return lanes

    def size(self, buffer: str) -> int:
        """Return the number of elements in a tile of a buffer."""
        return self._tiles[buffer].elements

    def place(self, buffer: str, element: Index) -> Index:
        """Return the positions of elements within a buffer's tile."""
        return self._tiles[buffer].place(element)


def _places(
    leaf: nests.LeafNest, tile: DenseTile, lanes: int, capacity: Capacity, threads: int
) -> int:
    """Return the number of tiles that a thread holds of the buffer that a leaf fills."""
    buffer = leaf.dst.buffer
    if buffer.scratchpad in ROWS:  # all of them, or as many as fit
        assert isinstance(leaf, nests.CopyNest)
        assert leaf.dram is not None
        tiles = ceil_div(leaf.dram.buffer.scalars, lanes * tile.elements)
        return max(1, min(tiles, capacity.rows // (threads * tile.elements)))
    # A bias shares the accumulator memory; only accumulations alternate.
    loaded_acc = buffer.scratchpad == "acc" and isinstance(leaf, nests.CopyNest)
    places: int = 1 if loaded_acc else getattr(capacity, buffer.scratchpad)
    return places


def _roots(tree: nests.Tree) -> dict[str, str]:
    """Map the result of each ALU stage to the accumulator that it modifies in place."""
    roots: dict[str, str] = {}
    for leaf in nests.leaves(tree.body):
        if isinstance(leaf, nests.CallNest) and leaf.call in (ALU_CALL, JOIN_CALL, REQUANTIZE_CALL):
            result, source, *joined = (operand.buffer.name for operand in leaf.operands)
            root = roots.get(source, source)
            for name in [result, *(joined if leaf.call == JOIN_CALL else [])]:
                if name != root:
                    roots[name] = root
    return roots
