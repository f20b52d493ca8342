"""The optimisation steps of the operators on an NVIDIA GPU.

The depthwise steps are those of Hu's article (2017), the others those of "Dive into Deep Learning
Compiler" and of course assignments: threads, shared memory, registers, virtual threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from vtaops.cuda.schedule.binding import bind, create_schedule
from vtaops.cuda.schedule.conv1d import Conv1dTile, schedule_conv1d
from vtaops.cuda.schedule.convolution import ConvTile, schedule_direct
from vtaops.cuda.schedule.elementwise import schedule_elementwise
from vtaops.cuda.schedule.matmul import MatmulTile, schedule_matmul
from vtaops.cuda.schedule.separable import schedule_separable
from vtaops.cuda.schedule.window import WindowTile, schedule_window
from vtaops.cuda.target import CudaTarget
from vtaops.kernels import ops
from vtaops.kernels.ops.common import largest_divisor, round_up
from vtaops.kernels.stages import Stage

_Schedule = Callable[[Any, CudaTarget], Any]


def _matmul_threads(op: ops.MatmulOp, _: CudaTarget) -> Any:
    s = create_schedule(op.declare())
    block = s.get_sblock("C")
    stored = s.cache_write(block, 0, "local")
    i, j = s.get_loops(stored)
    i, y = s.split(i, [None, 16])
    j, x = s.split(j, [None, 16])
    s.reorder(i, j, y, x)
    bind(s, block_y=i, block_x=j, thread_y=y, thread_x=x)
    s.compute_at(block, x, preserve_unit_loops=True)
    return s


MATMUL = (
    Stage("threads", "One thread per element of C; operands from global memory.", _matmul_threads),
    Stage(
        "shared",
        "Blocks of 16 x 16 threads fetch tiles of A and B to shared memory together.",
        partial(schedule_matmul, tile=MatmulTile((16, 16), (1, 1), (1, 1), 16)),
    ),
    Stage(
        "registers",
        "Each thread sums 4 x 4 elements in registers: each fetched element is used four times.",
        partial(schedule_matmul, tile=MatmulTile((64, 64), (4, 4), (1, 1), 16)),
    ),
    Stage(
        "vthread",
        "The 4 x 4 elements of a thread lie 2 x 2 apart: neighbours read neighbouring addresses.",
        partial(schedule_matmul, tile=MatmulTile((64, 64), (4, 4), (2, 2), 16)),
    ),
    Stage(
        "pipelined",
        "Tiles of 128 x 128, 8 x 8 per thread; the next ones come by cp.async during the products.",
        partial(schedule_matmul, tile=MatmulTile((128, 128), (8, 8), (2, 2), 16, stages=2)),
    ),
    Stage("tuned", "The tile is chosen by the size of the product.", schedule_matmul),
)


def _direct(columns: tuple[int, int], *, shared: bool = True, vthreads: bool = False) -> _Schedule:
    """Return the direct convolution by 4 x 4 channels, 4 rows and some columns in each block."""

    def schedule(op: ops.Conv2dOp, target: CudaTarget) -> Any:
        threads = largest_divisor(op.group_out, 4) if op.groups > 1 else 4  # within one group
        inputs = largest_divisor(op.group_in, 4) if op.groups > 1 else min(4, op.group_in)
        each = 4 if columns[1] > 1 and op.group_out % (4 * threads) == 0 else 1
        tile = ConvTile((1, threads, each), (4, 1), columns, inputs, shared, vthreads)
        return schedule_direct(op, target, tile)

    return schedule


CONV2D = (
    Stage(
        "threads",
        "One thread per result; everything from global memory.",
        _direct((16, 1), shared=False),
    ),
    Stage(
        "shared",
        "A block of channels, rows and columns fetches image and kernel to shared memory.",
        _direct((16, 1)),
    ),
    Stage(
        "rows",
        "Each thread sums 4 channels for 4 neighbouring columns: fewer loads. The threads of a "
        "warp read every fourth word of four rows.",
        _direct((8, 4)),
    ),
    Stage(
        "vthread",
        "The 4 columns of a thread lie 8 apart (virtual threads): neighbours read neighbours, but "
        "the four rows of a warp then meet in the same banks.",
        _direct((8, 4), vthreads=True),
    ),
    Stage(
        "wide",
        "32 threads across, the 2 columns of a thread 32 apart: a warp reads 32 neighbours, one "
        "from each bank.",
        _direct((32, 2), vthreads=True),
    ),
    Stage(
        "product",
        "As a matrix product of 64 x 64 tiles, channels by pixels: 4 x 4 results per thread, the "
        "next tile is fetched during the products.",
        partial(schedule_matmul, tile=MatmulTile((64, 64), (4, 4), (1, 1), 16, stages=2)),
    ),
    Stage("tuned", "The tile is chosen by the size of the product.", schedule_matmul),
)


def _depthwise_channel(op: ops.DepthwiseOp, target: CudaTarget) -> Any:
    rows, columns = (round_up(extent, 16) for extent in op.out_size)
    return schedule_window(op, target, WindowTile((rows, columns), (16, 16), shared=True))


DEPTHWISE = (
    Stage(
        "channel",
        "One block per channel, loaded to shared memory as a whole; padding inlined.",
        _depthwise_channel,
    ),
    Stage(
        "blocked",
        "Blocks of 32 x 32 results: less shared memory each, so more of them run at once.",
        partial(schedule_window, tile=WindowTile(threads=(8, 8), shared=True)),
    ),
    Stage(
        "threads",
        "4 x 32 threads: a warp reads whole rows, a thread reuses its pixels for 8 results.",
        partial(schedule_window, tile=WindowTile(threads=(4, 32), shared=True)),
    ),
    Stage(
        "vthread",
        "8 x 16 threads with 2 virtual ones along the columns (strided pattern).",
        partial(schedule_window, tile=WindowTile(threads=(8, 16), vthreads=(1, 2), shared=True)),
    ),
    Stage(
        "tuned",
        "Straight from global memory to registers, each pixel of a thread once: caches hold what "
        "neighbours share.",
        schedule_window,
    ),
)

CONV1D = (
    Stage(
        "threads",
        "One thread per result; samples and taps from global memory.",
        partial(schedule_conv1d, tile=Conv1dTile(256, 1, shared=False, unroll=False)),
    ),
    Stage(
        "unrolled",
        "The taps are unrolled.",
        partial(schedule_conv1d, tile=Conv1dTile(256, 1, shared=False)),
    ),
    Stage(
        "shared",
        "A block fetches its samples and the taps to shared memory.",
        partial(schedule_conv1d, tile=Conv1dTile(256, 1)),
    ),
    Stage("vthread", "Each thread computes 4 results that lie apart.", schedule_conv1d),
)

SEPARABLE = (
    Stage(
        "fused",
        "A block computes 4 depthwise channels of 4 x 16 pixels into shared memory at a time, and "
        "multiplies them by its rows of the 1x1 kernel; one result per thread.",
        partial(schedule_separable, tile=ConvTile((1, 4, 1), (4, 1), (16, 1), 4)),
    ),
    Stage(
        "registers",
        "Each thread sums 4 channels for 2 pixels: each depthwise result is used four times.",
        partial(schedule_separable, tile=ConvTile((1, 8, 4), (4, 1), (8, 2), 8)),
    ),
    Stage(
        "vthread",
        "64 channels per block, two parts per thread: depthwise results are computed less often.",
        partial(schedule_separable, tile=ConvTile((2, 8, 4), (4, 1), (8, 2), 8)),
    ),
    Stage("tuned", "The tile is chosen by the sizes.", schedule_separable),
)

ELEMENTWISE = (
    Stage(
        "continuous",
        "Each thread takes 8 neighbours: the threads of a warp lie 32 bytes apart.",
        partial(schedule_elementwise, order="continuous", per_thread=8),
    ),
    Stage(
        "alternate",
        "Neighbouring threads take neighbouring elements, each 8 of them, a block apart.",
        partial(schedule_elementwise, order="alternate", per_thread=8),
    ),
    Stage("tuned", "Each thread takes one vector of 16 bytes.", schedule_elementwise),
)

POOL = (
    Stage(
        "threads",
        "One thread per result; the pixels of a window from global memory.",
        partial(schedule_window, tile=WindowTile((8, 32), (8, 32))),
    ),
    Stage(
        "shared",
        "A block of 32 x 32 results fetches its pixels to shared memory.",
        partial(schedule_window, tile=WindowTile(threads=(8, 32), shared=True)),
    ),
    Stage(
        "tuned",
        "Straight from global memory to registers, each pixel of a thread once.",
        schedule_window,
    ),
)

STAGES: dict[type | str, tuple[Stage, ...]] = {
    "vector_add": ELEMENTWISE,
    ops.BroadcastOp: ELEMENTWISE,
    ops.NormalizeOp: ELEMENTWISE,
    ops.PoolOp: POOL,
    ops.MatmulOp: MATMUL,
    ops.Conv2dOp: CONV2D,
    ops.DepthwiseOp: DEPTHWISE,
    ops.Conv1dOp: CONV1D,
    ops.SeparableOp: SEPARABLE,
}
"""The stages of the operators that have them."""
