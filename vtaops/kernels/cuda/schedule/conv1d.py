"""CUDA schedule of the 1-D convolution: samples and taps in shared memory, results in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from vtaops.kernels.cuda.schedule.binding import bind, create_schedule, fetch, inline
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.convolution import Conv1dOp


@dataclass(frozen=True)
class Conv1dTile:
    """The distribution of results over threads.

    Attributes
    ----------
    threads : int
        Threads per block.
    vthreads : int
        Results per thread, `threads` apart.
    shared : bool
        Whether to fetch samples and taps to shared memory; otherwise read global memory directly.
    unroll : bool
        Whether to unroll the taps.
    """

    threads: int = 128
    vthreads: int = 4
    shared: bool = True
    unroll: bool = True


def tiles(op: Conv1dOp, target: CudaTarget) -> Iterator[Conv1dTile]:
    """Yield the candidate tiles."""
    for threads, virtual, shared in product((64, 128, 256), (1, 2, 4, 8), (False, True)):
        yield Conv1dTile(threads, virtual, shared)


def schedule_conv1d(op: Conv1dOp, target: CudaTarget, tile: Conv1dTile | None = None) -> Any:
    """Schedule the convolution."""
    tile = tile or Conv1dTile()
    s = create_schedule(op.declare())
    block = s.get_sblock("result")
    stored = s.cache_write(block, 0, "local")
    copies = [s.cache_read(block, index, "shared") for index in (0, 1)] if tile.shared else []
    inline(s, "padded")
    (i,) = s.get_loops(stored)
    grid, virtual, thread = s.split(i, [None, tile.vthreads, tile.threads])
    bind(s, block_x=grid, vthread_x=virtual, thread_x=thread)
    s.compute_at(block, thread, preserve_unit_loops=True)
    for copy in copies:
        s.compute_at(copy, grid, preserve_unit_loops=True)
        fetch(s, copy, (tile.threads,), 1)
    k = s.get_loops(block)[-1]
    if tile.unroll and op.kernel <= 32:
        s.unroll(k)
    s.decompose_reduction(block, k)
    return s
