"""CPU schedules of 2-D convolutions, float32 and int8.

Two variants for NCHW data, both with a tile of results in vector registers over the whole sum:

- *column lanes*: the lanes of a vector are neighbouring columns of one row, as in memory. For
  strides the staged padding also sorts the columns by phase, so that loads stay contiguous.
- *channel lanes*: the lanes are output channels; the kernel is packed by channel and the tile is
  transposed on write-back. For long sums, for narrow images, where column lanes would idle, and for
  bytes, which are multiplied four channels at a time.

Padding is a separate stage: conditions in the inner loop would prevent vectorization. Tails of
columns and channels are padded, and cropped on write-back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import te, tirx

from vtaops.kernels.build import block_names
from vtaops.kernels.cpu.schedule.dot import Products, unshifted, unsigned
from vtaops.kernels.cpu.schedule.rewrites import Prologue, Vectors
from vtaops.kernels.cpu.schedule.tiles import (
    FIRST_CACHE,
    HIDING,
    PARALLEL_FLOPS,
    blocks_by_columns,
    hold_in_registers,
    parallel_if,
    rows_of_tile,
    store_vectors,
    write_back,
    write_cut,
)
from vtaops.kernels.cpu.schedule.transpose import transpose_squares
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import (
    Expr,
    Tensor,
    Window,
    ceil_div,
    inside_or,
    largest_divisor,
    round_up,
    window_axes,
    zero,
)
from vtaops.kernels.ops.convolution import Conv2dOp, WindowedSum

_SUMS = (64, 200)
"""Minimum products of a sum that is not short, and of a long sum."""

_COLUMN_GAIN = (0.8, 0.9, 1.1)
"""Ratio of busy lanes, column to channel lanes, from which column lanes are used.

For short sums, for which the transposition of channel lanes costs relatively more, for others, and
for long ones (with 16 registers; with 32 as for the others).
"""

_STRIDED = 0.2
"""Added to it if sums are not short and columns have a stride, which sorts them by phase."""

KEPT_BYTES = 1 << 21
"""Effective size of the second-level cache, in bytes."""

_NARROW = 1.15
"""Relative cost of a one-vector tile: one load of a weight or a pixel per multiply-add."""

_WIDE = 1.03
"""Relative cost of a three-vector tile: more pixels, fewer channels."""

_WAYS = 8
"""Output channels whose weights are packed at a time: if they map to one cache set, it holds that
many lines."""

_WOVEN = 4
"""Maximum planes that LLVM interleaves by shuffles; with more, pixels are gathered."""


@dataclass(frozen=True)
class ConvTile:
    """Register tile of a convolution.

    Attributes
    ----------
    lanes : str
        "columns" or "channels": the meaning of a vector's lanes.
    channels, columns : int
        Results held in registers.
    """

    lanes: str
    channels: int
    columns: int


def choose_tile(op: Conv2dOp, target: CpuTarget) -> ConvTile:
    """Choose the tile for an operator."""
    op, _ = without_idle_taps(op)
    products = Products.of(op.dtype, target)
    if products.group > 1:
        return _channel_tile(op, products)
    by_column = _column_tile(op, target)
    if op.group_out < target.lanes or (op.groups > 1 and op.group_out % target.lanes):
        return by_column
    by_channel = _channel_tile(op, products)
    inner = min(op.group_in, target.lanes)
    # Idle lanes are those at the ends of tiles, and input channels at the end of a block.
    gain = _busy(op, by_column) / _busy(op, by_channel) * round_up(op.group_in, inner) / op.group_in
    if not target.narrow_tiles and by_channel.channels == target.lanes:
        gain *= _NARROW
    return by_column if gain >= _needed_gain(op, target) else by_channel


def _needed_gain(op: Conv2dOp, target: CpuTarget) -> float:
    """Return how much busier a column's lanes must be for its tile to be the faster one."""
    steps = op.group_in * prod(op.window.kernel)
    length = sum(steps >= least for least in _SUMS[: 2 if target.registers == 16 else 1])
    strided = length > 0 and op.window.strides[1] > 1 and not target.narrow_tiles
    return _COLUMN_GAIN[length] + (_STRIDED if strided else 0)


