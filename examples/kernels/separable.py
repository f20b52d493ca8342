"""A primitive of course assignment A3: a depthwise and a 1x1 convolution in one CUDA kernel.

    python examples/kernels/separable.py    # the steps on a GPU; without one, counted

Instead of fetching the tile of the 1x1 convolution from memory, its threads compute it: for some
channels at a time, the depthwise results of a patch go to shared memory, where the 1x1 convolution
reads them. They never leave the block. The cost: each block of output channels recomputes them,
`taps` operations per `channels of a block` of the 1x1 convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

from tvm import te, tirx

from examples.kernels.fitting import fits
from vtaops.kernels.cuda.schedule.binding import (
    bind,
    check_block,
    create_schedule,
    fetch,
    inline,
)
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.lessons import Lesson, lesson_table, run_lesson
from vtaops.kernels.lessons.direct import ConvTile
from vtaops.kernels.lessons.stages import Stage
from vtaops.kernels.ops import DepthwiseOp, Epilogue, TensorSpec, Window
from vtaops.kernels.ops.common import (
    Expr,
    Tensor,
    ceil_div,
    inside_or,
    round_up,
    specs,
    window_axes,
    zero,
)
from vtaops.kernels.ops.convolution import WindowedSum
from vtaops.kernels.ops.epilogue import NOTHING


@dataclass(frozen=True)
class SeparableOp(WindowedSum):
    """Depthwise convolution of NCHW data, an activation, and a 1x1 convolution; float32.

    Attributes
    ----------
    batch, channels, height, width : int
        Shape of the data.
    window : Window
        Window of the depthwise convolution.
    out_channels : int
        Output channels of the 1x1 convolution.
    multiplier : int
        Results of the depthwise convolution per channel, M; its kernel is (channels, M, rows,
        columns), that of the 1x1 convolution (out_channels, channels * M).
    between : Epilogue
        After the depthwise convolution: nothing or an activation.
    epilogue : Epilogue
        After the 1x1 convolution.
    """

    batch: int
    channels: int
    height: int
    width: int
    window: Window
    out_channels: int
    multiplier: int = 1
    between: Epilogue = NOTHING
    epilogue: Epilogue = NOTHING
    dtype = "float32"  # not a field: the only dtype

    @property
    def middle_channels(self) -> int:
        """Channels between the two convolutions."""
        return self.channels * self.multiplier

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        operands = specs(
            data=(self.batch, self.channels, self.height, self.width),
            depthwise=(self.channels, self.multiplier, *self.window.kernel),
            pointwise=(self.out_channels, self.middle_channels),
        )
        end = self.epilogue.arguments("result", self.out_channels, self._shape, "float32")
        return operands + end

    @property
    def flops(self) -> int:
        rows, columns = self.out_size
        taps = self.window.kernel[0] * self.window.kernel[1]
        return 2 * self.batch * rows * columns * self.middle_channels * (taps + self.out_channels)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        size = (self.batch, self.channels, self.height, self.width)
        first = DepthwiseOp(*size, self.window, self.multiplier)
        shape = first.output.shape
        sums = first.sums(given["data"], given["depthwise"])
        middle = te.compute(shape, sums, name="middle")
        act = self.between.bind({})
        active = te.compute(
            shape, lambda *index: act(middle(*index), index[1], *index), name="active"
        )
        c = te.reduce_axis((0, self.middle_channels), name="c")
        return self.finished(
            lambda n, o, i, j: te.sum(active[n, c, i, j] * given["pointwise"][o, c], axis=c), given
        )


def choose_tile(op: SeparableOp) -> ConvTile:
    """Choose a tile that rarely recomputes depthwise results and wastes little."""
    columns = min(16, 1 << (op.out_size[1] - 1).bit_length())
    rows = min(4, 64 // columns, 1 << (op.out_size[0] - 1).bit_length())
    each = max(1, min(2, columns // 4))
    channels = (2, 8, 4) if op.out_channels > 32 else (2, 4, 2)
    inputs = min(16, 1 << (op.middle_channels - 1).bit_length())
    return ConvTile(channels, (rows, 1), (columns // each, each), inputs)


def tiles(op: SeparableOp, target: CudaTarget) -> Iterator[ConvTile]:
    """Yield the candidate tiles."""
    for virtual, threads, each, rows, columns, wide, inputs in product(
        (1, 2, 4), (4, 8, 16), (2, 4), (2, 4, 8), (4, 8, 16), (1, 2, 4), (8, 16, 32)
    ):
        tile = ConvTile((virtual, threads, each), (rows, 1), (columns, wide), inputs)
        useful = 64 <= threads * rows * columns <= 512 and virtual * each * wide <= 32
        if useful and fits(check, op, tile, target):
            yield tile


def shared_bytes(tile: ConvTile) -> int:
    """Return the bytes of shared memory: depthwise results of a patch, weights of the 1x1."""
    channels, *patch = tile.block
    return 4 * tile.inputs * (prod(patch) + channels)


def check(op: SeparableOp, tile: ConvTile, target: CudaTarget) -> None:
    """Reject a tile that a block of the GPU cannot hold.

    Raises
    ------
    ScheduleError
        If it needs too many threads or too much shared memory.
    """
    check_block(tile, prod(tile.threads), shared_bytes(tile), target)


def declare_padded(op: SeparableOp, tile: ConvTile) -> list[Tensor]:
    """Declare the operator over whole tiles, with the operands padded by inlined stages."""
    tensors = op.placeholders()
    data = tensors["data"]
    channels, rows, columns = (
        round_up(extent, block)
        for extent, block in zip((op.out_channels, *op.out_size), tile.block, strict=True)
    )
    steps = round_up(op.middle_channels, tile.inputs)
    top, left, _, _ = op.window.padding

    def tap(c: Expr, y: Expr, x: Expr) -> Expr:
        value = tensors["depthwise"][c // op.multiplier, c % op.multiplier, y, x]
        if steps == op.middle_channels:
            return value
        return tirx.if_then_else(c < op.middle_channels, value, zero("float32"))

    def pixel(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        return inside_or(data, (n, c, y - top, x - left), (1, 2, 3), zero("float32"))

    shape = (op.batch, ceil_div(steps, op.multiplier), *op.window.reach(rows, columns))
    image = te.compute(shape, pixel, name="padded")
    taps = te.compute((steps, *op.window.kernel), tap, name="taps")
    kh, kw = window_axes(op.window)
    shape = (op.batch, steps, rows, columns)
    middle = te.compute(
        shape,
        lambda n, c, i, j: te.sum(
            image(n, c // op.multiplier, *op.window.pixel(i, j, kh, kw)) * taps[c, kh, kw],
            axis=[kh, kw],
        ),
        name="middle",
    )
    act = op.between.bind({})
    active = te.compute(shape, lambda *index: act(middle(*index), index[1], *index), name="active")
    weights = te.compute(
        (channels, steps),
        lambda o, c: inside_or(tensors["pointwise"], (o, c), (0, 1), zero("float32")),
        name="weights",
    )
    c = te.reduce_axis((0, steps), name="c")
    total = te.compute(
        (op.batch, channels, rows, columns),
        lambda n, o, i, j: te.sum(active[n, c, i, j] * weights[o, c], axis=c),
        name="total",
    )
    return [*tensors.values(), op.result(total, op.epilogue.bind(tensors))]


def schedule_separable(op: SeparableOp, target: CudaTarget, tile: ConvTile | None = None) -> Any:
    """Schedule the fused convolutions.

    Raises
    ------
    ScheduleError
        See `check`.
    """
    tile = tile or choose_tile(op)
    check(op, tile, target)
    s = create_schedule(declare_padded(op, tile))
    inline(s, "padded", "taps")
    total, result, active = (s.get_sblock(name) for name in ("total", "result", "active"))
    virtual, threads, each = tile.channels
    n, o, i, j, c = s.get_loops(total)
    bo, vo, to, o = s.split(o, [None, virtual, threads, each])
    bi, ti, i = s.split(i, [None, *tile.rows])
    bj, tj, j = s.split(j, [None, *tile.columns])
    c, step = s.split(c, [None, tile.inputs])
    s.reorder(n, bo, bi, bj, vo, to, ti, tj, c, step, o, i, j)
    bind(s, block_x=s.fuse(n, bo), block_y=bi, block_z=bj)
    bind(s, vthread_x=vo, thread_z=to, thread_y=ti, thread_x=tj)
    s.set_scope(total, 0, "local")
    s.reverse_compute_at(result, tj)
    s.set_scope(active, 0, "shared")
    copy = s.cache_read(total, 1, "shared")
    inline(s, "weights")
    lanes = []
    for block, dims in ((active, 4), (copy, 2)):
        s.compute_at(block, c, preserve_unit_loops=True)
        lanes.append(fetch(s, block, tile.threads, dims))
    middle = s.get_sblock("middle")
    s.set_scope(middle, 0, "local")
    s.compute_at(middle, lanes[0], preserve_unit_loops=True)
    *_, kh, kw = s.get_loops(middle)
    for loop in (kh, kw, o, i, j):
        s.unroll(loop)
    s.decompose_reduction(middle, kh)
    s.decompose_reduction(total, c)
    return s


STAGES = (
    Stage(
        "fused",
        "A block computes 4 x 16 pixels of 4 depthwise channels at a time to shared "
        "memory and multiplies them by its rows of the 1x1 kernel; one result per "
        "thread.",
        partial(schedule_separable, tile=ConvTile((1, 4, 1), (4, 1), (16, 1), 4)),
    ),
    Stage(
        "registers",
        "Each thread sums 4 channels of 2 pixels, so each depthwise result is used four times.",
        partial(schedule_separable, tile=ConvTile((1, 8, 4), (4, 1), (8, 2), 8)),
    ),
    Stage(
        "vthread",
        "A block computes 64 channels, in two virtual threads per thread, so depthwise "
        "results are recomputed less often.",
        partial(schedule_separable, tile=ConvTile((2, 8, 4), (4, 1), (8, 2), 8)),
    ),
    Stage(
        "tuned",
        "The sizes decide the tile.",
        schedule_separable,
    ),
)


def lesson() -> Lesson:
    """Return the steps."""
    window = Window((3, 3), padding=(1, 1, 1, 1))
    return Lesson(
        "separable",
        "cuda",
        lambda c: SeparableOp(1, c, 64, 64, window, c),
        64,
        "channels",
        STAGES,
    )


if __name__ == "__main__":
    from rich import print as show

    show(lesson_table(run_lesson(lesson()), "separable"))
