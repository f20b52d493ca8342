"""Scratchpad addresses of tile buffers, with one context per virtual thread.

Each buffer has one or more places that its tiles use in turn; a load is omitted if its tile is
still in one of them. A schedule may fill accumulators piece by piece and read them afterwards: then
all pieces are one tile. The ALU works in place, so the result of an ALU stage shares the address of
its first operand; a chain of stages is one tile.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from itertools import takewhile

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.base.shapes import ceil_div
from vtaops.lowering.operation import Elements
from vtaops.lowering.options import Capacity
from vtaops.lowering.tree import nodes as nests
from vtaops.lowering.tree.expressions import Values
from vtaops.machine.accesses import distinct
from vtaops.machine.config import POST_ROWS, HardwareConfig
from vtaops.schedule.calls import ALU_CALL, REQUANTIZE_CALL, RESET_CALL

_Placed = tuple[tuple[nests.Loop, ...], nests.LeafNest]
"""A leaf with the loops around it."""

ROWS = {"bias": 0, "scale": POST_ROWS}
"""First tile of each half of the POST parameters."""


class Tile:
    """A buffer's elements that are written, packed in their order, and when a new tile begins.

    TVM's compaction gives a buffer the bounding box of all its tiles, which exceeds a tile if tiles
    overhang the operator. Scratchpads are small, so the gaps are removed.

    Parameters
    ----------
    writers : list of (tuple of Loop, LeafNest)
        The leaves that write it, each with the loops around it.

    Attributes
    ----------
    size : int
        Elements of the tile.
    is_whole : bool
        Whether it has no gaps, so that elements are positions.
    scope : tuple of str or None
        If it is filled piece by piece: the loops around all pieces; a new tile begins when one of
        them advances. None if it is filled at once.

    Raises
    ------
    ScheduleError
        If it is loaded piece by piece.
    """

    def __init__(self, writers: list[_Placed]) -> None:
        buffer = writers[0][1].dst.buffer
        elements = distinct(np.concatenate([_written(*writer) for writer in writers]))
        elements = elements[elements < buffer.tiles]  # others, guards exclude
        self.size = len(elements)
        self._elements = elements
        self.is_whole = bool(elements[-1] + 1 == self.size)
        around = _around(writers)
        # A tile that one leaf loads again, for other products, is still one tile.
        fills = {leaf: outer for outer, leaf in writers if _fills(leaf)}
        at_once = len(fills) < 2 and all(len(outer) == len(around) for outer in fills.values())
        self.scope = None if at_once else around
        if not at_once and isinstance(next(iter(fills)), nests.CopyNest):
            raise ScheduleError(
                f"{buffer.name} is loaded piece by piece, and read when all pieces are there; load "
                f"it at once, in a loop around all that reads it"
            )

    def place(self, element: Elements) -> Elements:
        """Return the packed positions of elements of TVM's buffer."""
        return element if self.is_whole else np.searchsorted(self._elements, element)


def _around(writers: list[_Placed]) -> tuple[str, ...]:
    """Return the loops around all writers, up to the first that moves between pieces."""
    moving = frozenset[str]().union(*(leaf.dst.offset.names for _, leaf in writers))
    common = takewhile(
        lambda loops: len(set(loops)) == 1, zip(*(outer for outer, _ in writers), strict=False)
    )
    return tuple(takewhile(lambda name: name not in moving, (loops[0].name for loops in common)))


def _written(outer: tuple[nests.Loop, ...], leaf: nests.LeafNest) -> Elements:
    """Return the elements of TVM's buffer that a leaf writes over all loops."""
    return np.asarray(leaf.dst.offset(nests.grid_of((*outer, *leaf.loops)))).ravel()


