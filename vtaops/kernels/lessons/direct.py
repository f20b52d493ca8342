"""CUDA schedule of direct 2-D convolution, for the lesson; `product` has the fast one.

A thread block computes some output channels for a patch of the image. Its threads cooperatively
fetch the patch with its border, and the kernel, to shared memory, for a few input channels at a
time; each thread sums several channels for several pixels in registers. Virtual threads spread a
thread's results over the block. Padding is inlined into the fetch, as are the rows and columns that
fill up the last tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te

from vtaops.base.errors import ScheduleError
from vtaops.kernels.cuda.schedule.binding import bind, check_block, create_schedule, fetch, inline
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.common import Expr, Tensor, inside_or, round_up, zero
from vtaops.kernels.ops.convolution import Conv2dOp


@dataclass(frozen=True)
class ConvTile:
    """The distribution of results over threads.

    Attributes
    ----------
    channels : (int, int, int)
        Virtual threads, threads, and results per thread, along the output channels.
    rows : (int, int)
        Threads, and results per thread.
    columns : (int, int)
        Threads, and results per thread.
    vthreads : bool
        Whether a thread's columns are virtual threads, far apart, so that neighbouring threads read
        neighbouring columns.
    inputs : int
        Input channels per fetch.
    shared : bool
        Whether to fetch to shared memory; otherwise read global memory directly.
    """

    channels: tuple[int, int, int] = (2, 4, 2)
    rows: tuple[int, int] = (4, 1)
    columns: tuple[int, int] = (16, 1)
    inputs: int = 4
    shared: bool = True
    vthreads: bool = False

    @property
    def block(self) -> tuple[int, int, int]:
        """Output channels, rows and columns of a thread block."""
        virtual, threads, each = self.channels
        return virtual * threads * each, self.rows[0] * self.rows[1], prod(self.columns)

    @property
    def threads(self) -> tuple[int, int, int]:
        """Extents of threadIdx.z, y and x."""
        return self.channels[1], self.rows[0], self.columns[0]

    def shared_bytes(self, op: Conv2dOp) -> int:
        """Return the bytes of shared memory: a patch with its border, and the kernel."""
        if not self.shared:
            return 0
        channels, *patch = self.block
        size = 4 if op.dtype == "float32" else 1
        pixels, taps = prod(op.window.reach(*patch)), prod(op.window.kernel)
        return size * self.inputs * (pixels + channels * taps)


def check(op: Conv2dOp, tile: ConvTile, target: CudaTarget) -> None:
    """Reject a tile that does not suit an operator or a GPU.

    Raises
    ------
    ScheduleError
        If it needs too many threads or too much shared memory, or does not divide the channels.
    """
    if op.groups > 1 or op.out_channels % tile.block[0] or op.in_channels % tile.inputs:
        raise ScheduleError(
            f"{tile} does not divide the {op.out_channels} output and {op.in_channels} input "
            f"channels of {op.groups} groups; give one group, and divisors"
        )
    check_block(tile, prod(tile.threads), tile.shared_bytes(op), target)


def declare_padded(op: Conv2dOp, tile: ConvTile) -> list[Tensor]:
    """Declare the convolution over whole patches, with the image padded by an inlined stage."""
    tensors = op.placeholders()
    rows, columns = (
        round_up(extent, block) for extent, block in zip(op.out_size, tile.block[1:], strict=True)
    )
    top, left, _, _ = op.window.padding
    patch = op.window.reach(rows, columns)

    def pixel(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        return inside_or(tensors["data"], (n, c, y - top, x - left), (2, 3), zero(op.dtype))

    image = te.compute((op.batch, op.in_channels, *patch), pixel, name="padded")
    sums = op.sums(image, tensors["kernel"])
    total = te.compute((op.batch, op.out_channels, rows, columns), sums, name="total")
    return [*tensors.values(), op.result(total, op.epilogue.bind(tensors, op.accumulator))]


def schedule_direct(op: Conv2dOp, target: CudaTarget, tile: ConvTile) -> Any:
    """Schedule a convolution with its fused epilogue.

    Raises
    ------
    ScheduleError
        See `check`.
    """
    check(op, tile, target)
    s = create_schedule(declare_padded(op, tile))
    total, result = s.get_sblock("total"), s.get_sblock("result")
    virtual, threads, each = tile.channels
    n, c, i, j, ic, kh, kw = s.get_loops(total)
    bc, vc, tc, c = s.split(c, [None, virtual, threads, each])
    bi, ti, i = s.split(i, [None, *tile.rows])
    across, wide = tile.columns
    bj, vj, tj, j = s.split(j, [None, *((wide, across, 1) if tile.vthreads else (1, across, wide))])
    ic, step = s.split(ic, [None, tile.inputs])
    s.reorder(n, bc, bi, bj, vc, vj, tc, ti, tj, ic, step, kh, kw, c, i, j)
    bind(s, block_x=s.fuse(n, bc), block_y=bi, block_z=bj)
    bind(s, vthread_x=vc, vthread_y=vj, thread_z=tc, thread_y=ti, thread_x=tj)
    s.set_scope(total, 0, "local")
    s.reverse_compute_at(result, tj)
    for index in (0, 1) if tile.shared else ():
        copy = s.cache_read(total, index, "shared")
        s.compute_at(copy, ic, preserve_unit_loops=True)
        fetch(s, copy, tile.threads, 4)
    inline(s, "padded")
    for loop in (c, i, j):
        s.unroll(loop)
    s.decompose_reduction(total, ic)
    return s
