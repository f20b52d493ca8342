"""CPU schedule of 1x1 convolutions: a matrix product of the kernel and the image.

The image is cut into *strips* of pixels. The channels of a strip are copied into a dense buffer
that stays in the second-level cache; then all output channels are computed from it, tiles of
channels by pixels in registers. Without the copy every block of output channels would read the
whole image again, whose channels lie so far apart that they meet in few sets of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from vtaops.cpu.schedule.prologue import Prologue
from vtaops.cpu.schedule.tiles import (
    PARALLEL_FLOPS,
    hold_in_registers,
    parallel_if,
    split_vector,
    write_back,
)
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, ceil_div, round_up, zero
from vtaops.kernels.ops.convolution import Conv2dOp

_STRIP_BYTES = 1 << 20
"""Most bytes of a strip: the second-level cache holds a part of the kernel as well."""

_STRIP_PIXELS = 512
"""Pixels above which a longer strip gains nothing."""

_STRIP_OVERHEAD = 8
"""What a strip costs beside its pixels, in pixels."""

_CUTTING = 1.25
"""What it costs to cut tails off: their elements are stored one by one."""

_NARROW = 1.4
"""What a tile costs that is one vector wide: a load of the kernel for each multiply-add."""


@dataclass(frozen=True)
class Strip:
    """The tile of a 1x1 convolution.

    Attributes
    ----------
    pixels : int
        Results of one output channel in one strip.
    channels, vectors : int
        Register tile: output channels by vectors of pixels.
    lanes : int
        float32 lanes of a vector.
    """

    pixels: int
    channels: int
    vectors: int
    lanes: int

    @property
    def extent(self) -> int:
        """Pixels of a strip that are computed: whole tiles."""
        return round_up(self.pixels, self.vectors * self.lanes)

    def exact(self, pixels: int) -> bool:
        """Whether images of so many pixels are whole strips, and strips whole tiles."""
        return self.pixels == self.extent and pixels % self.pixels == 0


def suits(op: Conv2dOp, target: CpuTarget) -> bool:
    """Whether an operator is a 1x1 convolution with results of one row, at least a vector long."""
    window = op.window
    plain = (*window.kernel, *window.padding) == (1, 1, 0, 0, 0, 0)
    rows, columns = op.output.shape[2:]
    return plain and op.groups == rows == 1 and columns >= target.lanes


def pixels_of(op: Conv2dOp) -> int:
    """Return the results of a channel."""
    return op.output.shape[3]


def choose_strip(op: Conv2dOp, target: CpuTarget) -> Strip:
    """Return the strip that costs the busiest thread least."""
    threads = target.cores if op.flops >= PARALLEL_FLOPS else 1
    most = max(_STRIP_BYTES // (4 * op.in_channels), 4 * target.lanes)
    longest = min(_STRIP_PIXELS, most, pixels_of(op))
    sizes = {longest, *range(target.lanes, longest, target.lanes)}

    def strip(size: int, vectors: int) -> Strip:
        limit = target.registers // 2 // vectors
        return Strip(size, min(limit, op.out_channels), vectors, target.lanes)

    def cost(found: Strip) -> float:
        strips = op.batch * ceil_div(pixels_of(op), found.pixels)
        time: float = ceil_div(strips, threads) * (found.extent + _STRIP_OVERHEAD)
        if not found.exact(pixels_of(op)):
            time *= _CUTTING
        return time * (_NARROW if found.vectors == 1 else 1.0)

    return min((strip(size, v) for size in sorted(sizes) for v in (2, 4, 1)), key=cost)


def tiles(op: Conv2dOp, target: CpuTarget) -> Iterator[Strip]:
    """Yield the strips to choose from."""
    for vectors in (1, 2, 4):
        for channels in (2, 4, 8, 12, 16):
            if channels * vectors <= target.accumulators and channels <= op.out_channels:
                tile = vectors * target.lanes
                for pixels in sorted({min(count * tile, pixels_of(op)) for count in (2, 7, 14)}):
                    yield Strip(pixels, channels, vectors, target.lanes)


def schedule_pointwise(op: Conv2dOp, target: CpuTarget, strip: Strip | None = None) -> Any:
    """Return the scheduled kernel of a float32 convolution that `suits`."""
    strip = strip or choose_strip(op, target)
    count, blocks = ceil_div(pixels_of(op), strip.pixels), ceil_div(op.out_channels, strip.channels)
    ahead = Prologue(op.placeholders())
    tensors = ahead.factors(op.epilogue)
    data, kernel, whole = tensors["data"], tensors["kernel"], strip.exact(pixels_of(op))

    (rows, width), (down, across) = op.out_size, op.window.strides
    strided = (down, across) != (1, 1)
    if strided:  # a pass of its own: long loops that LLVM makes shuffles of
        full, thinned = data, (op.batch, op.in_channels, rows, width)
        data = te.compute(
            thinned, lambda n, c, i, j: full[n, c, i * down, j * across], name="thinned"
        )

    def pixel(n: Expr, t: Expr, c: Expr, p: Expr) -> Expr:
        column = t * strip.pixels + p
        row, at = (column // width, column % width) if rows > 1 else (0, column)
        value = data[n, c, row, at]
        return value if whole else tirx.if_then_else(column < pixels_of(op), value, zero("float32"))

    strips = (op.batch, count, op.in_channels, strip.extent)
    dense = te.compute(strips, pixel, name="dense")
    c = te.reduce_axis((0, op.in_channels), name="c")

    def product(n: Expr, t: Expr, o: Expr, p: Expr) -> Expr:
        # Behind the last channel any will do: its results are cut off.
        channel = o if op.out_channels % strip.channels == 0 else tirx.min(o, op.out_channels - 1)
        return te.sum(dense[n, t, c, p] * kernel[channel, c, 0, 0], axis=c)

    sums = (op.batch, count, blocks * strip.channels, strip.extent)
    total = te.compute(sums, product, name="total")
    finish = op.epilogue.bind(tensors)
    result = te.compute(
        op.output.shape,
        lambda n, o, i, q: finish(total[n, q // strip.pixels, o, q % strip.pixels], o, n, o, i, q),
        name="result",
    )
    s = ahead.create_schedule(result)
    n, t, _, p = s.get_loops(s.get_sblock("dense"))
    outer = s.fuse(n, t)
    parallel_if(s, outer, op.flops >= PARALLEL_FLOPS)
    if strided:
        parallel_if(
            s, s.fuse(*s.get_loops(s.get_sblock("thinned"))[:2]), op.flops >= PARALLEL_FLOPS
        )
    if whole:
        s.unroll(split_vector(s, p, strip.lanes)[0])
    _schedule_product(s, strip, outer, whole and op.out_channels % strip.channels == 0)
    return ahead.attach(s)


def _schedule_product(s: Any, strip: Strip, outer: Any, exact: bool) -> None:
    """Compute the sums of a strip, and what follows them, behind its dense buffer."""
    total, result = s.get_sblock("total"), s.get_sblock("result")
    s.reverse_compute_at(total, outer, preserve_unit_loops=True)
    o, p, c = s.get_loops(total)[-3:]
    o, channel = s.split(o, [None, strip.channels])
    p, vector, lane = s.split(p, [None, strip.vectors, strip.lanes])
    s.reorder(o, p, c, channel, vector, lane)
    write_back(s, total, result, p, strip.lanes, exact, dims=3)
    hold_in_registers(s, total, c, lane, vector, channel)
