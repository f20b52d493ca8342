"""BlockedShape: an operator in units of tiles, and which tilings of it fit the scratchpads.

Owns the arithmetic that relates a `Tiling` to scratchpad space, and the default tiling: the best of
all tilings by a simple bound on cycles. Knows nothing of TVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from vtaops.config import HardwareConfig, Scratchpad
from vtaops.errors import ScheduleError
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.schedule.tiling import Tiling


@dataclass(frozen=True)
class BlockedShape:
    """Extents of an operator that accumulates tile products, counted in tiles.

    Attributes
    ----------
    batch : int
        Independent images.
    oc, ic : int
        Output and input channel blocks.
    height, width : int
        Output pixels (rows of the result for a matrix product, width 1).
    taps : int
        Weight tiles for each pair of channel blocks (kernel height times width).
    row_step, row_extent, column_step, column_extent : int
        ``rows`` output rows read ``(rows - 1) * row_step + row_extent`` input rows; same for
        columns.
    alu_passes : int
        Vector ALU passes over the accumulators.
    bias : bool
        Whether each channel block needs one accumulator for its bias.
    """

    batch: int
    oc: int
    ic: int
    height: int
    width: int
    taps: int
    row_step: int
    row_extent: int
    column_step: int
    column_extent: int
    alu_passes: int
    bias: bool

    def footprint(self, tiling: Tiling, config: HardwareConfig) -> dict[str, int]:
        """Return how many elements of each scratchpad `tiling` occupies."""
        oc, ic = tiling.oc // config.block_out, tiling.ic // config.block_in
        rows = (tiling.h - 1) * self.row_step + self.row_extent
        columns = (tiling.w - 1) * self.column_step + self.column_extent
        return {
            "inp": tiling.threads * tiling.inp_tiles * ic * rows * columns,
            "wgt": tiling.threads * tiling.wgt_tiles * oc * ic * self.taps,
            "acc": tiling.threads * oc * (tiling.acc_tiles * tiling.h * tiling.w + self.bias),
        }

    def divided_by(self, tiling: Tiling, config: HardwareConfig) -> bool:
        """Whether all tiles have full size and all virtual threads the same number of them."""
        return not (
            self.oc % (tiling.oc // config.block_out * tiling.oc_threads)
            or self.ic % (tiling.ic // config.block_in)
            or self.height % (tiling.h * tiling.h_threads)
            or self.width % tiling.w
        )


@singledispatch
def blocked_shape(op: Operator, config: HardwareConfig) -> BlockedShape:
    """Return the extents of `op` in tiles of `config`."""
    raise ScheduleError(f"there is no VTA schedule for {type(op).__name__}")


@blocked_shape.register
def _(op: Conv2d, config: HardwareConfig) -> BlockedShape:
    (kh, kw), (sh, sw) = op.kernel_size, op.stride
    extent_h, extent_w = op.kernel_extent
    if op.gathers_rows:
        sh, extent_h = kh, kh
    return BlockedShape(
        batch=_blocks(op.batch, config.batch),
        oc=_blocks(op.out_channels, config.block_out),
        ic=_blocks(op.in_channels, config.block_in),
        height=op.out_size[0],
        width=op.out_size[1],
        taps=kh * kw,
        row_step=sh,
        row_extent=extent_h,
        column_step=sw,
        column_extent=extent_w,
        alu_passes=len(op.stages),
        bias=op.bias,
    )


@blocked_shape.register
def _(op: Gemm, config: HardwareConfig) -> BlockedShape:
    return BlockedShape(
        batch=1,
        oc=_blocks(op.n, config.block_out),
        ic=_blocks(op.k, config.block_in),
        height=_blocks(op.m, config.batch),
        width=1,
        taps=1,
        row_step=1,
        row_extent=1,
        column_step=1,
        column_extent=1,
        alu_passes=len(op.stages),
        bias=op.bias,
    )


def check_tiling(op: Operator, config: HardwareConfig, tiling: Tiling) -> None:
    """Refuse a tiling that does not suit the operator or overflows a scratchpad.

    Raises
    ------
    ScheduleError
        Naming the parameter or the scratchpad, by how much it overflows, and a tiling that fits.
    """
    shape = blocked_shape(op, config)
    for name, value, block, blocks in (
        ("oc", tiling.oc, config.block_out, shape.oc),
        ("ic", tiling.ic, config.block_in, shape.ic),
        ("h", tiling.h, 1, shape.height),
        ("w", tiling.w, 1, shape.width),
    ):
        if value % block or value > block * blocks:
            rule = f"a multiple of {block}, " if block > 1 else ""
            raise ScheduleError(
                f"tiling {name} is {value}; for this operator it must be {rule}at most "
                f"{block * blocks}"
            )
    for name, threads, tiles in (
        ("oc_threads", tiling.oc_threads, -(-shape.oc * config.block_out // tiling.oc)),
        ("h_threads", tiling.h_threads, -(-shape.height // tiling.h)),
    ):
        if threads > tiles:
            raise ScheduleError(
                f"tiling {name} is {threads}, but there are only {tiles} tiles along this axis; "
                f"use fewer threads or smaller tiles"
            )
    for memory, used in shape.footprint(tiling, config).items():
        scratchpad: Scratchpad = getattr(config, memory)
        if used > scratchpad.depth:
            raise ScheduleError(
                f"{tiling} needs {used} elements of the {memory} scratchpad, which has "
                f"{scratchpad.depth}: {used - scratchpad.depth} too many; "
                f"{default_tiling(op, config)} fits"
            )


def default_tiling(op: Operator, config: HardwareConfig) -> Tiling:
    """Return the tiling with the smallest bound on cycles among those that fit.

    The bound takes the longer of computation and transfers when virtual threads overlap them, their
    sum otherwise, plus the transfers that nothing can hide (first loads, last store).

    Raises
    ------
    ScheduleError
        If even the smallest tile (one block, one pixel) does not fit.
    """
    shape = blocked_shape(op, config)
    oc, ic, h, w, threads = _candidates(shape)
    rows = (h - 1) * shape.row_step + shape.row_extent
    columns = (w - 1) * shape.column_step + shape.column_extent
    contexts = np.maximum(threads, 1)  # threads: 1 none, 2 along channels, -2 along rows
    contexts = np.where(threads < 0, -threads, contexts)
    fits = (
        (contexts * ic * rows * columns <= config.inp.depth)
        & (contexts * oc * ic * shape.taps <= config.wgt.depth)
        & (contexts * oc * (h * w + shape.bias) <= config.acc.depth)
        & ((threads != 2) | (oc < shape.oc))  # each thread has a tile of its own
        & ((threads != -2) | (h < shape.height))
    )
    if not fits.any():
        smallest = Tiling(config.block_out, config.block_in)
        needs = shape.footprint(smallest, config)
        raise ScheduleError(
            f"no tile of {op} fits: one block and one pixel need {needs} elements, the "
            f"scratchpads have inp {config.inp.depth}, wgt {config.wgt.depth}, "
            f"acc {config.acc.depth}"
        )
    oc, ic, h, w, rows, columns, threads, contexts = (
        a[fits] for a in (oc, ic, h, w, rows, columns, threads, contexts)
    )
    cycles = _cycle_bound(shape, config, oc, ic, h, w, rows, columns, contexts)
    best = int(np.argmin(cycles))
    return Tiling(
        oc=int(oc[best]) * config.block_out,
        ic=int(ic[best]) * config.block_in,
        h=int(h[best]),
        w=int(w[best]),
        oc_threads=2 if threads[best] == 2 else 1,
        h_threads=2 if threads[best] == -2 else 1,
    )


Grid = np.ndarray


def _candidates(shape: BlockedShape) -> tuple[Grid, ...]:
    """All combinations of tile extents (even divisions, rounded up) and thread axes, flattened."""
    grids = np.meshgrid(
        _divisions(shape.oc),
        _divisions(shape.ic),
        _divisions(shape.height),
        _divisions(shape.width),
        [1, 2, -2],
        indexing="ij",
    )
    return tuple(grid.ravel() for grid in grids)


def _cycle_bound(
    shape: BlockedShape,
    config: HardwareConfig,
    oc: Grid,
    ic: Grid,
    h: Grid,
    w: Grid,
    rows: Grid,
    columns: Grid,
    contexts: Grid,
) -> Grid:
    """Bound on the cycles of each candidate; instruction overheads are rough constants."""
    bus = config.board.bus_bits // 8
    oc_tiles = -(-shape.oc // oc)
    pixel_tiles = shape.batch * -(-shape.height // h) * -(-shape.width // w)
    steps = oc_tiles * pixel_tiles * -(-shape.ic // ic)
    outputs = shape.batch * shape.oc * shape.height * shape.width

    inp_bytes = oc_tiles * pixel_tiles * shape.ic * rows * columns * config.inp.element_bytes
    wgt_bytes = pixel_tiles * shape.oc * shape.ic * shape.taps * config.wgt.element_bytes
    out_bytes = outputs * config.out.element_bytes
    requests = steps * (1 + ic) + oc_tiles * pixel_tiles
    transfer = (inp_bytes + wgt_bytes + out_bytes) / bus + 8 * requests

    compute = outputs * (shape.ic * shape.taps + 1 + shape.alu_passes)
    compute = compute + 16 * steps + 16 * oc_tiles * pixel_tiles * (1 + shape.alu_passes)

    first_load = ic * (rows * columns * config.inp.element_bytes)
    first_load = first_load + oc * ic * shape.taps * config.wgt.element_bytes
    last_store = oc * h * w * config.out.element_bytes
    exposed = (first_load + last_store) / bus
    overlapped = np.where(contexts > 1, np.maximum(compute, transfer), compute + transfer)
    return np.asarray(overlapped + exposed)


def _blocks(extent: int, block: int) -> int:
    return -(-extent // block)


def _divisions(extent: int) -> list[int]:
    """Sizes of the pieces when `extent` is cut into 1, 2, 3, ... pieces as evenly as possible."""
    return sorted({-(-extent // pieces) for pieces in range(1, extent + 1)})
