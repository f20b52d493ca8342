"""CPU schedule of 1x1 convolutions: a matrix product of the kernel and the image.

The image is cut into *panels* of several register tiles. The channels of a panel are copied into a
dense buffer that stays in the second-level cache, tile by tile; then all output channels are
computed from it, some at a time in registers. Without the copy every block of output channels would
reread the whole image, whose channels are so far apart that they share few cache sets. The longer a
panel, the longer the contiguous stretches of image and result that are read and written.

For very few output channels the image is read once, in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te

from vtaops.kernels.cpu.schedule.rewrites import Prologue, overlapping, placed
from vtaops.kernels.cpu.schedule.tiles import (
    PARALLEL_FLOPS,
    STEPS,
    STRETCH,
    add_to_stretch,
    hold_in_registers,
    parallel_if,
    rows_of_tile,
    split_vector,
    stretch_of,
    write_back,
)
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, ceil_div, largest_divisor, round_up
from vtaops.kernels.ops.convolution import Conv2dOp

_NARROW = 1.4
"""Relative cost of a one-vector tile: one load of the kernel per multiply-add."""

_PANEL_BYTES = (1 << 15, 1 << 17)
"""Bytes of a panel, and of one with few tiles."""

_PANEL_TILES = 4
"""Tiles up to which a panel has few."""

_FEW = 2
"""Output channels up to which the image is read once, in place."""


@dataclass(frozen=True)
class PointwiseTile:
    """Register tile of a 1x1 convolution: output channels by vectors of pixels."""

    channels: int
    vectors: int


def suits(op: Conv2dOp, target: CpuTarget) -> bool:
    """Whether an operator is a 1x1 convolution with one-row results of at least a vector."""
    window = op.window
    plain = (*window.kernel, *window.padding) == (1, 1, 0, 0, 0, 0)
    rows, columns = op.output.shape[2:]
    return plain and op.groups == rows == 1 and columns >= target.lanes


def pixels_of(op: Conv2dOp) -> int:
    """Return the number of results per channel."""
    return op.output.shape[3]


def choose_tile(op: Conv2dOp, target: CpuTarget) -> PointwiseTile:
    """Choose the tile with the least cost for the busiest thread."""
    threads = target.cores if op.flops >= PARALLEL_FLOPS else 1

    def cost(vectors: int) -> float:
        width = vectors * target.lanes
        tiles = op.batch * ceil_div(pixels_of(op), width)
        return ceil_div(tiles, threads) * width * (_NARROW if vectors == 1 else 1.0)

    vectors = 1 if target.narrow_tiles else min((2, 4, 1), key=cost)
    return PointwiseTile(rows_of_tile(op.out_channels, vectors, target), vectors)


def schedule_pointwise(op: Conv2dOp, target: CpuTarget, tile: PointwiseTile | None = None) -> Any:
    """Schedule a float32 convolution that `suits`."""
    pixels = pixels_of(op)
    if tile is None and op.out_channels <= _FEW and op.window.strides == (1, 1):
        stretch = stretch_of(pixels)
        if stretch <= STRETCH:
            return _schedule_few(op, stretch)
    tile = tile or choose_tile(op, target)
    width = tile.vectors * target.lanes
    count, channels = ceil_div(pixels, width), round_up(op.out_channels, tile.channels)
    worth = op.flops >= PARALLEL_FLOPS
    # Four panels per thread, to balance the load.
    near, far = (size // (4 * width * op.in_channels) for size in _PANEL_BYTES)
    most = min(max(near, min(far, _PANEL_TILES)), op.batch * count // (4 * target.cores))
    panel = largest_divisor(count, max(most, 1))
    ahead = Prologue(op)
    tensors = ahead.factors()
    data, kernel = tensors["data"], tensors["kernel"]

    (rows, columns), (down, across) = op.out_size, op.window.strides
    strided = (down, across) != (1, 1)
    if strided:  # a separate pass: long loops that LLVM compiles to shuffles
        full, thinned = data, (op.batch, op.in_channels, 1, pixels)
        data = te.compute(
            thinned,
            lambda n, c, i, q: full[n, c, q // columns * down, q % columns * across],
            name="thinned",
        )

    def places(n: Expr, o: Expr, i: Expr, q: Expr) -> tuple[Expr, ...]:
        channel = placed(o, op.out_channels, tile.channels)
        return n, channel, i, placed(q, pixels, target.lanes, width)

    def pixel(n: Expr, t: Expr, c: Expr, p: Expr) -> Expr:
        return data[n, c, 0, places(n, c, 0, t * width + p)[-1]]

    dense = te.compute((op.batch, count, op.in_channels, width), pixel, name="dense")
    c = te.reduce_axis((0, op.in_channels), name="c")

    def product(n: Expr, t: Expr, o: Expr, p: Expr) -> Expr:
        return te.sum(dense[n, t, c, p] * kernel[places(n, o, 0, p)[1], c, 0, 0], axis=c)

    total = te.compute((op.batch, count, channels, width), product, name="total")

    def sums(n: Expr, o: Expr, i: Expr, q: Expr) -> Expr:
        return total[n, q // width, o, q % width]

    tiled = (op.batch, channels, 1, count * width)
    s = ahead.create_schedule(op.result(sums, op.epilogue.bind(tensors), tiled, places))
    product_block, copy = s.get_sblock("total"), s.get_sblock("dense")
    n, t, o, p, c = s.get_loops(product_block)
    o, channel = s.split(o, [None, tile.channels])
    vector, lane = s.split(p, [None, target.lanes])
    t, inside = s.split(t, [None, panel])
    s.reorder(n, t, o, inside, c, channel, vector, lane)
    outer = s.fuse(n, t)
    parallel_if(s, outer, worth)
    if strided:
        *planes, _, q = s.get_loops(s.get_sblock("thinned"))
        s.split(q, [rows, columns])
        parallel_if(s, s.fuse(*planes), worth)
    s.compute_at(copy, outer, preserve_unit_loops=True)
    tile_loop, channel_loop, pixel_loop = s.get_loops(copy)[-3:]
    s.reorder(channel_loop, tile_loop)
    s.unroll(split_vector(s, pixel_loop, target.lanes)[0])
    write_back(s, product_block, s.get_sblock("result"), inside, target.lanes, True, dims=3)
    hold_in_registers(s, product_block, c, lane, vector, channel)
    return overlapping(ahead.attach(s), "result", places, op.output.shape)


def _schedule_few(op: Conv2dOp, stretch: int) -> Any:
    """Schedule few output channels, which need no copy of the image.

    Some channels at a time are added to a stretch of the results, which divides the pixels. LLVM
    vectorizes it.
    """
    steps = largest_divisor(op.in_channels, STEPS)
    ahead = Prologue(op)
    tensors = ahead.factors()
    data, kernel = tensors["data"], tensors["kernel"]
    outer = te.reduce_axis((0, op.in_channels // steps), name="outer")
    step = te.reduce_axis((0, steps), name="step")

    def product(n: Expr, o: Expr, q: Expr) -> Expr:
        c = outer * steps + step
        return te.sum(data[n, c, 0, q] * kernel[o, c, 0, 0], axis=[outer, step])

    total = te.compute((op.batch, op.out_channels, pixels_of(op)), product, name="total")
    epilogue = op.epilogue.bind(tensors)
    result = te.compute(
        op.output.shape, lambda n, o, i, q: epilogue(total[n, o, q], o, n, o, i, q), name="result"
    )
    s = ahead.create_schedule(result)
    n, o, i, q = s.get_loops(s.get_sblock("result"))
    q, column = s.split(q, [None, stretch])
    s.reorder(n, i, q, o, column)
    place = s.fuse(n, i, q)
    parallel_if(s, place, op.flops >= PARALLEL_FLOPS)
    add_to_stretch(s, s.get_sblock("total"), place, dims=4)
    return ahead.attach(s)
