"""Shared by all CUDA schedules: binding loops to threads, cooperative fetching."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import Schedule

from vtaops.base.errors import ScheduleError
from vtaops.kernels.build import block_names, create_function
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.common import Tensor

VECTOR = 4
"""float32 elements of the widest load or store (16 bytes)."""


def create_schedule(tensors: list[Tensor]) -> Schedule:
    """Return the unscheduled kernel with the arguments `tensors` (inputs, then output).

    Batch normalization factors are inlined: arithmetic is cheap here, memory is not.
    """
    s = Schedule(tvm.IRModule({"main": create_function(tensors, aligned=True)}))
    inline(s, "bn_shift", "bn_scale")
    return s


def inline(s: Any, *names: str) -> None:
    """Inline the named stages that exist, in consumer order, last to first."""
    for name in names:
        if name in block_names(s):
            s.compute_inline(s.get_sblock(name))


def check_block(tile: Any, threads: int, shared: int, target: CudaTarget) -> None:
    """Reject a tile that exceeds the threads or shared memory of a block.

    Raises
    ------
    ScheduleError
        If it does.
    """
    if threads > target.threads:
        raise ScheduleError(f"{tile} needs {threads} threads; a block has {target.threads}")
    if shared > target.shared:
        raise ScheduleError(
            f"{tile} needs {shared} bytes of shared memory; a block has {target.shared}"
        )


def bind(s: Any, **loops: Any) -> None:
    """Bind loops to ``blockIdx``, ``threadIdx`` and ``vthread``, by ``block_x=loop``.

    A value may be a list with the loop, or an empty list.
    """
    for name, bound in loops.items():
        kind, axis = name.split("_")
        prefix = "vthread" if kind == "vthread" else f"{kind}Idx"
        for loop in bound if isinstance(bound, list) else [bound]:
            s.bind(loop, f"{prefix}.{axis}")


def fetch(s: Any, block: Any, threads: tuple[int, ...], dims: int, vector: int = 1) -> Any:
    """Fill a tile in shared memory cooperatively by all threads of a block.

    Returns the loop of threadIdx.x.

    Parameters
    ----------
    s : Schedule
        The schedule.
    block : SBlockRV
        The copy, already placed.
    threads : tuple of int
        Extents of threadIdx, (y, x) or (z, y, x).
    dims : int
        Number of innermost loops over the tile.
    vector : int
        Elements per load.
    """
    tile = s.fuse(*s.get_loops(block)[-dims:])
    _, *axes, lane = s.split(tile, [None, *threads, vector])
    bind(s, **{f"thread_{axis}": loop for axis, loop in zip("xyz", reversed(axes), strict=False)})
    if vector > 1:
        s.vectorize(lane)
    return axes[-1]


def pipeline(s: Any, loop: Any, stages: int, *, asynchronous: bool) -> None:
    """Pipeline a loop: fetch tiles ahead of their use.

    Parameters
    ----------
    s : Schedule
        The schedule.
    loop : LoopRV
        Contains two fetches to shared memory, then their use.
    stages : int
        Tiles in shared memory at a time; 1 disables pipelining.
    asynchronous : bool
        Fetch by ``cp.async``, bypassing registers. Its unit is 4 to 16 bytes, so it cannot fetch
        elements that a condition may replace.
    """
    if stages < 2:
        return
    s.annotate(loop, "software_pipeline_stage", [0, 0, stages - 1])
    s.annotate(loop, "software_pipeline_order", [0, 1, 2])
    if asynchronous:
        s.annotate(loop, "software_pipeline_async_stages", [0])
