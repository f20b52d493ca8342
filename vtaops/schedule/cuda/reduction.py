"""CUDA schedules of reductions along rows: one thread block per row, reduced across its threads."""

from __future__ import annotations

from typing import Any

from vtaops.kernels.gpu import CudaTarget
from vtaops.ops.tensor.pooling import GlobalPoolOp
from vtaops.ops.tensor.softmax import SoftmaxOp
from vtaops.schedule.cuda.binding import bind, block_names, create_schedule, inline


def _threads(extent: int) -> int:
    """Return a power of two of threads, at most 256, that a row keeps busy."""
    return max(32, min(256, 1 << (extent - 1).bit_length()))


def schedule_softmax(op: SoftmaxOp, target: CudaTarget) -> Any:
    """Return the scheduled kernel: maximum and sum by cross-thread reduction."""
    s = create_schedule(op.declare())
    threads = _threads(op.columns)
    if 4 * op.columns > target.shared // 2:
        inline(s, "power")  # computed twice: a row does not fit into shared memory
    row, column = s.get_loops(s.get_sblock("result"))
    bind(s, block_x=row)
    _, x = s.split(column, [None, threads])
    bind(s, thread_x=x)
    large = 4 * op.columns > target.shared // 2
    for name in ("total", "top") if large else ("total", "power", "top"):
        block = s.get_sblock(name)
        s.compute_at(block, row, preserve_unit_loops=True)
        s.set_scope(block, 0, "shared")
        _, x = s.split(s.get_loops(block)[-1], [None, threads])
        bind(s, thread_x=x)
    return s


def schedule_global_pool(op: GlobalPoolOp, target: CudaTarget) -> Any:
    """Return the scheduled kernel: one block per image."""
    s = create_schedule(op.declare())
    fused = "total" in block_names(s)
    result = s.get_sblock("result")
    block = s.get_sblock("total") if fused else result
    threads = _threads(op.pixels)
    if fused:
        (row,) = s.get_loops(result)
        s.compute_at(block, row, preserve_unit_loops=True)
        s.set_scope(block, 0, "shared")
    row, pixel = (s.get_loops(block)[0], s.get_loops(block)[-1])
    bind(s, block_x=row)
    _, x = s.split(pixel, [None, threads])
    bind(s, thread_x=x)
    return s
