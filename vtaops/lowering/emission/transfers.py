"""Lower copy nests to LOAD and STORE: each copy's grid of tiles, and the accesses that cover it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.lowering.copies import SKIP, ZERO, BlockTransfer, Grid, cover
from vtaops.lowering.emission.context import Context, Iterations, Memo
from vtaops.lowering.emission.images import extents_of, placed
from vtaops.lowering.emission.padding import Padding
from vtaops.lowering.emission.scratchpads import ROWS
from vtaops.lowering.operation import Operation
from vtaops.lowering.options import Extents, Strides
from vtaops.lowering.tree.expressions import Expression, Values
from vtaops.lowering.tree.nodes import CopyNest
from vtaops.machine.config import Memory
from vtaops.machine.isa import Gemm, Load, MemoryInstruction, Store
from vtaops.program import NO_BUFFER


class TileCopy:
    """One copy with its loops; it records the padding of what it loads."""

    def __init__(self, leaf: CopyNest, context: Context) -> None:
        self._leaf = leaf
        self._context = context
        self._addresses = context.addresses
        self._memory = _memory(leaf)
        inside = () if leaf.inside is None else (leaf.inside,)
        deciding = (*inside, *leaf.guards, leaf.on_chip.offset)
        self._iterations = Iterations(leaf.loops, deciding)
        self._pads = _writes_padding(leaf)
        self._changes = bool(leaf.read & context.changing) or (
            leaf.loads and context.addresses.is_overwritten(leaf.dst.buffer.name)
        )
        self._number, self._narrow, self._part = NO_BUFFER, False, None
        if leaf.dram is not None:
            names = [buffer.name for buffer in context.buffers]
            self._number = names.index(leaf.dram.buffer.name)
            buffer = context.buffers[self._number]
            self._narrow = buffer.layout.nibbles
            strides = dict(context.options.strides).get(buffer.name)
            self._part = strides and (extents_of(buffer), strides)
            offset, origin = leaf.dram.offset, dict.fromkeys(leaf.dram.offset.names, 0)
            self._first = int(offset(origin))
            outer = offset.names - {loop.name for loop in leaf.loops}
            self._steps = {n: int(offset({**origin, n: 1})) - self._first for n in outer}
            """If the offset is affine, what one iteration of each outer loop adds to it."""
        self._known = Memo()

    def emit(self, values: Values, thread: int) -> list[Operation]:
        """Return the instructions for the current values of the outer loops."""
        on_chip = self._leaf.on_chip.buffer
        copy, shift = self._copy(values)
        content = (self._number, copy.content, shift)
        if self._leaf.loads and not self._begin_tile(copy, content, thread):
            return []
        base = self._addresses.base(on_chip.name, thread) + copy.start
        base += ROWS.get(on_chip.scratchpad, 0)
        begin = shift if self._narrow else 0  # of pairs of tiles
        moves = self._known.once((copy, base, begin), self._moves, copy, base, begin)
        return [move.behind(shift - begin) for move in moves]

    def _moves(self, copy: _Copy, base: int, shift: int) -> list[Operation]:
        """Return the instructions of a copy to or from tiles at `base`."""
        kind = Load if self._leaf.loads else Store
        moves = []
        for access in copy.accesses:
            sram, dram = base + access.sram_base, access.dram_base + shift
            if access.y_size:
                instruction = kind(0, 0, 0, 0, self._memory, sram, dram, *access[2:])
                if self._narrow:
                    instruction = _of_nibbles(instruction)
                moves.append(Operation(instruction, relocation=self._number))
            elif self._memory != Memory.INP:  # some hardware has no LOAD without rows
                moves.append(_reset(sram, access.x_size))
        return moves

    def _begin_tile(self, copy: _Copy, content: Hashable, thread: int) -> bool:
        """Begin a loaded tile; return False if its content is still resident."""
        name = self._leaf.dst.buffer.name
        self._context.paddings.begin(name, thread, copy.padding)
        # The operator's own stores may have changed DRAM since the last load, and accumulators
        # that the ALU modified in place no longer hold the loaded values.
        return self._addresses.fill(name, thread, None if self._changes else content)

    def _copy(self, values: Values) -> tuple[_Copy, int]:
        """Return a copy, and the shift of its DRAM elements.

        Copies recur over the outer loops with shifted DRAM elements if the same conditions hold.
        Non-affine offsets are evaluated every time.
        """
        dram = self._leaf.dram
        if dram is None or not dram.offset.affine:
            copy = self._evaluated(values)
            return copy, copy.lowest or 0
        first = self._first + sum([step * values[name] for name, step in self._steps.items()])
        period, step = _period(*self._part) if self._part else (1, 1)
        turn, phase = divmod(first, period)
        key = phase, *self._iterations.decided(values)
        copy, at = self._known.once(key, lambda: (self._evaluated(values), turn))
        return copy, 0 if copy.lowest is None else copy.lowest + (turn - at) * step

    def _evaluated(self, values: Values) -> _Copy:
        """Evaluate a copy for the current values of the outer loops."""
        leaf, (grid, start) = self._leaf, self._grid(values)
        valid = grid >= 0
        lowest = int(grid[valid].min()) if valid.any() else None
        grid = np.where(valid, grid - (lowest or 0), grid)
        inputs = leaf.dst.buffer.scratchpad == "inp"
        padding = None
        if leaf.loads and (inputs or not self._pads):
            padding = self._padding_of(grid, start)
            if not self._pads:
                grid = np.where(grid == ZERO, SKIP, grid)
        # Some hardware cannot pad accumulators: pad only if necessary.
        pads = inputs or (leaf.loads and bool((grid == ZERO).any()))
        return _Copy(grid.tobytes(), start, lowest, self._cover(grid, pads), padding)

    def _padding_of(self, grid: Grid, start: int) -> Padding | None:
        """Return the padding in a tile whose products are skipped."""
        mask = np.zeros(self._addresses.tiles[self._leaf.dst.buffer.name].size, np.bool_)
        if self._context.options.skip_padding or not self._pads:
            mask[start : start + grid.size] = (grid == ZERO).ravel()
        elif (grid == ZERO).any():  # only padding that would need a LOAD without data rows
            for access in self._cover(grid, pads=True):
                if access.y_size == 0:
                    first = start + access.sram_base
                    mask[first : first + access.x_size] = True
        return Padding(mask, self._pads) if mask.any() else None

    def _grid(self, values: Values) -> tuple[Grid, int]:
        """Return the DRAM element of each element of a tile, and the first copied element."""
        leaf = self._leaf
        shape = tuple(loop.extent for loop in leaf.loops)

        def evaluated(expression: Expression) -> Grid:
            return np.broadcast_to(self._iterations.evaluate(expression, values), shape)

        elements = evaluated(leaf.on_chip.offset)
        places = self._addresses.tiles[leaf.on_chip.buffer.name].place(elements).ravel()
        start = int(places.min())
        grid = np.full(shape, ZERO, np.int64)
        if leaf.dram is not None:
            grid = evaluated(leaf.dram.offset)
            if self._part:
                grid = placed(grid, *self._part)
        if leaf.inside is not None:
            grid = np.where(evaluated(leaf.inside), grid, ZERO)
        for guard in leaf.guards:
            grid = np.where(evaluated(guard), grid, SKIP)
        copied = grid.ravel() != SKIP  # what a guard excludes may lie in another row
        if copied.any() and (places != start + np.arange(places.size)).any():
            places = places[copied]
            start = int(places.min())
            scattered = np.full(int(places.max()) - start + 1, SKIP, dtype=np.int64)
            scattered[places - start] = grid.ravel()[copied]
            grid = scattered
        return grid, start

    def _cover(self, grid: Grid, pads: bool) -> list[BlockTransfer]:
        """Call `cover`, memoized."""
        key = (pads, grid.shape, grid.tobytes())
        return self._known.once(key, cover, grid, pads)


@dataclass(frozen=True, eq=False)
class _Copy:
    """A copy up to a shift of its DRAM elements.

    Attributes
    ----------
    content : bytes
        Identifies copies of the same elements.
    start : int
        First element of the tile that is copied.
    lowest : int or None
        Lowest DRAM element, the origin of `accesses`; None if nothing is copied.
    accesses : list of BlockTransfer
        The DMA accesses.
    padding : Padding or None
        Padding of a loaded tile, if relevant.
    """

    content: bytes
    start: int
    lowest: int | None
    accesses: list[BlockTransfer]
    padding: Padding | None


def _period(extents: Extents, strides: Strides) -> tuple[int, int]:
    """Return after how many tiles of an image others lie alike, and how far behind.

    Those are the tiles of a block of channels, if there is one image, else all.
    """
    images, blocks, height, width = extents
    if images == 1:
        return height * width, strides.block
    return images * blocks * height * width, images * strides.image


def _of_nibbles(load: MemoryInstruction) -> Load:
    """Return the LOAD of the same tiles from a buffer whose elements hold two each."""
    assert isinstance(load, Load)
    if load.x_stride == load.x_size:  # one long row
        size = load.y_size * load.x_size
        load = replace(load, y_size=1, x_size=size, x_stride=size)
    fields = {"dram_base": load.dram_base, "x_size": load.x_size}
    if load.y_size > 1:
        fields["x_stride"] = load.x_stride
    if any(value % 2 for value in fields.values()):
        raise ScheduleError(
            f"weights of four bits are loaded by pairs of tiles; a row of {load.x_size} from tile "
            f"{load.dram_base} on, the next one {load.x_stride} behind, is no such pairs"
        )
    return replace(load, nibbles=1, **{name: value // 2 for name, value in fields.items()})


def _memory(leaf: CopyNest) -> Memory:
    """Return the memory identifier of a copy's instructions."""
    if not leaf.loads:
        return Memory.OUT
    if leaf.dst.buffer.scratchpad == "acc" and leaf.dram and leaf.dram.buffer.dtype == "int8":
        return Memory.ACC_8BIT
    return Memory[leaf.dst.buffer.memory.upper()]


def _writes_padding(leaf: CopyNest) -> bool:
    """Whether LOAD can write the padding of a copy: zeros, except for weights."""
    return leaf.padding == 0 and leaf.dst.buffer.scratchpad != "wgt"


def _reset(first: int, count: int) -> Operation:
    """Return the reset of consecutive accumulators."""
    loops = {"uop_end": 1, "iter_out": 1, "iter_in": count, "dst_factor_in": 1}
    return Operation(Gemm(reset=1, **loops), np.array([[first, 0, 0]], np.int64))
