"""CPU schedule of convolutions of NCHW[x]c data: the lanes are channels, nothing is transposed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import te

from vtaops.cpu.schedule.convolution import (
    PaddedCopy,
    accumulators,
    hold_in_registers,
    schedule_copies,
)
from vtaops.cpu.schedule.prologue import Prologue
from vtaops.cpu.schedule.tiles import PARALLEL_FLOPS, parallel_if, store_vectors
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, ceil_div, round_up, window_axes, zero
from vtaops.kernels.ops.convolution import PackedConv2dOp, inside_or


def tiles(op: PackedConv2dOp, target: CpuTarget) -> Iterator[tuple[int, int]]:
    """Yield the tiles to choose from, (blocks, columns)."""
    for blocks in (1, 2, 4):
        for columns in (4, 6, 7, 8, 12, 14, 16, 28):
            fits = columns <= op.out_size[1] and blocks * columns <= target.accumulators
            if fits and op.out_blocks % blocks == 0:
                yield blocks, columns


def schedule_packed_conv2d(
    op: PackedConv2dOp, target: CpuTarget, tile: tuple[int, int] | None = None
) -> Any:
    """Return the scheduled kernel of an NCHW[x]c convolution; `tile` is (blocks, columns)."""
    rows, columns = op.out_size
    vectors = ceil_div(op.block, target.lanes)
    blocks, width = tile or choose_tile(op, accumulators(target) // vectors)
    top, left, *_ = op.window.padding
    padding = PaddedCopy(op.window, rows, round_up(columns, width), by_phase=False)
    tensors = op.placeholders()
    data, kernel = tensors["data"], tensors["kernel"]
    image = data
    if padding.needed(op.height, op.width):

        def pixel(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
            return inside_or(data, (n, c, i - top, j - left, b), (2, 3), zero("float32"))

        shape = (op.batch, op.in_blocks, padding.height, padding.width, op.block)
        image = te.compute(shape, pixel, name="padded")
    outer_ic = te.reduce_axis((0, op.in_blocks), name="ico")
    inner_ic = te.reduce_axis((0, op.block), name="ici")
    kh, kw = window_axes(op.window)
    (sh, sw), (dh, dw) = op.window.strides, op.window.dilation

    def tap(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        value = image[n, outer_ic, i * sh + kh * dh, j * sw + kw * dw, inner_ic]
        return te.sum(
            value * kernel[c, outer_ic, kh, kw, inner_ic, b], axis=[outer_ic, kh, kw, inner_ic]
        )

    shape = (op.batch, op.out_blocks, rows, padding.columns, op.block)
    total = te.compute(shape, tap, name="total")
    ahead = Prologue(tensors)
    finish = ahead.epilogue(op.epilogue)
    result = te.compute(
        op.output.shape,
        lambda n, c, i, j, b: finish(total[n, c, i, j, b], c * op.block + b, n, c, i, j, b),
        name="result",
    )
    s = ahead.create_schedule(result)
    worth = op.flops >= PARALLEL_FLOPS
    product, stored = s.get_sblock("total"), s.get_sblock("result")
    n, c, i, j, b, ico, kh, kw, ici = s.get_loops(product)
    c, channels = s.split(c, [None, blocks])
    j, pixels = s.split(j, [None, width])
    s.reorder(n, c, i, j, ico, kh, kw, ici, channels, pixels, b)
    outer = s.fuse(n, c, i)
    s.reverse_compute_at(stored, j, preserve_unit_loops=True)
    parallel_if(s, outer, worth)
    if columns % width == 0:
        store_vectors(s, stored, 2, target.lanes)
    else:
        s.vectorize(s.get_loops(stored)[-1])
    hold_in_registers(s, (b, pixels, channels), taps=kw if op.window.kernel[1] <= 7 else None)
    start = s.decompose_reduction(product, ico)
    hold_in_registers(s, tuple(reversed(s.get_loops(start)[-3:])))
    schedule_copies(s, worth)
    return ahead.attach(s)


def choose_tile(op: PackedConv2dOp, limit: int) -> tuple[int, int]:
    """Return (blocks, columns): at most `limit` accumulators, few idle ones, loads shared."""
    columns = op.out_size[1]
    candidates = [
        (blocks, width)
        for blocks in (1, 2, 4)
        if op.out_blocks % blocks == 0
        for width in range(1, limit // blocks + 1)
        if width <= columns
    ]

    def cost(tile: tuple[int, int]) -> float:
        blocks, width = tile
        tiles = ceil_div(columns, width) * (op.out_blocks // blocks)
        return tiles * (max(blocks * width / 2, 4.0, (blocks + width) / 2 + 0.5) + 0.5)

    return min(candidates, key=cost)