def _busy(op: Conv2dOp, tile: ConvTile) -> float:
    """Return the useful fraction of the computed results."""
    padded = round_up(op.out_size[1], tile.columns) * round_up(op.group_out, tile.channels)
    return op.out_size[1] * op.group_out / padded


def _column_tile(op: Conv2dOp, target: CpuTarget) -> ConvTile:
    lanes, columns = target.lanes, op.out_size[1]
    more = {2: 1.0, 3: _WIDE, 4: 1.0, 1: _NARROW}

    def channels(vectors: int) -> int:
        most = rows_of_tile(op.group_out, vectors, target)
        return largest_divisor(op.group_out, most) if op.groups > 1 else most

    def cost(vectors: int) -> tuple[float, int]:
        computed = round_up(columns, vectors * lanes)
        return computed * max(more[vectors], HIDING / (vectors * channels(vectors))), computed

    vectors = 1 if target.narrow_tiles else min(more, key=cost)
    return ConvTile("columns", channels(vectors), vectors * lanes)


def _channel_tile(op: Conv2dOp, products: Products) -> ConvTile:
    blocks, of_bytes = ceil_div(op.group_out, products.lanes), products.group > 1
    steps = ceil_div(op.group_in, products.group) * prod(op.window.kernel)
    divide = op.groups > 1 and not of_bytes  # no tile spans two groups
    vectors, width = blocks_by_columns(
        op.out_size[1], blocks, steps, products.sums, divide, products.widest
    )
    return ConvTile("channels", vectors * products.lanes, width)