def _fills(leaf: nests.LeafNest) -> bool:
    """Whether a leaf begins a tile: a load, or a reset."""
    return isinstance(leaf, nests.CopyNest) or leaf.call == RESET_CALL


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
    tiles : dict of str to Tile
        The tile of each buffer.
    used : dict
        Occupied elements of each scratchpad.

    Raises
    ------
    ScheduleError
        If a scratchpad overflows.
    """

    def __init__(self, tree: nests.Tree, config: HardwareConfig, capacity: Capacity) -> None:
        self._begun: dict[tuple[str, int], tuple[int, ...]] = {}
        self._memory = {buffer.name: buffer.scratchpad for buffer in tree.allocations}
        writers: dict[str, list[_Placed]] = {}
        for placed in nests.placed_leaves(tree.body):
            writers.setdefault(placed[1].dst.buffer.name, []).append(placed)
        self.tiles = {b.name: Tile(writers[b.name]) for b in tree.allocations}
        self.used = {"inp": 0, "wgt": 0, "acc": 0, **dict.fromkeys(ROWS, 0)}
        self._regions: dict[tuple[str, int], _Region] = {}
        self._aliases = _aliases(tree)
        for buffer in tree.allocations:
            if self.root(buffer.name) == buffer.name:
                _, first = writers[buffer.name][0]
                elements = self.tiles[buffer.name].size
                places = _places(first, elements, capacity, tree.threads)
                for thread in range(tree.threads):
                    region = _Region(self.used[buffer.scratchpad], elements, places)
                    self._regions[buffer.name, thread] = region
                    self.used[buffer.scratchpad] += region.elements
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

    def root(self, buffer: str) -> str:
        """Return the buffer whose place a buffer shares, or the buffer itself."""
        return self._aliases.get(buffer, buffer)

    def fill(self, buffer: str, thread: int, content: Hashable | None = None) -> bool:
        """Begin a tile of a buffer in its next place.

        Returns False, and keeps the old place, if `content` is known and still resident.
        """
        fresh = object() if content is None else content
        return self._regions[self.root(buffer), thread].fill(fresh)

    def continues(self, buffer: str, thread: int, values: Values) -> bool:
        """Whether what fills a buffer is one more piece of its current tile."""
        root = self.root(buffer)
        scope = self.tiles[root].scope
        if scope is None:
            return False
        now = tuple(values[name] for name in scope)
        before = self._begun.get((root, thread))
        self._begun[root, thread] = now
        return now == before

    def base(self, buffer: str, thread: int) -> int:
        """Return the address of the current tile of a buffer."""
        return self._regions[self.root(buffer), thread].current

    def is_overwritten(self, buffer: str) -> bool:
        """Whether an ALU stage overwrites the loaded contents of a buffer in place."""
        return buffer in self._aliases.values()


def _places(leaf: nests.LeafNest, elements: int, capacity: Capacity, threads: int) -> int:
    """Return the number of tiles that a thread holds of the buffer that a leaf fills."""
    buffer = leaf.dst.buffer
    if buffer.scratchpad in ROWS:  # all of them, or as many as fit
        assert isinstance(leaf, nests.CopyNest)
        assert leaf.dram is not None
        tiles = ceil_div(leaf.dram.buffer.tiles, elements)
        return max(1, min(tiles, capacity.rows // (threads * elements)))
    # A bias shares the accumulator memory; only accumulations alternate.
    loaded_acc = buffer.scratchpad == "acc" and isinstance(leaf, nests.CopyNest)
    places: int = 1 if loaded_acc else getattr(capacity, buffer.scratchpad)
    return places


def _aliases(tree: nests.Tree) -> dict[str, str]:
    """Map the result of each ALU stage to the accumulator that it modifies in place."""
    aliases: dict[str, str] = {}
    for leaf in nests.leaves(tree.body):
        if isinstance(leaf, nests.CallNest) and leaf.call in (ALU_CALL, REQUANTIZE_CALL):
            result, source = (operand.buffer.name for operand in leaf.operands[:2])
            root = aliases.get(source, source)
            if result != root:
                aliases[result] = root
    return aliases
