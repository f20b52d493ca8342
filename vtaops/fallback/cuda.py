"""CUDA schedules of VTA operators on plain tensors: a thread for each element of the result."""

from __future__ import annotations

from typing import Any

from vtaops.cuda.schedule.binding import bind, create_schedule
from vtaops.cuda.target import CudaTarget
from vtaops.fallback.plain import PlainOp, inline_into_result

_THREADS = 256


def schedule_plain(op: PlainOp, _: CudaTarget) -> Any:
    """Return the scheduled kernel of an operator of the VTA."""
    s = create_schedule(op.declare())
    sums = inline_into_result(s)
    element = s.fuse(*s.get_loops(s.get_sblock("res")))
    grid, thread = s.split(element, [None, min(_THREADS, int(s.get(element).extent))])
    bind(s, block_x=grid, thread_x=thread)
    for block in sums:
        s.compute_at(block, thread)
        s.set_scope(block, 0, "local")
    return s