@dataclass(frozen=True)
class PaddedCopy:
    """The staged, padded copy of the data for a convolution or pooling.

    Attributes
    ----------
    window : Window
        The sliding window.
    rows, columns : int
        Computed results, including tails.
    by_phase : bool
        Whether columns of equal remainder modulo the stride are contiguous.
    """

    window: Window
    rows: int
    columns: int
    by_phase: bool

    @property
    def phases(self) -> int:
        """Number of separately stored column phases."""
        return self.window.strides[1] if self.by_phase else 1

    @property
    def height(self) -> int:
        """Rows of the copy."""
        return self.window.reach(self.rows, self.columns)[0]

    @property
    def width(self) -> int:
        """Columns of one phase of the copy."""
        return ceil_div(self.window.reach(self.rows, self.columns)[1], self.phases)

    def needed(self, height: int, width: int) -> bool:
        """Whether the data cannot be read in place."""
        same = self.height <= height and self.width <= width
        return any(self.window.padding) or self.phases > 1 or not same

    def declare(self, data: Tensor, value: Expr) -> Tensor:
        """Declare the copy, (batch, channels, rows, columns) of NCHW data, ``padded``.

        With phases a stage ``phases`` follows: (batch, channels, phase, rows, columns). It is
        separate because a copy with both conditions and strides is not vectorized.
        """
        top, left, *_ = self.window.padding
        batch, channels, *_ = (int(extent) for extent in data.shape)

        def pixel(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            return inside_or(data, (n, c, i - top, j - left), (2, 3), value)

        shape = (batch, channels, self.height, self.width * self.phases)
        padded = te.compute(shape, pixel, name="padded")
        if self.phases == 1:
            return padded
        return te.compute(
            (batch, channels, self.phases, self.height, self.width),
            lambda n, c, phase, i, j: padded[n, c, i, j * self.phases + phase],
            name="phases",
        )

    def read(self, image: Tensor, n: Expr, c: Expr, at: tuple[Expr, ...]) -> Expr:
        """Return the pixel under tap (kh, kw) of the window at result (row, column).

        `at` is (row, column, kh, kw); `image` is the copy or, if it is not needed, the data.
        """
        row, column, kh, kw = at
        i, j = self.window.pixel(row, column, kh, kw)
        if self.phases == 1:
            return image[n, c, i, j]
        offset = kw * self.window.dilation[1]
        return image[n, c, offset % self.phases, i, column + offset // self.phases]


def schedule_conv2d(op: Conv2dOp, target: CpuTarget, tile: ConvTile | None = None) -> Any:
    """Schedule an NCHW convolution."""
    tile, ahead = tile or choose_tile(op, target), Prologue(op)
    met, first = without_idle_taps(op)
    if tile.lanes == "columns":
        return _schedule_column_lanes(met, target, tile, ahead, first)
    return _schedule_channel_lanes(met, target, tile, ahead, first)


def without_idle_taps(op: Conv2dOp) -> tuple[Conv2dOp, tuple[int, int]]:
    """Return the operator without the edges of its kernel that only meet padding.

    The pair is the number of kernel rows and columns cropped at the top and left.
    """
    (rows, columns), (height, width) = op.out_size, (op.height, op.width)
    down, across = _met_taps(op.window, 0, height, rows), _met_taps(op.window, 1, width, columns)
    kernel, first, before, behind = zip(down, across, strict=True)
    return replace(op, window=replace(op.window, kernel=kernel, padding=(*before, *behind))), first


def _met_taps(window: Window, axis: int, extent: int, results: int) -> tuple[int, int, int, int]:
    """Return the taps along an axis that meet data, the first of them, and their padding."""
    (above, below), gap = window.padding[axis::2], window.dilation[axis]
    taps, last = window.kernel[axis], (results - 1) * window.strides[axis]
    before = max(min(ceil_div(above - last, gap), above // gap, taps - 1), 0)
    behind = min(taps - ceil_div(above + extent, gap), below // gap, taps - 1 - before)
    behind = max(behind, 0)
    return taps - before - behind, before, above - before * gap, below - behind * gap


def _schedule_column_lanes(
    op: Conv2dOp, target: CpuTarget, tile: ConvTile, ahead: Prologue, first: tuple[int, int]
) -> Any:
    columns, block = op.out_size[1], tile.channels
    s = ahead.create_schedule(_declare(op, tile, ahead, first))
    worth = op.flops >= PARALLEL_FLOPS
    product, result = s.get_sblock("total"), s.get_sblock("result")
    exact = columns % tile.columns == op.group_out % block == 0
    n, c, i, j, ic, kh, kw = s.get_loops(product)
    c, channels = s.split(c, [None, block])
    j, vector, lane = s.split(j, [None, tile.columns // target.lanes, target.lanes])
    pixels = op.in_channels * prod(op.window.reach(1, tile.columns))
    # The pixels under a tile stay in the first-level cache for all channels, or the weights do.
    outside, inside = ((n, i), (j, c)) if 4 * pixels <= FIRST_CACHE else ((n, c, i), (j,))
    s.reorder(*outside, *inside, ic, kh, kw, channels, vector, lane)
    if exact or op.batch * op.out_size[0] < 2 * target.cores:  # threads share more than rows
        outer = s.fuse(*outside, *inside[:-1])
        write_back(s, product, result, inside[-1], target.lanes, exact, dims=3)
    else:
        outer = s.fuse(*outside)
        write_cut(s, result, target.lanes, *inside, dims=3)
    parallel_if(s, outer, worth)
    if op.window.kernel[1] <= 7:
        s.unroll(kw)
    hold_in_registers(s, product, ic, lane, vector, channels)
    schedule_copies(s, worth)
    return ahead.attach(s)


def _schedule_channel_lanes(
    op: Conv2dOp, target: CpuTarget, tile: ConvTile, ahead: Prologue, first: tuple[int, int]
) -> Any:
    products, worth = Products.of(op.dtype, target), op.flops >= PARALLEL_FLOPS
    of_bytes, block = products.group > 1, tile.channels
    s = ahead.create_schedule(_declare_channel_lanes(op, target, tile, ahead, first))
    product = s.get_sblock("total")
    # The tile leaves the registers in whole vectors; only this copy of it is transposed.
    copy = s.cache_write(product, 0, "global")
    n, i, j, c, ico, kh, kw, ici = s.get_loops(product)
    c, vector, lane = s.split(c, [None, block // products.lanes, products.lanes])
    j, pixels = s.split(j, [None, tile.columns])
    outside = images_and_channels(op, n, c)
    sum_inside = (pixels, vector, lane, ici) if of_bytes else (ici, pixels, vector, lane)
    # LLVM keeps pixels shared by two taps of a row in registers. That pays if they are split up
    # first; otherwise sums are spilled for it.
    whole = of_bytes and target.dot_instruction != "pmaddwd"
    s.reorder(*outside, i, j, ico, *((kw, kh) if whole else (kh, kw)), *sum_inside)
    # The weights of a block are packed just before their use, if each thread has a block.
    near = op.batch == 1 and op.groups * ceil_div(op.group_out, block) >= target.cores
    outer = s.fuse(*outside) if near else s.fuse(*outside, i)
    s.reverse_compute_at(copy, j, preserve_unit_loops=True)
    store_vectors(s, copy, 2, products.lanes)
    if not _ragged(op, tile):  # otherwise a separate pass crops the padded channels of the groups
        exact = op.out_size[1] % tile.columns == 0 == op.group_out % block
        _transpose_tiles(s, j, exact, of_bytes)
    parallel_if(s, outer, worth)
    hold_in_registers(s, product, ico, lane, vector, pixels, intrinsic=products.intrinsic)
    weave(s, worth, target.lanes)
    if near:
        s.compute_at(s.get_sblock("pack_kernel"), outer, preserve_unit_loops=True)
    _pack_in_parts(s, worth and not near, products)
    return ahead.attach(s)


def _declare_channel_lanes(
    op: Conv2dOp, target: CpuTarget, tile: ConvTile, ahead: Prologue, first: tuple[int, int]
) -> Tensor:
    """Declare the convolution in whole tiles of channels, ``total`` and ``result``."""
    products = Products.of(op.dtype, target)
    of_bytes, block = products.group > 1, tile.channels
    blocks = ceil_div(op.group_out, block)
    inner = products.group if of_bytes else min(op.group_in, target.lanes)
    inputs = ceil_div(op.group_in, inner)
    rows, columns = op.out_size[0], round_up(op.out_size[1], tile.columns)
    padding = PaddedCopy(op.window, rows, columns, by_phase=False)
    image = declare_woven(op, padding, inner, ahead.tensors["data"])
    width = products.lanes if of_bytes else block
    kernel = ahead.tensors["kernel"]
    packed = _pack_kernel(op, kernel, first, width, inner, blocks * block // width)
    ico = te.reduce_axis((0, inputs), name="ico")
    ici = te.reduce_axis((0, inner), name="ici")
    kh, kw = window_axes(op.window)
    kind = op.accumulator

    def dot(n: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        source = c // (blocks * block) * inputs + ico
        pixel = image(n, source, *op.window.pixel(i, j, kh, kw), ici)
        at = (c % width, ici) if of_bytes else (ici, c % width)
        weight = packed(c // width, ico, kh, kw, *at)
        return te.sum(pixel.astype(kind) * weight.astype(kind), axis=[ico, kh, kw, ici])

    total = te.compute((op.batch, rows, columns, op.groups * blocks * block), dot, name="total")

    def sums(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        if _ragged(op, tile):
            c = c // op.group_out * (blocks * block) + c % op.group_out
        return total[n, i, j, c]

    return _write_back(op, ahead, sums, first)


def _ragged(op: Conv2dOp, tile: ConvTile) -> bool:
    """Whether the last tile of a group's channels exceeds the group."""
    return op.groups > 1 and op.group_out % tile.channels != 0


def _transpose_tiles(s: Any, tile: Any, exact: bool, of_bytes: bool) -> None:
    """Write the result inside the loop over tiles, whose copies have channels last."""
    result = s.get_sblock("result")
    s.reverse_compute_at(result, tile, preserve_unit_loops=True)
    if exact:
        column = s.get_loops(result)[-1]
        # Scalars for floats: a vector would have to be assembled from them.
        (s.vectorize if of_bytes else s.unroll)(column)


def images_and_channels(op: WindowedSum, n: Any, c: Any) -> tuple[Any, Any]:
    """Return the loops over images and channel blocks, the outer one first.

    Weights beyond the second-level cache are read once if all images stay in it meanwhile.
    """
    data, kernel, *_ = op.inputs
    return (c, n) if data.nbytes <= KEPT_BYTES < kernel.nbytes else (n, c)


def declare_woven(op: Conv2dOp, padding: PaddedCopy, inner: int, data: Tensor) -> Tensor:
    """Declare the padded image with `inner` interleaved channels, bytes without their sign.

    The stage ``grouped``, (batch, groups * blocks, rows, columns, inner), follows ``padded``. It is
    separate because a copy with both conditions and strides is not vectorized.
    """
    blocks, whole = ceil_div(op.group_in, inner), round_up(padding.width, inner)
    by_row = inner > _WOVEN and 4 * whole <= 5 * padding.width
    top, left, *_ = op.window.padding

    def pixel(n: Expr, block: Expr, *at: Expr) -> Expr:
        (i, g), j = (at[:2] if by_row else at[1::-1]), at[2]
        c = block * inner + g
        row, column, within = i - top, j - left, c % (blocks * inner)
        bounds = [row >= 0, row < op.height, column >= 0, column < op.width]
        if op.group_in % inner:
            bounds.append(within < op.group_in)
        source = c // (blocks * inner) * op.group_in + within
        value = unsigned(data[n, source, row, column], op.dtype)
        return tirx.if_then_else(tirx.all(*bounds), value, unsigned(zero(op.dtype), op.dtype))

    planes, height, width = op.groups * blocks, padding.height, padding.width
    # Row by row for transposition in squares; by planes for interleaving in one long loop.
    width, size = (whole, (height, inner)) if by_row else (width, (inner, height))
    padded = te.compute((op.batch, planes, *size, width), pixel, name="padded")
    return te.compute(
        (op.batch, planes, height, width, inner),
        lambda n, c, i, j, g: padded[(n, c, i, g, j) if by_row else (n, c, g, i, j)],
        name="grouped",
    )


def weave(s: Any, worth: bool, lanes: int) -> None:
    """Pad the planes of a block, then interleave them: a few in one long loop.

    As many as a vector has lanes are padded row by row, and transposed in registers.
    """
    n, c, i, j, g = s.get_loops(s.get_sblock("grouped"))
    plane, planes = s.fuse(n, c), int(s.get(g).extent)
    squares = planes == lanes > _WOVEN and int(s.get(j).extent) % lanes == 0
    parallel_if(s, plane, worth)
    s.compute_at(s.get_sblock("padded"), i if squares else plane)
    if planes <= _WOVEN:
        s.fuse(i, j)
        s.unroll(g)
    elif squares:
        transpose_squares(s, j, g, lanes)
    else:
        s.vectorize(g)


def _declare(op: Conv2dOp, tile: ConvTile, ahead: Prologue, first: tuple[int, int]) -> Tensor:
    """Declare the convolution in whole tiles, ``total`` and ``result``; return the latter.

    The image is sorted by phase if columns have a stride.
    """
    rows, columns = op.out_size
    block, blocks = tile.channels, ceil_div(op.group_out, tile.channels)
    by_phase = op.window.strides[1] > 1
    padding = PaddedCopy(op.window, rows, round_up(columns, tile.columns), by_phase)
    image = ahead.tensors["data"]
    if padding.needed(op.height, op.width):
        image = padding.declare(image, zero(op.dtype))
    packed = _pack_kernel(op, ahead.tensors["kernel"], first, block, 1, blocks)
    channel = te.reduce_axis((0, op.group_in), name="ic")
    kh, kw = window_axes(op.window)

    def dot(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        source = c // (blocks * block) * op.group_in + channel
        pixel = padding.read(image, n, source, (i, j, kh, kw))
        return te.sum(
            pixel * packed[c // block, channel, kh, kw, 0, c % block], axis=[channel, kh, kw]
        )

    shape = (op.batch, op.groups * blocks * block, rows, padding.columns)
    total = te.compute(shape, dot, name="total")
    return _write_back(op, ahead, total, first)


def _pack_kernel(
    op: Conv2dOp, kernel: Tensor, first: tuple[int, int], block: int, inner: int, blocks: int
) -> Tensor:
    """Declare the kernel as (groups * blocks, inputs / inner, rows, columns, inner, block).

    For bytes the last two axes are swapped. `first` is the first tap in use.
    """
    inputs, turned = ceil_div(op.group_in, inner), kernel.dtype == "int8"
    top, left = first

    def weight(o: Expr, outer: Expr, kh: Expr, kw: Expr, *at: Expr) -> Expr:
        i, b = at[::-1] if turned else at
        within, ic = o % blocks * block + b, outer * inner + i
        bounds = [within < op.group_out] if blocks * block > op.group_out else []
        bounds += [ic < op.group_in] if op.group_in % inner else []
        value = kernel[o // blocks * op.group_out + within, ic, top + kh, left + kw]
        if not bounds:
            return value
        return tirx.if_then_else(tirx.all(*bounds), value, zero(kernel.dtype))

    last = (block, inner) if turned else (inner, block)
    return te.compute(
        (op.groups * blocks, inputs, *op.window.kernel, *last), weight, name="pack_kernel"
    )


def _pack_in_parts(s: Any, worth: bool, products: Products) -> None:
    """Schedule the packing of a kernel, for floats a few output channels at a time."""
    o, ico, kh, kw, *last = s.get_loops(s.get_sblock("pack_kernel"))[-6:]
    if products.group == 1:
        ici, c = last
        part, c = s.split(c, [None, min(products.lanes, _WAYS)])
        s.reorder(part, kh, kw, ici, c)
        s.vectorize(c)
    parallel_if(s, s.fuse(o, ico), worth)


def _write_back(op: Conv2dOp, ahead: Prologue, total: Any, first: tuple[int, int]) -> Tensor:
    """Declare the result: the epilogue of ``total(n, c, i, j)``; `first` is the first tap used."""
    top, left = first

    def weight(v: Vectors, o: Expr, ic: Expr, kh: Expr, kw: Expr) -> Expr:
        return v["kernel"][o, ic, top + kh, left + kw]

    over = (op.group_in, *op.window.kernel)
    epilogue = unshifted(ahead, op.dtype, op.out_channels, weight, over, along=True)
    return op.result(total, epilogue)


def schedule_copies(s: Any, worth: bool) -> None:
    """Parallelize the padding and packing stages, if any."""
    names = block_names(s)
    if "phases" in names:
        n, c, *_ = s.get_loops(s.get_sblock("phases"))
        channel = s.fuse(n, c)
        parallel_if(s, channel, worth)
        stage_phases(s, channel)
    for name, fused in (("padded", 3), ("pack_kernel", 2)):
        if name in names and not (name == "padded" and "phases" in names):
            loops = s.get_loops(s.get_sblock(name))
            parallel_if(s, s.fuse(*loops[:fused]), worth)


def stage_phases(s: Any, channel: Any) -> None:
    """Sort one channel by phase in one long loop over its pixels, with all phases of a pixel.

    The compiler then reads whole vectors and shuffles them; it would unroll short loops instead.
    The padded channel is copied just before. `channel` is the loop around both.
    """
    block = s.get_sblock("phases")
    phase, row, column = s.get_loops(block)[-3:]
    s.reorder(row, column, phase)
    s.fuse(row, column)
    s.unroll(phase)
    s.compute_at(s.get_sblock("padded"), channel)
