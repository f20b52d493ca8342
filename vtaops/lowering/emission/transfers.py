"""Copy nests to LOAD and STORE: the grid of tiles of each copy, and the accesses that cover it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.lowering.copies import SKIP, ZERO, BlockTransfer, Grid, cover
from vtaops.lowering.emission.images import Image
from vtaops.lowering.emission.scratchpads import ROWS, Addresses, lanes_of
from vtaops.lowering.emission.voids import Mask, Padding
from vtaops.lowering.operation import Operation, Touch
from vtaops.lowering.options import Border
from vtaops.lowering.parsing.expressions import Values
from vtaops.lowering.parsing.nests import CopyNest, Loop
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Gemm, Load, Store
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
        self._copies: dict[Hashable, _Copy] = {}
        self._conditions: dict[int, list[str]] = {}
        self._numbers: dict[bytes, int] = {}
        self._accesses: dict[tuple[int, bytes], list[BlockTransfer]] = {}

    def emit(self, leaf: CopyNest, values: Values, thread: int) -> Iterator[Operation]:
        """Return the instructions of a copy for the current values of the outer loops."""
        load = bool(leaf.dst.scratchpad)
        on_chip, dram = (leaf.dst, leaf.src) if load else (leaf.src, leaf.dst)
        assert on_chip is not None
        memory = _LOAD_OF_SCRATCHPAD[on_chip.scratchpad] if load else Memory.OUT
        if memory == Memory.ACC and dram and dram.dtype == "int8":
            memory = Memory.ACC_8BIT
        copy, shift = self._copy(leaf, values, load)
        relocation = self._buffers[dram.name] if dram else NO_BUFFER
        if load:
            if copy.padding is not None:
                self.left_out |= copy.left_out
                padding = self._padding.zeros if copy.written else self._padding.voids
                padding.begin(on_chip.name, thread, copy.padding)
            # What the operator itself writes to DRAM may have changed since the last load, and
            # accumulators that the ALU works on in place no longer hold what was loaded.
            changes = dram is not None and dram.name in self._changing
            changes = changes or self._addresses.is_overwritten(on_chip.name)
            content = None if changes else (relocation, copy.number, shift)
            if not self._addresses.fill(on_chip.name, thread, content):
                return
        sram = self._addresses.base(on_chip.name, thread) + copy.start
        sram += ROWS.get(on_chip.scratchpad, 0)
        space = "post" if on_chip.scratchpad in ROWS else on_chip.scratchpad
        for access in copy.accesses:
            if access.y_size == 0:  # no LOAD: some hardware cannot do one without a row
                if memory != Memory.INP:
                    yield from _resets(sram + access.sram, access.x_size)
                continue
            fields = {**vars(access)}
            del fields["sram"], fields["dram"]
            cls = Load if load else Store
            instruction = cls(
                memory=memory, sram_base=sram + access.sram, dram_base=access.dram + shift, **fields
            )
            written = np.arange(instruction.sram_size) + instruction.sram_base
            touch = Touch(space, written, write=load)
            yield Operation(instruction, relocation, (touch,))

    def _copy(self, leaf: CopyNest, values: Values, load: bool) -> tuple[_Copy, int]:
        """Return a copy, and the shift of its DRAM elements.

        Copies recur in the iterations of the outer loops with their elements in DRAM shifted, if
        the same conditions hold there. What is no affine function of the loops is worked out again.
        """
        dram, index = (leaf.src, leaf.src_index) if load else (leaf.dst, leaf.dst_index)
        if not index.affine or (dram is not None and dram.name in self._images):
            copy = self._evaluated(leaf, values, load)
            return copy, copy.lowest or 0
        on_chip = leaf.dst if load else leaf.src
        assert on_chip is not None
        lanes = lanes_of(on_chip.scratchpad, self._config)
        first, rest = divmod(int(index({**values, **_origin(leaf)})), lanes)
        key = (
            id(leaf),
            rest,
            *(values[name] for name in self._condition_names(leaf, load, values)),
        )
        if key not in self._copies:
            found = self._evaluated(leaf, values, load)
            lowest = None if found.lowest is None else found.lowest - first
            self._copies[key] = replace(found, lowest=lowest)
        copy = self._copies[key]
        return copy, 0 if copy.lowest is None else copy.lowest + first

    def _condition_names(self, leaf: CopyNest, load: bool, values: Values) -> list[str]:
        """Return the outer loops that decide what is copied, and to where on the chip."""
        if id(leaf) not in self._conditions:
            inside = () if leaf.inside is None else (leaf.inside,)
            on_chip = leaf.dst_index if load else leaf.src_index
            names = {name for e in (*inside, *leaf.guards, on_chip) for name in e.names}
            self._conditions[id(leaf)] = sorted(names & values.keys())
        return self._conditions[id(leaf)]

    def _evaluated(self, leaf: CopyNest, values: Values, load: bool) -> _Copy:
        """Return a copy for the current values of the outer loops."""
        grid, start = self._grid(leaf, values, load)
        valid = grid >= 0
        lowest = int(grid[valid].min()) if valid.any() else None
        grid = np.where(valid, grid - (lowest or 0), grid)
        padding, left_out = None, False
        written = leaf.padding == 0 and leaf.dst.scratchpad != "wgt"
        if load and (not written or leaf.dst.scratchpad == "inp"):
            padding, left_out = self._padding_of(leaf, grid, start, written)
            if not written:  # no LOAD writes it
                grid = np.where(grid == ZERO, SKIP, grid)
        # Some hardware cannot pad accumulators: only what must be padded is.
        pads = load and (leaf.dst.scratchpad == "inp" or bool((grid == ZERO).any()))
        number = self._numbers.setdefault(grid.tobytes(), len(self._numbers))
        accesses = self._cover(leaf, grid, pads)
        return _Copy(number, start, lowest, accesses, padding, written, left_out)

    def _padding_of(
        self, leaf: CopyNest, grid: Grid, start: int, written: bool
    ) -> tuple[Mask, bool]:
        """Return what of a tile is padding, and whether some of it is left out though written."""
        mask, left_out = np.zeros(self._addresses.size(leaf.dst.name), np.bool_), False
        mask[start : start + grid.size] = (grid == ZERO).ravel()
        if written and not self._padding.skip:
            mask &= self._without_row(leaf, grid, start, mask.size)
            left_out = bool(mask.any())
        mask.flags.writeable = False
        return mask, left_out

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
        _check_lanes(leaf, values, lane_loops, lanes)
        places = self._addresses.place(on_chip.name, evaluated(sram_index) // lanes).ravel()
        start = int(places.min())
        grid = evaluated(dram_index) // lanes
        dram = leaf.src if load else leaf.dst
        if dram is not None and dram.name in self._images:
            grid = self._images[dram.name].place(grid)
        if leaf.inside is not None:
            grid = np.where(evaluated(leaf.inside), grid, ZERO)
        for guard in leaf.guards:
            grid = np.where(evaluated(guard), grid, SKIP)
        if (places != start + np.arange(places.size)).any():
            scattered = np.full(int(places.max()) - start + 1, SKIP, dtype=np.int64)
            scattered[places - start] = grid.ravel()
            grid = scattered
        return grid, start

    def _cover(self, leaf: CopyNest, grid: Grid, pads: bool) -> list[BlockTransfer]:
        """`cover`, remembered."""
        key = (id(leaf), grid.tobytes())
        if key not in self._accesses:
            self._accesses[key] = cover(grid, pads)
        return self._accesses[key]


@dataclass(frozen=True)
class _Copy:
    """A copy up to a shift of its DRAM elements.

    Attributes
    ----------
    number : int
        Equal for copies of the same elements.
    start : int
        The first element of the tile that is copied.
    lowest : int or None
        The lowest DRAM element, which `accesses` count from; None if none is copied.
    accesses : list of BlockTransfer
        What moves it.
    padding : Mask or None
        What of a loaded tile is padding, if that matters.
    written : bool
        Whether a LOAD writes the padding.
    left_out : bool
        Whether some of it is not written nevertheless, so that its products are left out.
    """

    number: int
    start: int
    lowest: int | None
    accesses: list[BlockTransfer]
    padding: Mask | None
    written: bool
    left_out: bool


def _origin(leaf: CopyNest) -> dict[str, int]:
    return {loop.name: 0 for loop in leaf.loops}


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
