"""CPU schedules of pooling: down the columns first, then along the rows.

The pixels under a window are combined row by row, which uses whole vectors, then column by column:
kernel rows plus kernel columns steps per result, not their product. The lanes of a vector are

- *columns*: neighbouring results of a row. If columns have a stride, the combined rows stay in
  registers, from which LLVM picks every second (third, ...) by shuffles; nothing is sorted first,
  and an image without padding is not copied. Windows of stride one read it unaligned.
- *planes*: channels or images, if a row of results is narrower than a vector. They are interleaved
  while they are padded.

Maxima are computed on integers in the order of the floats, in which every NaN is above infinity:
one instruction each, where LLVM needs five to propagate NaN.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

from tvm import te, tirx

from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.tiles import (
    FIRST_CACHE,
    PARALLEL_FLOPS,
    cut_vector,
    part_tiles,
    share,
)
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, inside_or, largest_divisor, round_up
from vtaops.kernels.ops.reduction import PoolOp

_KEPT_VECTORS = 8
"""Maximum vectors of combined rows that stay in registers."""

_ROWS = (4, 16)
"""Minimum and maximum result rows for which a part of a large image is padded at a time."""


@dataclass(frozen=True)
class PoolTile:
    """The grouping of results.

    Attributes
    ----------
    planes : int
        Images and channels across the lanes of a vector; 1: lanes are columns.
    rows : int
        Result rows per padded part of an image; divides the total.
    """

    planes: int
    rows: int


def choose_tile(op: PoolOp, target: CpuTarget) -> PoolTile:
    """Choose the tile for an operator."""
    rows, columns = op.out_size
    planes = gcd(op.batch * op.channels, target.lanes)
    in_place = not any(op.window.padding) and _in_registers(op, target)
    if columns < target.lanes and planes >= 4 and not in_place:
        return PoolTile(planes, rows)
    part = largest_divisor(rows, _ROWS[1])
    large = 8 * op.height * op.width > FIRST_CACHE
    return PoolTile(1, part if large and part >= _ROWS[0] else rows)


def schedule_pool(op: PoolOp, target: CpuTarget, tile: PoolTile | None = None) -> Any:
    """Schedule a pooling."""
    tile = tile or choose_tile(op, target)
    kept = tile.planes == 1 and _in_registers(op, target)
    copied = not kept or any(op.window.padding)
    s = _declare(op, target, tile.planes, copied)
    n, c, *_ = s.get_loops(s.get_sblock("result"))
    block, lane = s.split(s.fuse(n, c), [None, tile.planes])
    block = share(s, block, op.flops >= PARALLEL_FLOPS, target)
    if tile.planes > 1:
        rows = _schedule_planes(s, block, lane)
    else:
        rows = _schedule_columns(s, op, tile.rows, target, kept)
    if copied:
        padded = s.get_sblock("padded")
        s.compute_at(padded, rows, preserve_unit_loops=True)
        *_, row, column, lane = s.get_loops(padded)
        if tile.planes > 1:
            s.vectorize(lane)
        elif op.kind == "max":  # otherwise LLVM does not vectorize the work fused with copying
            part_tiles(s, row, column)
    return s


def _in_registers(op: PoolOp, target: CpuTarget) -> bool:
    """Whether the combined rows under a vector of results are held in registers."""
    _, columns = op.window.reach(1, min(target.lanes, op.out_size[1]))
    return op.window.strides[1] > 1 and columns <= _KEPT_VECTORS * target.lanes


def _declare(op: PoolOp, target: CpuTarget, planes: int, copied: bool) -> Any:
    """Declare the pooling: ``padded`` if it is copied, ``down``, ``result``."""
    data, window, (rows, columns) = op.inputs[0].placeholder(), op.window, op.out_size
    height, width = window.reach(rows, columns)
    if copied and planes == 1:  # whole vectors everywhere
        _, width = window.reach(rows, round_up(columns, min(target.lanes, columns)))
        width = round_up(width, target.lanes)
    top, left, *_ = window.padding
    highest = op.kind == "max"
    combine = tirx.max if highest else operator.add
    blocks = op.batch * op.channels // planes

    def pixel(b: Expr, i: Expr, j: Expr, lane: Expr) -> Expr:
        plane = b * planes + lane
        at = (plane // op.channels, plane % op.channels, i - top, j - left)
        value = inside_or(data, at, (2, 3), op.pad_value) if copied else data[at]
        return _in_order(value) if highest else value

    image = pixel
    if copied:
        image = te.compute((blocks, height, width, planes), pixel, name="padded")

    def column(b: Expr, i: Expr, j: Expr, lane: Expr) -> Expr:
        taps = range(window.kernel[0])
        return _tree(combine, [image(b, window.pixel(i, 0, k, 0)[0], j, lane) for k in taps])

    down = te.compute((blocks, rows, width, planes), column, name="down")

    def result(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        plane = n * op.channels + c
        b, lane, taps = plane // planes, plane % planes, range(window.kernel[1])
        value = _tree(combine, [down[b, i, window.pixel(0, j, 0, k)[1], lane] for k in taps])
        return _from_order(value) if highest else value * op.weight(i, j)

    return create_schedule([data, te.compute(op.output.shape, result, name="result")])


def _schedule_planes(s: Any, block: Any, lane: Any) -> Any:
    """Schedule results whose lanes are planes; return the loop in which these are padded."""
    down = s.get_sblock("down")
    i, j = s.get_loops(s.get_sblock("result"))[-2:]
    s.reorder(i, j, lane)
    # In straight code LLVM transposes neighbouring results, and stores them together.
    s.unroll(j)
    s.vectorize(lane)
    s.compute_at(down, i, preserve_unit_loops=True)
    s.vectorize(s.get_loops(down)[-1])
    return block


def _schedule_columns(s: Any, op: PoolOp, rows: int, target: CpuTarget, kept: bool) -> Any:
    """Schedule results whose lanes are columns; return the loop in which an image is padded."""
    result, down = s.get_sblock("result"), s.get_sblock("down")
    i, j = s.get_loops(result)[-2:]
    part, _ = s.split(i, [None, rows])
    tile = cut_vector(s, j, target.lanes)
    s.compute_at(down, tile if kept else part, preserve_unit_loops=True)
    row, column, _ = s.get_loops(down)[-3:]
    if kept:
        s.set_scope(down, 0, "local")
        cut_vector(s, column, _KEPT_VECTORS * target.lanes)
    else:
        # Rows of the copy are contiguous as those of `down`: one long loop of whole vectors.
        pixels = s.fuse(row, column) if op.window.strides[0] == 1 else column
        cut_vector(s, pixels, target.lanes)
    return part


def _tree(combine: Callable[[Expr, Expr], Expr], values: list[Expr]) -> Expr:
    """Combine values in a balanced tree: expressions stay shallow."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return combine(_tree(combine, values[:half]), _tree(combine, values[half:]))


_MAGNITUDE = 0x7FFFFFFF
"""All bits of a float32 except its sign."""

_NEGATIVE_NANS = 0x7FFFFF
"""Number of integers below that of minus infinity after negative floats are inverted."""


def _in_order(value: Expr) -> Expr:
    """Map a float32 to an int32 of the same order, from minus infinity to NaN.

    Negative NaNs, which would be the smallest integers, wrap around to be the largest.
    """
    return _turned(tirx.reinterpret("int32", value)) - tirx.const(_NEGATIVE_NANS, "int32")


def _from_order(place: Expr) -> Expr:
    """Map an int32 back to its float32."""
    return tirx.reinterpret("float32", _turned(place + tirx.const(_NEGATIVE_NANS, "int32")))


def _turned(bits: Expr) -> Expr:
    """Invert the magnitude of a negative integer; its own inverse."""
    sign = tirx.shift_right(bits, tirx.const(31, "int32"))
    return tirx.bitwise_xor(bits, tirx.bitwise_and(sign, tirx.const(_MAGNITUDE, "int32")))
