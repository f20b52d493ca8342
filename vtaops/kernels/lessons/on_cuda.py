"""The optimisation steps of the operators on an NVIDIA GPU.

The depthwise steps are those of Hu's article (2017), the others those of "Dive into Deep Learning
Compiler" and of course assignments: threads, shared memory, registers, virtual threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from vtaops.kernels import ops
from vtaops.kernels.cuda.schedule.binding import bind, create_schedule
from vtaops.kernels.cuda.schedule.elementwise import schedule_elementwise
from vtaops.kernels.cuda.schedule.matmul import MatmulTile, schedule_matmul
from vtaops.kernels.cuda.schedule.window import WindowTile, schedule_window
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.lessons.direct import ConvTile, schedule_direct
from vtaops.kernels.lessons.stages import Stage
from vtaops.kernels.ops.common import largest_divisor, round_up


def _matmul_threads(op: ops.MatmulOp, _: CudaTarget) -> Any:
    """Schedule one thread per element of C."""
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


def _direct(
    op: ops.Conv2dOp,
    target: CudaTarget,
    columns: tuple[int, int],
    *,
    shared: bool = True,
    vthreads: bool = False,
) -> Any:
    """Schedule the direct convolution by 4 x 4 channels, 4 rows and some columns in each block."""
    threads, inputs = (largest_divisor(n, 4) for n in (op.out_channels, op.in_channels))
    each = 4 if columns[1] > 1 and op.out_channels % (4 * threads) == 0 else 1
    tile = ConvTile((1, threads, each), (4, 1), columns, inputs, shared, vthreads)
    return schedule_direct(op, target, tile)


def _depthwise_channel(op: ops.DepthwiseOp, target: CudaTarget) -> Any:
    """Schedule one block per channel."""
    rows, columns = (round_up(extent, 16) for extent in op.out_size)
    return schedule_window(op, target, WindowTile((rows, columns), (16, 16), shared=True))


_TUNED = Stage("tuned", "The size of the product decides the tile.", schedule_matmul)

MATMUL = (
    Stage(
        "threads",
        "One thread per element of C reads its operands from global memory.",
        _matmul_threads,
    ),
    Stage(
        "shared",
        "The 16 x 16 threads of a block together load tiles of A and B to shared memory.",
        partial(schedule_matmul, tile=MatmulTile((16, 16), (1, 1), (1, 1), 16)),
    ),
    Stage(
        "registers",
        "Each thread sums 4 x 4 elements in registers, so each loaded element is used four times.",
        partial(schedule_matmul, tile=MatmulTile((64, 64), (4, 4), (1, 1), 16)),
    ),
    Stage(
        "vthread",
        "The 4 x 4 elements of a thread are split into 2 x 2 virtual threads, so "
        "neighbouring threads read neighbouring addresses.",
        partial(schedule_matmul, tile=MatmulTile((64, 64), (4, 4), (2, 2), 16)),
    ),
    Stage(
        "pipelined",
        "Tiles of 128 x 128 elements, 8 x 8 per thread; cp.async loads the next tiles "
        "during the multiply-adds.",
        partial(schedule_matmul, tile=MatmulTile((128, 128), (8, 8), (2, 2), 16, stages=2)),
    ),
    _TUNED,
)

CONV2D = (
    Stage(
        "threads",
        "One thread per result reads everything from global memory.",
        partial(_direct, columns=(16, 1), shared=False),
    ),
    Stage(
        "shared",
        "A block computes several channels, rows and columns and loads their part of "
        "image and kernel to shared memory.",
        partial(_direct, columns=(16, 1)),
    ),
    Stage(
        "rows",
        "Each thread sums 4 channels of 4 adjacent columns, which takes fewer loads. "
        "The threads of a warp read every fourth word of four rows.",
        partial(_direct, columns=(8, 4)),
    ),
    Stage(
        "vthread",
        "The 4 columns of a thread lie 8 apart (virtual threads): neighbouring threads "
        "read neighbouring words, but the four rows of a warp now fall into the same "
        "banks.",
        partial(_direct, columns=(8, 4), vthreads=True),
    ),
    Stage(
        "wide",
        "32 threads side by side, with the 2 columns of a thread 32 apart: a warp reads "
        "32 adjacent words, one from each bank.",
        partial(_direct, columns=(32, 2), vthreads=True),
    ),
    Stage(
        "product",
        "The convolution becomes a matrix product, channels by pixels, in tiles of 64 x "
        "64 with 4 x 4 results per thread; the next tile is loaded during the "
        "multiply-adds.",
        partial(schedule_matmul, tile=MatmulTile((64, 64), (4, 4), (1, 1), 16, stages=2)),
    ),
    _TUNED,
)

DEPTHWISE = (
    Stage(
        "channel",
        "One block per channel loads the whole channel to shared memory; padding is inlined.",
        _depthwise_channel,
    ),
    Stage(
        "blocked",
        "Blocks of 32 x 32 results need less shared memory, so more of them run at once.",
        partial(schedule_window, tile=WindowTile(threads=(8, 8), shared=True)),
    ),
    Stage(
        "threads",
        "With 4 x 32 threads a warp reads whole rows, and a thread reuses pixels for 8 results.",
        partial(schedule_window, tile=WindowTile(threads=(4, 32), shared=True)),
    ),
    Stage(
        "vthread",
        "8 x 16 threads, each split into 2 virtual threads along the columns (a strided pattern).",
        partial(schedule_window, tile=WindowTile(threads=(8, 16), vthreads=(1, 2), shared=True)),
    ),
    Stage(
        "tuned",
        "Each thread reads each of its pixels once, from global memory straight to "
        "registers; caches hold the pixels that neighbouring threads share.",
        schedule_window,
    ),
)

ELEMENTWISE = (
    Stage(
        "continuous",
        "Each thread takes 8 adjacent elements, so the threads of a warp access "
        "addresses 32 bytes apart.",
        partial(schedule_elementwise, order="continuous", per_thread=8),
    ),
    Stage(
        "alternate",
        "Neighbouring threads take neighbouring elements; the 8 elements of a thread "
        "lie one block apart.",
        partial(schedule_elementwise, order="alternate", per_thread=8),
    ),
    Stage(
        "tuned",
        "Each thread takes one vector of 16 bytes.",
        schedule_elementwise,
    ),
)

POOL = (
    Stage(
        "threads",
        "One thread per result reads the pixels of its window from global memory.",
        partial(schedule_window, tile=WindowTile((8, 32), (8, 32))),
    ),
    Stage(
        "shared",
        "A block computes 32 x 32 results and first loads their pixels to shared memory.",
        partial(schedule_window, tile=WindowTile(threads=(8, 32), shared=True)),
    ),
    Stage(
        "tuned",
        "Each thread reads each of its pixels once, from global memory straight to registers.",
        schedule_window,
    ),
)

STAGES: dict[type | str, Sequence[Stage]] = {
    "vector_add": ELEMENTWISE,
    ops.BroadcastOp: ELEMENTWISE,
    ops.NormalizeOp: ELEMENTWISE,
    ops.PoolOp: POOL,
    ops.MatmulOp: MATMUL,
    ops.Conv2dOp: CONV2D,
    ops.DepthwiseOp: DEPTHWISE,
}
"""The stages of the operators that have them."""
