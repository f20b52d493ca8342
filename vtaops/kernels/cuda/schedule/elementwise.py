"""CUDA schedules of elementwise operators.

Two distributions of n elements over the threads: *continuous*, each thread takes a run of
neighbours, and *alternate*, neighbouring threads take neighbouring elements, so that one memory
transaction serves a whole warp. Each thread moves 16 bytes at once if the extents allow.
"""

from __future__ import annotations

from typing import Any

from vtaops.kernels.cuda.schedule.binding import VECTOR, bind, create_schedule
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.elementwise import BroadcastOp, NormalizeOp, UnaryOp

_THREADS = 256


def schedule_elementwise(
    op: BroadcastOp | UnaryOp | NormalizeOp,
    target: CudaTarget,
    order: str = "alternate",
    per_thread: int | None = None,
) -> Any:
    """Schedule an elementwise operator.

    Parameters
    ----------
    op : TensorOp
        The operator.
    target : CudaTarget
        The target GPU.
    order : str
        "alternate" or "continuous".
    per_thread : int, optional
        Elements per thread; by default one vector if the innermost extent allows, else one.
    """
    s = create_schedule(op.declare())
    block = s.get_sblock("result" if isinstance(op, NormalizeOp) else "C")
    vectors = op.output.shape[-1] % VECTOR == 0 and op.output.dtype == "float32"
    count = per_thread or (VECTOR if vectors else 1)
    whole_vector = vectors and count == VECTOR
    element = s.fuse(*s.get_loops(block))
    if order == "continuous" or whole_vector:
        grid, thread, run = s.split(element, [None, _THREADS, count])
        if whole_vector:
            s.vectorize(run)
    else:
        grid, run, thread = s.split(element, [None, count, _THREADS])
        s.reorder(grid, thread, run)
    bind(s, block_x=grid, thread_x=thread)
    return s
