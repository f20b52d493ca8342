"""CPU schedules of depthwise convolution: windows that stay within one channel.

Each channel is padded into a copy that stays in the first-level cache, its columns sorted by phase
if strided; then tiles of a few rows by one vector of columns are summed in registers, tap by tap
down a column of the window, so that every loaded row serves several results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te

from vtaops.kernels.cpu.schedule.convolution import PaddedCopy, stage_phases
from vtaops.kernels.cpu.schedule.rewrites import Prologue
from vtaops.kernels.cpu.schedule.tiles import (
    FIRST_CACHE,
    PARALLEL_FLOPS,
    hold_in_registers,
    parallel_if,
    write_cut,
)
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, ceil_div, round_up, window_axes, zero
from vtaops.kernels.ops.convolution import DepthwiseOp

_UNROLLED_TAPS = 16
"""Rows of taps that are unrolled; more remain a loop, to limit compile time."""


@dataclass(frozen=True)
class WindowTile:
    """Results held in registers: `rows` by `columns` of one channel."""

    rows: int
    columns: int


def choose_tile(op: DepthwiseOp, target: CpuTarget) -> WindowTile:
    """Choose the tile for an operator: the sums that hide a multiply-add's latency.

    Eight of them fill 16 registers, with the pixels of as many rows and a weight. Strided windows
    share fewer pixel rows.
    """
    rows = op.out_size[0]
    if op.window.strides[0] == 1:
        return WindowTile(min(8, rows), target.lanes)
    return WindowTile(ceil_div(rows, ceil_div(rows, 7)), target.lanes)


def schedule_depthwise(op: DepthwiseOp, target: CpuTarget, tile: WindowTile | None = None) -> Any:
    """Schedule a depthwise convolution.

    A fused scale is applied to the taps, which serve a whole channel, instead of the results: sums
    are short, so that another multiplication per result would be noticeable.
    """
    tile = tile or choose_tile(op, target)
    ahead = Prologue(op)
    tensors = ahead.factors()
    scaled = op.epilogue.scales
    (rows, columns), by_phase = op.out_size, op.window.strides[1] > 1
    whole = round_up(rows, tile.rows), round_up(columns, tile.columns)
    padding = PaddedCopy(op.window, *whole, by_phase)
    image = padding.declare(tensors["data"], zero(op.dtype))
    kh, kw = window_axes(op.window)

    def tap(n: Expr, c: Expr, q: Expr, i: Expr, j: Expr) -> Expr:
        pixel = padding.read(image, n, c, (i, j, kh, kw)).astype(op.accumulator)
        weight = tensors["kernel"][c, q, kh, kw].astype(op.accumulator)
        if scaled:
            weight = weight * tensors["scale"][c * op.multiplier + q]
        return te.sum(pixel * weight, axis=[kh, kw])

    shape = (op.batch, op.channels, op.multiplier, padding.rows, padding.columns)
    total = te.compute(shape, tap, name="total")
    epilogue = op.epilogue.bind(tensors, op.accumulator, scaled=scaled)

    def sums(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        return total[n, c // op.multiplier, c % op.multiplier, i, j]

    s = ahead.create_schedule(op.result(sums, epilogue))
    _schedule_window(s, op, tile, target)
    return ahead.attach(s)


def _schedule_window(s: Any, op: DepthwiseOp, tile: WindowTile, target: CpuTarget) -> None:
    """Tile the block ``total``, whose third axis is a channel's results: several or one."""
    total, result = s.get_sblock("total"), s.get_sblock("result")
    n, c, q, i, j, kh, kw = s.get_loops(total)
    channel = s.fuse(n, c)
    i, row = s.split(i, [None, tile.rows])
    j, vector, lane = s.split(j, [None, tile.columns // target.lanes, target.lanes])
    # Down the columns of taps a row of pixels serves all rows of the tile. The columns stay a loop:
    # in straight code LLVM sums up the last, narrower tile row by row, from the stack.
    s.reorder(q, i, j, kw, kh, row, vector, lane)
    write_cut(s, result, target.lanes, i, j)
    parallel_if(s, channel, op.flops >= PARALLEL_FLOPS)
    if op.window.kernel[0] <= _UNROLLED_TAPS:
        s.unroll(kh)
    hold_in_registers(s, total, kw, lane, vector, row)
    at = i if _by_rows(op, tile) and int(s.get(q).extent) == 1 else channel
    if op.window.strides[1] > 1:
        s.compute_at(s.get_sblock("phases"), at, preserve_unit_loops=True)
        stage_phases(s, at)
    else:
        s.compute_at(s.get_sblock("padded"), at)


def _by_rows(op: DepthwiseOp, tile: WindowTile) -> bool:
    """Whether a channel is copied a few rows at a time, since its copies exceed the cache.

    Rows under two tiles are copied twice: they must be few.
    """
    copied = op.window.reach(tile.rows, 1)[0]
    large = 8 * op.height * op.width > FIRST_CACHE
    return large and copied <= 2 * tile.rows * op.window.strides[0]
