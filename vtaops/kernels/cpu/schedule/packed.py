"""CPU schedules of NCHW[x]c data, float32 and bytes: lanes are channels, without transposition."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import te

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cpu.schedule.convolution import (
    KEPT_BYTES,
    PaddedCopy,
    images_and_channels,
    schedule_copies,
)
from vtaops.kernels.cpu.schedule.dot import Products
from vtaops.kernels.cpu.schedule.rewrites import Prologue
from vtaops.kernels.cpu.schedule.tiles import (
    FIRST_CACHE,
    PARALLEL_FLOPS,
    blocks_by_columns,
    hold_in_registers,
    parallel_if,
    part_tiles,
    store_vectors,
)
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, ceil_div, round_up, window_axes
from vtaops.kernels.ops.convolution import WindowedSum
from vtaops.kernels.ops.packed import PackedConv2dOp, PackedWindowOp, pad_blocked, without_gaps

_EXACT_TAPS = 256
"""Taps up to which byte products sum exactly in float32: 2**8 times 255 times 128."""

_BAND_BYTES = 1 << 17
"""Bytes of a band of padded image rows, and of weights, that fit the cache together."""

_UNROLLED = 1 << 10
"""Multiply-adds up to which the taps of a window are unrolled."""


def schedule_packed_conv2d(
    op: PackedConv2dOp, target: CpuTarget, tile: tuple[int, int] | None = None
) -> Any:
    """Schedule an NCHW[x]c convolution; `tile` is (blocks, columns).

    Raises
    ------
    UnsupportedError
        If data are int8.
    """
    if op.dtype == "int8":
        raise UnsupportedError("packed int8 data; shift them to uint8, with a zero_point of 128")
    rows, columns = op.out_size
    products = Products.of(op.dtype, target)
    group, (steps, inner) = products.group, op.sum_channels
    blocks, width = tile or blocks_by_columns(
        columns,
        op.out_blocks,
        steps * inner // group * prod(op.window.kernel),
        products.sums // ceil_div(op.block, products.lanes),
        divide=True,
        most=products.widest,
    )
    window, strides = without_gaps(op.window)
    padding = PaddedCopy(window, rows, round_up(columns, width), by_phase=False)
    ahead = Prologue(op)
    image = ahead.tensors["data"]
    copied = op.plain or max(strides) > 1 or padding.needed(op.height, op.width)
    if copied:
        image = pad_blocked(op, image, (padding.height, padding.width), strides)
    shape = (op.batch, op.out_blocks, rows, padding.columns, op.block)
    sums = op.sums(window, image, ahead.tensors["kernel"], group > 1)
    total = te.compute(shape, sums, name="total")
    s = ahead.create_schedule(op.result(total, ahead.epilogue()))
    worth = op.flops >= PARALLEL_FLOPS
    product, stored = s.get_sblock("total"), s.get_sblock("result")
    n, c, i, j, b, ico, kh, kw, ici, *byte = s.get_loops(product)
    c, channels = s.split(c, [None, blocks])
    j, pixels = s.split(j, [None, width])
    whole = op.block % products.lanes == 0
    lanes, intrinsic = (products.lanes, products.intrinsic) if whole else (op.block, "")
    b, lane = s.split(b, [None, lanes])
    band = _band_rows(op, padding, target, copied)
    i, row = s.split(i, [None, max(band, 1)])
    outside, together = ((n, i, c), 2) if band else ((*images_and_channels(op, n, c), i), 3)
    s.reorder(*outside, row, j, ico, kh, kw, ici, pixels, channels, b, lane, *byte)
    outer = s.fuse(*outside[:together])
    _store_with(s, stored, j, columns % width == 0, target)
    parallel_if(s, outer, worth)
    if byte:
        s.unroll(ici)
    hold_in_registers(s, product, ico, lane, b, channels, pixels, intrinsic=intrinsic)
    if band:
        _copy_inside(s, outer)
    else:
        schedule_copies(s, worth)
    return ahead.attach(s)


def schedule_packed_window(op: PackedWindowOp, target: CpuTarget, width: int | None = None) -> Any:
    """Schedule windows within channels; a tile is `width` columns.

    The padded image is copied a few rows at a time.
    """
    rows, columns = op.out_size
    width = width or window_width(op, target)
    padding = PaddedCopy(op.window, rows, round_up(columns, width), by_phase=False)
    ahead = Prologue(op)
    # Byte products as floats for multiply-adds: their sums are exact below 2**24.
    as_float = op.dtype != "float32" and prod(op.window.kernel) <= _EXACT_TAPS
    sums_in = "float32" if as_float else op.accumulator
    image, copied = ahead.tensors["data"], as_float or padding.needed(op.height, op.width)
    if copied:
        size = padding.height, padding.width
        convert = (lambda value: value.astype("float32")) if as_float else (lambda value: value)
        image = pad_blocked(op, image, size, convert=convert)
    kh, kw = window_axes(op.window)

    def tap(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        pixel = image(n, c, *op.window.pixel(i, j, kh, kw), b)
        return op.combine(pixel, ahead.tensors.get("kernel"), (c, kh, kw, b), sums_in)

    shape = (op.batch, op.blocks, rows, padding.columns, op.block)
    total = te.compute(shape, tap, name="total")
    epilogue = op.bound_epilogue(ahead.factors())
    result = op.result(lambda *index: total(*index).astype(op.accumulator), epilogue)
    s = ahead.create_schedule(result)
    sums, stored = s.get_sblock("total"), s.get_sblock("result")
    n, c, i, j, b, kh, kw = s.get_loops(sums)
    height = FIRST_CACHE // (4 * op.block * padding.width)
    i, row = s.split(i, [None, _staged_rows(op, padding, height)])
    j, pixels = s.split(j, [None, width])
    s.reorder(n, c, i, row, j, kh, kw, pixels, b)
    outer = s.fuse(n, c, i)
    _store_with(s, stored, j, columns % width == 0, target)
    parallel_if(s, outer, op.flops >= PARALLEL_FLOPS)
    if width * prod(op.window.kernel) <= _UNROLLED:
        s.unroll(kw)
        s.unroll(kh)
    hold_in_registers(s, sums, kh, b, pixels)
    if copied:
        _copy_inside(s, outer)
    return ahead.attach(s)


def window_width(op: PackedWindowOp, target: CpuTarget) -> int:
    """Choose the columns of a register tile: few of them idle."""
    limit = min(target.registers // 2 // ceil_div(op.block, target.lanes), op.out_size[1])
    return min(range(limit, 0, -1), key=lambda w: ceil_div(op.out_size[1], w) * (w + 1))


def _band_rows(op: PackedConv2dOp, padding: PaddedCopy, target: CpuTarget, copied: bool) -> int:
    """Return the result rows to compute from one band of the padded image.

    0 means the whole image, copied or not: if it fits the cache, or the weights, which each band
    reads, do not, or threads would wait for the last band.
    """
    image, weights = (spec.nbytes for spec in op.inputs[:2])
    if not copied or 4 * image < KEPT_BYTES or weights > _BAND_BYTES:
        return 0
    rows = _staged_rows(op, padding, _BAND_BYTES * op.batch * op.height // image)
    return rows if op.batch * ceil_div(padding.rows, rows) >= 2 * target.cores else 0


def _staged_rows(op: WindowedSum, padding: PaddedCopy, height: int) -> int:
    """Return the result rows, in equal parts, that need at most `height` rows."""
    fitting = (height - op.window.reach(1, 1)[0]) // op.window.strides[0] + 1
    fitting = min(max(fitting, 1), padding.rows)
    return min(range(fitting, 0, -1), key=lambda r: ceil_div(padding.rows, r))


def _copy_inside(s: Any, loop: Any) -> None:
    """Copy the padded rows needed inside a loop."""
    padded = s.get_sblock("padded")
    s.compute_at(padded, loop, preserve_unit_loops=True)
    s.vectorize(s.get_loops(padded)[-1])


def _store_with(s: Any, stored: Any, loop: Any, exact: bool, target: CpuTarget) -> None:
    """Write a tile's results when its sums end, inside `loop`."""
    s.reverse_compute_at(stored, loop, preserve_unit_loops=True)
    if exact:
        store_vectors(s, stored, 2, target.lanes)
    else:
        pixel, channel = s.get_loops(stored)[-2:]
        s.unroll(pixel)
        s.vectorize(channel)
        part_tiles(s, loop)
