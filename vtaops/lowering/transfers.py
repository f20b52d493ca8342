"""Copy nests to LOAD and STORE: the grid of tiles of each copy, and the accesses that cover it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from vtaops.config import HardwareConfig, Memory
from vtaops.errors import ScheduleError
from vtaops.isa import Gemm, Load, Store
from vtaops.lowering.copies import SKIP, ZERO, BlockTransfer, Grid, cover
from vtaops.lowering.expressions import Values
from vtaops.lowering.images import Image
from vtaops.lowering.nests import CopyNest, Loop
from vtaops.lowering.operation import Operation, Touch
from vtaops.lowering.options import Border
from vtaops.lowering.scratchpads import ROWS, Addresses, lanes_of
from vtaops.lowering.voids import Mask, Padding
from vtaops.program import NO_BUFFER, Buffer, Role

_MOST_ITERATIONS = (1 << 14) - 1
"""Of one loop of a GEMM."""

_LOAD_OF_SCRATCHPAD = {
    "inp": Memory.INP,
    "wgt": Memory.WGT,
    "acc": Memory.ACC,
    "bias": Memory.POST,
    "scale": Memory.POST,
}


class Transfers:
    """Emits the copies of one program.

    Parameters
    ----------
    config : HardwareConfig
        For which hardware.
    buffers : tuple of Buffer
        The arguments in DRAM.
    loaded : set of str
        Those that the program loads.
    addresses : Addresses
        Where the tiles lie.
    padding : Padding
        What of the tiles is padding; copies add to it.
    borders : dict
        The borders around the images of buffers, by name.
    """

    def __init__(
        self,
        config: HardwareConfig,
        buffers: tuple[Buffer, ...],
        loaded: set[str],
        addresses: Addresses,
        padding: Padding,
        borders: dict[str, Border],
    ) -> None:
        self._config = config
        self._addresses = addresses
        self._padding = padding
        self._buffers = {buffer.name: index for index, buffer in enumerate(buffers)}
        written = {b.name for b in buffers if b.role in (Role.OUTPUT, Role.SCRATCH)}
        self._changing = written & loaded
        self._images = {b.name: Image.of(b, borders[b.name]) for b in buffers if b.name in borders}
        self.left_out = False
        """Whether padding was not loaded, so that its products are left out."""
        # The same tiles and accesses recur in every iteration of the outer loops.
        self._tiles: dict[Hashable, tuple[Grid, int, bool]] = {}
        self._accesses: dict[tuple[int, bytes], list[BlockTransfer]] = {}

    def emit(self, leaf: CopyNest, values: Values, thread: int) -> Iterator[Operation]:
        """Return the instructions of a copy for the current values of the outer loops."""
        load = bool(leaf.dst.scratchpad)
        on_chip, dram = (leaf.dst, leaf.src) if load else (leaf.src, leaf.dst)
        assert on_chip is not None
        memory = _LOAD_OF_SCRATCHPAD[on_chip.scratchpad] if load else Memory.OUT
        if memory == Memory.ACC and dram and dram.dtype == "int8":
            memory = Memory.ACC_8BIT
        grid, start = self._grid(leaf, values, load)
        relocation = self._buffers[dram.name] if dram else NO_BUFFER
        if load:
            grid = self._without_voids(leaf, grid, start, thread)
            # What the operator itself writes to DRAM may have changed since the last load, and
            # accumulators that the ALU works on in place no longer hold what was loaded.
            changes = dram is not None and dram.name in self._changing
            changes = changes or self._addresses.is_overwritten(on_chip.name)
            content = None if changes else (relocation, grid.tobytes())
            if not self._addresses.fill(on_chip.name, thread, content):
                return
        sram = self._addresses.base(on_chip.name, thread) + start + ROWS.get(on_chip.scratchpad, 0)
        # Some hardware cannot pad accumulators: only what must be padded is.
        pads = memory == Memory.INP or (load and bool((grid == ZERO).any()))
        for access in self._cover(leaf, grid, pads):
            if access.y_size == 0:  # no LOAD: some hardware cannot do one without a row
                if memory != Memory.INP:
                    yield from _resets(sram + access.sram, access.x_size)
                continue
            fields = {**vars(access)}
            del fields["sram"], fields["dram"]
            cls = Load if load else Store
            instruction = cls(
                memory=memory, sram_base=sram + access.sram, dram_base=access.dram, **fields
            )
            written = np.arange(instruction.sram_size) + instruction.sram_base
            space = "post" if on_chip.scratchpad in ROWS else on_chip.scratchpad
            touch = Touch(space, written, write=load)
            yield Operation(instruction, relocation, (touch,))

    def _without_voids(self, leaf: CopyNest, grid: Grid, start: int, thread: int) -> Grid:
        """Skip the padding that no LOAD writes, and remember it as void."""
        name, written = leaf.dst.name, leaf.padding == 0 and leaf.dst.scratchpad != "wgt"
        if written and leaf.dst.scratchpad != "inp":
            return grid
        mask = np.zeros(self._addresses.size(name), np.bool_)
        mask[start : start + grid.size] = (grid == ZERO).ravel()
        if written:
            if not self._padding.skip:
                mask &= self._without_row(leaf, grid, start, mask.size)
                self.left_out |= bool(mask.any())
            self._padding.zeros.begin(name, thread, mask)
            return grid
        self._padding.voids.begin(name, thread, mask)
        return np.where(grid == ZERO, SKIP, grid)

    def _without_row(self, leaf: CopyNest, grid: Grid, start: int, size: int) -> Mask:
        """Return the padding that only a LOAD without a row of data could write."""
        mask = np.zeros(size, np.bool_)
        if (grid == ZERO).any():
            for access in self._cover(leaf, grid, pads=True):
                if access.y_size == 0:
                    first = start + access.sram
                    mask[first : first + access.x_size] = True
        return mask

    def _grid(self, leaf: CopyNest, values: Values, load: bool) -> tuple[Grid, int]:
        """Return the DRAM element of each element of a tile, and the first element of the tile."""
        on_chip = leaf.dst if load else leaf.src
        assert on_chip is not None
        lanes = lanes_of(on_chip.scratchpad, self._config)
        tiles, lane_loops = _split_lanes(leaf.loops, lanes)
        point: dict[str, Any] = {**values, **dict.fromkeys((loop.name for loop in lane_loops), 0)}
        open_grid = np.ogrid[tuple(slice(loop.extent) for loop in tiles)]
        point.update(zip((loop.name for loop in tiles), open_grid, strict=True))
        shape = tuple(loop.extent for loop in tiles)

        def evaluated(expression: object) -> Grid:
            return np.broadcast_to(np.asarray(expression(point)), shape)  # type: ignore[operator]

        sram_index, dram_index = leaf.dst_index, leaf.src_index
        if not load:
            sram_index, dram_index = dram_index, sram_index
        key = (id(leaf), *(values[name] for name in sorted(sram_index.names & values.keys())))
        if key not in self._tiles:
            _check_lanes(leaf, values, lane_loops, lanes)
            sram = self._addresses.place(on_chip.name, evaluated(sram_index) // lanes)
            start = int(sram.min())
            dense = bool((sram.ravel() == start + np.arange(sram.size)).all())
            self._tiles[key] = sram.ravel() - start, start, dense
        places, start, dense = self._tiles[key]
        grid = evaluated(dram_index) // lanes
        dram = leaf.src if load else leaf.dst
        if dram is not None and dram.name in self._images:
            grid = self._images[dram.name].place(grid)
        if leaf.inside is not None:
            grid = np.where(evaluated(leaf.inside), grid, ZERO)
        for guard in leaf.guards:
            grid = np.where(evaluated(guard), grid, SKIP)
        if not dense:
            scattered = np.full(int(places.max()) + 1, SKIP, dtype=np.int64)
            scattered[places] = grid.ravel()
            grid = scattered
        return grid, start

    def _cover(self, leaf: CopyNest, grid: Grid, pads: bool) -> list[BlockTransfer]:
        """`cover`, remembered up to a shift of the DRAM elements."""
        valid = grid >= 0
        shift = int(grid[valid].min()) if valid.any() else 0
        relative = np.where(valid, grid - shift, grid)
        key = (id(leaf), relative.tobytes())
        if key not in self._accesses:
            self._accesses[key] = cover(relative, pads)
        return [_shifted(access, shift) for access in self._accesses[key]]


def _resets(first: int, count: int) -> Iterator[Operation]:
    """Yield resets of consecutive accumulators."""
    for begin in range(first, first + count, _MOST_ITERATIONS):
        size = min(_MOST_ITERATIONS, first + count - begin)
        loops = {"uop_end": 1, "iter_out": 1, "iter_in": size, "dst_factor_in": 1}
        touch = Touch("acc", begin + np.arange(size), write=True)
        rows = np.array([[begin, 0, 0]], np.int64)
        yield Operation(Gemm(reset=1, **loops), touches=(touch,), micro_ops=rows)


def _split_lanes(loops: list[Loop], lanes: int) -> tuple[list[Loop], list[Loop]]:
    """Separate the loops over tiles from the innermost ones, over the lanes of a tile."""
    product, cut = 1, len(loops)
    while product < lanes and cut:
        cut -= 1
        product *= loops[cut].extent
    if product != lanes:
        raise ScheduleError(
            f"a copy moves {product} scalars in its innermost loops; DMA moves whole tiles of "
            f"{lanes}: do not cut the loops over lanes"
        )
    return loops[:cut], loops[cut:]


def _check_lanes(leaf: CopyNest, values: Values, lane_loops: list[Loop], lanes: int) -> None:
    """Make sure that the lanes of a tile are contiguous on both sides of the copy."""
    first = {**values, **{loop.name: 0 for loop in leaf.loops}}
    last = {**first, **{loop.name: loop.extent - 1 for loop in lane_loops}}
    for index in (leaf.dst_index, leaf.src_index):
        if index(last) - index(first) != lanes - 1:
            raise ScheduleError(
                f"the copy into {leaf.dst.name} crosses lanes: the {lanes} scalars of a tile must "
                f"lie side by side in DRAM, in order"
            )


def _shifted(access: BlockTransfer, shift: int) -> BlockTransfer:
    if access.y_size == 0:
        return access
    fields = {**vars(access), "dram": access.dram + shift}
    return BlockTransfer(**fields)
