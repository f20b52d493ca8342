"""CUDA schedule of 2-D convolution: tiles of image and kernel in shared memory.

A thread block computes some output channels for a patch of the image. For some input channels at a
time its threads fetch the patch with its border and the kernel to shared memory together; virtual
threads spread the channels of a thread over the block. Padding is inlined into the fetch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vtaops.errors import ScheduleError
from vtaops.kernels.gpu import CudaTarget
from vtaops.ops.tensor.convolution import Conv2dOp
from vtaops.schedule.cpu.tiles import largest_divisor
from vtaops.schedule.cuda.binding import bind, block_names, create_schedule, inline


@dataclass(frozen=True)
class ConvTile:
    """How the results are shared.

    Attributes
    ----------
    channels : (int, int, int)
        Virtual threads, threads and results per thread, along the output channels.
    rows, columns : (int, int)
        Threads and results per thread, along rows and columns.
    inputs : int
        Input channels that are fetched at a time.
    shared : bool
        Fetch to shared memory, else read global memory directly.
    """

    channels: tuple[int, int, int] = (2, 4, 2)
    rows: tuple[int, int] = (4, 1)
    columns: tuple[int, int] = (16, 1)
    inputs: int = 4
    shared: bool = True


def choose_tile(op: Conv2dOp) -> ConvTile:
    """Return a tile whose channels divide the output channels of a group."""
    per_block = largest_divisor(op.group_out, 32)
    virtual = 2 if per_block % 2 == 0 else 1
    threads = largest_divisor(per_block // virtual, 4)
    each = per_block // virtual // threads
    columns = min(16, 1 << (op.out_size[1] - 1).bit_length())
    rows = min(4, 64 // columns)
    inputs = largest_divisor(op.group_in, 4)
    return ConvTile((virtual, threads, each), (rows, 1), (columns, 1), inputs)


def schedule_conv2d(op: Conv2dOp, target: CudaTarget, tile: ConvTile | None = None) -> Any:
    """Return the scheduled kernel of a convolution, fused to its end.

    Raises
    ------
    ScheduleError
        If the channels of a block do not divide those of a group.
    """
    tile = tile or choose_tile(op)
    virtual, threads, each = tile.channels
    if op.group_out % (virtual * threads * each) or op.group_in % tile.inputs:
        raise ScheduleError(
            f"{tile} does not divide {op.group_out} output and {op.group_in} input channels"
        )
    s = create_schedule(op.declare())
    inline(s, "bn_shift", "bn_scale")
    result = s.get_sblock("result")
    if "total" in block_names(s):
        block = s.get_sblock("total")
        s.set_scope(block, 0, "local")
    else:
        block, result = result, s.cache_write(result, 0, "local")
    copies = [s.cache_read(block, index, "shared") for index in (0, 1)] if tile.shared else []
    inline(s, "padded")
    n, c, i, j = s.get_loops(result)
    bc, vc, tc, c = s.split(c, [None, virtual, threads, each])
    bi, ti, i = s.split(i, [None, *tile.rows])
    bj, tj, j = s.split(j, [None, *tile.columns])
    s.reorder(n, bc, bi, bj, vc, tc, ti, tj, c, i, j)
    bind(s, block_x=s.fuse(n, bc), block_y=bi, block_z=bj)
    bind(s, vthread_x=vc, thread_z=tc, thread_y=ti, thread_x=tj)
    s.compute_at(block, tj, preserve_unit_loops=True)
    *_, c, i, j, ic, kh, kw = s.get_loops(block)
    ic, step = s.split(ic, [None, tile.inputs])
    s.reorder(ic, step, kh, kw, c, i, j)
    for copy in copies:
        s.compute_at(copy, ic, preserve_unit_loops=True)
        pixels = s.fuse(*s.get_loops(copy)[-4:])
        _, z, y, x = s.split(pixels, [None, threads, tile.rows[0], tile.columns[0]])
        bind(s, thread_z=z, thread_y=y, thread_x=x)
    for loop in (c, i, j):
        s.unroll(loop)
    s.decompose_reduction(block, ic)
    return s
