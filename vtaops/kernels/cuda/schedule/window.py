"""CUDA schedules of depthwise convolution and pooling, after Hu's article of 2017.

Padding is inlined: conditions are cheap here, memory is not. An image is cut into blocks of (at
most) 32x32 results, one per thread block, so that shared memory does not limit the number of
resident blocks. Threads and virtual threads share a block; virtual threads are strided, so that
neighbouring threads access neighbouring pixels while each thread computes several. Without shared
memory a thread loads the pixels under all its windows to registers, each once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from vtaops.base.errors import ScheduleError
from vtaops.kernels.build import block_names
from vtaops.kernels.cuda.schedule.binding import bind, create_schedule, fetch, inline
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.common import round_up
from vtaops.kernels.ops.convolution import DepthwiseOp
from vtaops.kernels.ops.reduction import PoolOp

_UNROLLED_TAPS = 49
_PATCH = 64
"""Maximum pixels that a thread keeps in registers."""


@dataclass(frozen=True)
class WindowTile:
    """The distribution of an image's results over threads.

    Attributes
    ----------
    block : (int, int)
        Rows and columns per thread block.
    threads, vthreads : (int, int)
        Threads and virtual threads along rows and columns.
    shared : bool
        Whether to load pixels (and kernel) to shared memory first.
    registers : bool
        Whether to load all pixels that a thread needs to its registers first, each once.
    """

    block: tuple[int, int] = (32, 32)
    threads: tuple[int, int] = (8, 32)
    vthreads: tuple[int, int] = (1, 1)
    shared: bool = False
    registers: bool = False

    def __post_init__(self) -> None:
        if self.shared and self.registers:
            raise ScheduleError("pixels go to shared memory or straight to registers, not both")
        for axis in (0, 1):
            if self.block[axis] % (self.threads[axis] * self.vthreads[axis]):
                raise ScheduleError(
                    f"blocks of {self.block} results cannot be shared among {self.threads} threads "
                    f"x {self.vthreads} virtual threads; give divisors"
                )

    @property
    def each(self) -> tuple[int, int]:
        """Rows and columns of a thread's contiguous results."""
        rows, columns = (
            self.block[axis] // (self.threads[axis] * self.vthreads[axis]) for axis in (0, 1)
        )
        return rows, columns


def fits_registers(op: DepthwiseOp | PoolOp, tile: WindowTile) -> bool:
    """Return whether the pixels for a thread's results fit its registers."""
    return prod(op.window.reach(*tile.each)) * prod(tile.vthreads) <= _PATCH


def choose_tile(op: DepthwiseOp | PoolOp) -> WindowTile:
    """Choose a tile for the size of the image."""
    rows, columns = op.out_size
    width = min(32, 1 << (columns - 1).bit_length())
    heights = [height for height in (32, 16) if height < 2 * rows] or [8]
    height = min(heights, key=lambda height: round_up(rows, height))
    threads_y = min(height // 4, max(1, 256 // width))
    tile = WindowTile((height, width), (threads_y, width), registers=True)
    return tile if fits_registers(op, tile) else replace(tile, registers=False)


def schedule_window(
    op: DepthwiseOp | PoolOp, target: CudaTarget, tile: WindowTile | None = None
) -> Any:
    """Schedule a depthwise convolution or pooling with its fused epilogue."""
    tile = tile or choose_tile(op)
    s = create_schedule(op.declare())
    result = s.get_sblock("result")
    if "total" in block_names(s):
        block = s.get_sblock("total")
        s.set_scope(block, 0, "local")
    else:
        block, result = result, s.cache_write(result, 0, "local")
    reads = range(len(op.inputs[:2])) if tile.shared else ()  # pixels, and weights
    shared = [s.cache_read(block, index, "shared") for index in reads]
    patch = s.cache_read(block, 0, "local") if tile.registers else None
    inline(s, "padded")
    n, c, i, j = s.get_loops(result)
    image = s.fuse(n, c)
    bi, vi, ti, i = s.split(i, [None, tile.vthreads[0], tile.threads[0], tile.each[0]])
    bj, vj, tj, j = s.split(j, [None, tile.vthreads[1], tile.threads[1], tile.each[1]])
    s.reorder(image, bi, bj, vi, vj, ti, tj, i, j)
    bind(s, block_x=image, block_y=bi, block_z=bj)
    bind(s, vthread_y=vi, vthread_x=vj, thread_y=ti, thread_x=tj)
    s.compute_at(block, tj, preserve_unit_loops=True)
    for copy in shared:
        s.compute_at(copy, bj, preserve_unit_loops=True)
        fetch(s, copy, tile.threads, 4)
    *_, row, column, kh, kw = s.get_loops(block)
    unrolled = [kw, kh] if prod(op.window.kernel) <= _UNROLLED_TAPS else []
    if patch is not None:
        s.compute_at(patch, tj, preserve_unit_loops=True)
        unrolled += [*s.get_loops(patch)[-2:], row, column]
    for loop in unrolled:
        s.unroll(loop)
    s.decompose_reduction(block, s.get_loops(block)[-6])
    return s
