"""Addresses of tile buffers in the scratchpads: one context for each virtual thread.

Each buffer lives at a fixed address for the whole program. The ALU works in place, so the result of
an ALU stage shares the address of its first operand; a chain of stages is one tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig, Scratchpad
from vtaops.errors import ScheduleError
from vtaops.lowering.expressions import Expression
from vtaops.lowering.nests import (
    CallNest,
    CopyNest,
    LeafNest,
    Loop,
    LoopNode,
    Node,
    ThreadNode,
    TileBuffer,
    Tree,
)
from vtaops.schedule.vta.intrinsics import ALU_CALL

Index = TypeVar("Index", int, npt.NDArray[np.int64])


def leaves(nodes: Iterable[Node]) -> Iterator[LeafNest]:
    """Iterate over all leaf nests of a tree, in program order."""
    for node in nodes:
        if isinstance(node, LoopNode | ThreadNode):
            yield from leaves(node.body)
        else:
            yield node


def thread_count(tree: Tree) -> int:
    """Return the number of virtual threads."""
    return max((n.loop.extent for n in tree.body if isinstance(n, ThreadNode)), default=1)


@dataclass(frozen=True)
class DenseTile:
    """How the elements of a buffer are packed: row-major over the loops that fill it.

    TVM's compaction gives a buffer the bounding box of all its tiles, which can be wider than a
    tile where tiles overhang the operator. Scratchpads are small, so the gaps are squeezed out.

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
    def filled_by(loops: list[Loop], index: Expression, lanes: int) -> DenseTile:
        """Return the packing of a buffer that a leaf nest fills at scalar `index`."""
        origin = dict.fromkeys(index.names, 0)
        base = index(origin)
        steps = {loop: index({**origin, loop.name: 1}) - base for loop in loops}
        outer_first = sorted(
            ((step // lanes, loop.extent) for loop, step in steps.items() if step >= lanes),
            reverse=True,
        )
        packed: list[int] = []
        elements = 1
        for _, extent in reversed(outer_first):
            packed.insert(0, elements)
            elements *= extent
        return DenseTile(tuple(stride for stride, _ in outer_first), tuple(packed), elements)

    def place(self, element: Index) -> Index:
        """Return the packed position of an element (or of many) of TVM's buffer."""
        if self.strides == self.packed:
            return element
        position, rest = element * 0, element
        for stride, step in zip(self.strides, self.packed, strict=True):
            position, rest = position + rest // stride * step, rest % stride
        return position


class Addresses:
    """Where the elements of every tile buffer lie, for each virtual thread.

    Parameters
    ----------
    tree : Tree
        The parsed function.
    config : HardwareConfig
        Sizes of the scratchpads.

    Attributes
    ----------
    used : dict
        Elements that are occupied of each scratchpad.

    Raises
    ------
    ScheduleError
        If a scratchpad overflows.
    """

    def __init__(self, tree: Tree, config: HardwareConfig) -> None:
        self._tiles: dict[str, DenseTile] = {}
        for leaf in leaves(tree.body):
            buffer, index = _filled(leaf)
            if buffer.scratchpad and buffer.name not in self._tiles:
                lanes = getattr(config, buffer.scratchpad).lanes
                self._tiles[buffer.name] = DenseTile.filled_by(leaf.loops, index, lanes)
        self.used = {"inp": 0, "wgt": 0, "acc": 0}
        self._first: dict[str, int] = {}
        self._allocate(tree)
        for name, elements in self.used.items():
            scratchpad: Scratchpad = getattr(config, name)
            if elements > scratchpad.depth:
                raise ScheduleError(
                    f"the schedule needs {elements} elements of the {name} scratchpad, which has "
                    f"{scratchpad.depth}: {elements - scratchpad.depth} too many"
                )

    def _allocate(self, tree: Tree) -> None:
        """Give every buffer its first element: contexts of all threads lie side by side."""
        threads, in_place = thread_count(tree), _in_place(tree)
        for buffer in tree.allocations:
            if buffer.name not in in_place:
                self._first[buffer.name] = self.used[buffer.scratchpad]
                self.used[buffer.scratchpad] += self._tiles[buffer.name].elements * threads
        for name, source in in_place.items():
            while source in in_place:
                source = in_place[source]
            self._first[name] = self._first[source]

    def of(self, buffer: str, thread: int, element: Index) -> Index:
        """Return the scratchpad address of an element (or of many) of a buffer."""
        tile = self._tiles[buffer]
        return self._first[buffer] + thread * tile.elements + tile.place(element)


def _filled(leaf: LeafNest) -> tuple[TileBuffer, Expression]:
    """Return the buffer that a leaf writes, and at which scalar."""
    if isinstance(leaf, CopyNest):
        return leaf.dst, leaf.dst_index
    assert isinstance(leaf, CallNest)
    return leaf.operands[0].buffer, leaf.operands[0].offset


def _in_place(tree: Tree) -> dict[str, str]:
    """Map the result of each ALU stage to its first operand."""
    return {
        leaf.operands[0].buffer.name: leaf.operands[1].buffer.name
        for leaf in leaves(tree.body)
        if isinstance(leaf, CallNest) and leaf.call == ALU_CALL
    }
