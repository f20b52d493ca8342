"""CUDA schedules of elementwise operators.

Two ways to share n elements among the threads: *continuous*, each thread takes a run of
neighbours, and *alternate*, neighbouring threads take neighbouring elements, so that one memory
transaction serves a whole warp. Each thread moves 16 bytes at once where the extents allow.
"""

from __future__ import annotations

from typing import Any

from vtaops.cuda.schedule.binding import VECTOR, bind, create_schedule, inline
from vtaops.cuda.target import CudaTarget
from vtaops.kernels.ops.elementwise import BroadcastOp, NormalizeOp, UnaryOp

_THREADS = 256


def schedule_elementwise(
    op: BroadcastOp | UnaryOp | NormalizeOp,
    target: CudaTarget,
    order: str = "alternate",
    per_thread: int | None = None,
) -> Any:
    """Return the scheduled kernel.

    Parameters
    ----------
    op : TensorOp
        What is computed.
    target : CudaTarget
        For which GPU.
    order : str
        "alternate" or "continuous".
    per_thread : int, optional
        Elements of one thread; by default one vector if the innermost extent allows, else one.
    """
    s = create_schedule(op.declare())
    inline(s, "bn_shift", "bn_scale")
    block = s.get_sblock("result" if isinstance(op, NormalizeOp) else "C")
    innermost = op.output.shape[-1]
    vector = innermost % VECTOR == 0 and op.output.dtype == "float32"
    count = per_thread or (VECTOR if vector else 1)
    element = s.fuse(*s.get_loops(block))
    if order == "continuous":
        grid, thread, run = s.split(element, [None, _THREADS, count])
        bind(s, block_x=grid, thread_x=thread)
        if count == VECTOR and vector:
            s.vectorize(run)
        return s
    if count == VECTOR and vector:
        grid, thread, lane = s.split(element, [None, _THREADS, VECTOR])
        bind(s, block_x=grid, thread_x=thread)
        s.vectorize(lane)
        return s
    grid, step, thread = s.split(element, [None, count, _THREADS])
    s.reorder(grid, thread, step)
    bind(s, block_x=grid, thread_x=thread)
    return s
