"""CPU schedules of elementwise operators.

They are memory-bound. LLVM vectorizes the innermost loop; the schedule splits enough work into
chunks for the threads, and computes per-channel factors once per channel.
"""

from __future__ import annotations

from typing import Any

from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_ELEMENTS
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.elementwise import BroadcastOp, NormalizeOp, UnaryOp

_CHUNKS_PER_CORE = 4


def schedule_elementwise(op: BroadcastOp | UnaryOp, target: CpuTarget) -> Any:
    """Schedule elementwise arithmetic."""
    s = create_schedule(op.declare())
    loops = s.get_loops(s.get_sblock("C"))
    if op.flops < PARALLEL_ELEMENTS:
        return s
    if len(loops) == 1:
        extent = int(s.get(loops[0]).extent)
        outer, _ = s.split(loops[0], [_chunks(extent, target), None])
    else:
        outer = loops[0] if len(loops) == 2 else s.fuse(*loops[:-1])
    s.parallel(outer)
    return s


def _chunks(extent: int, target: CpuTarget) -> int:
    """Return a number of chunks that divides the extent if a useful one does."""
    most = target.cores * _CHUNKS_PER_CORE
    dividing = [n for n in range(most, target.cores - 1, -1) if extent % n == 0]
    return dividing[0] if dividing else target.cores


def schedule_normalize(op: NormalizeOp, target: CpuTarget) -> Any:
    """Schedule a batch normalization or scale and shift."""
    s = create_schedule(op.declare())
    n, c, _ = s.get_loops(s.get_sblock("result"))
    channel = s.fuse(n, c)
    if op.epilogue.batch_norm is not None:
        for name in ("bn_shift", "bn_scale"):
            s.compute_at(s.get_sblock(name), channel)
    if op.flops >= PARALLEL_ELEMENTS:
        s.parallel(channel)
    return s
