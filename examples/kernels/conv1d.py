"""A primitive of course assignment A3: the 1-D convolution of a signal, step by step.

    python examples/kernels/conv1d.py         # the steps, timed on this CPU
    python examples/kernels/conv1d.py cuda    # on a GPU; without one, counted by the emulator

An operator of one's own needs no more than this: a description, schedules, and the steps to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from tvm import te

from vtaops.base.errors import ShapeError
from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.tiles import (
    PARALLEL_FLOPS,
    hold_in_registers,
    parallel_if,
    split_vector,
)
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.cuda.schedule.binding import bind, fetch, inline
from vtaops.kernels.cuda.schedule.binding import create_schedule as create_cuda_schedule
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.lessons import Lesson, lesson_table, run_lesson
from vtaops.kernels.lessons.stages import Stage, schedule_default
from vtaops.kernels.ops import TensorOp, TensorSpec
from vtaops.kernels.ops.common import (
    Expr,
    Tensor,
    ceil_div,
    inside_or,
    largest_divisor,
    specs,
    zero,
)


@dataclass(frozen=True)
class Conv1dOp(TensorOp):
    """1-D convolution of one signal with one kernel (cross-correlation, zero padding).

    Attributes
    ----------
    length : int
        Samples of the signal.
    kernel : int
        Taps.
    padding : (int, int)
        Zeros before and after the signal.
    flip : bool
        Whether the taps are reversed, as in signal processing (``numpy.convolve``).
    """

    length: int
    kernel: int
    padding: tuple[int, int] = (0, 0)
    flip: bool = False

    def __post_init__(self) -> None:
        if min(self.padding) < 0 or self.out_length < 1:
            raise ShapeError(
                f"a kernel of {self.kernel} taps does not fit into {self.length} samples padded by "
                f"{self.padding}"
            )

    @property
    def out_length(self) -> int:
        """Samples of the result."""
        return self.length + sum(self.padding) - self.kernel + 1

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return specs(data=(self.length,), kernel=(self.kernel,), result=(self.out_length,))

    @property
    def flops(self) -> int:
        return 2 * self.out_length * self.kernel

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        sums = self.sums(given, self.out_length, copied=any(self.padding))
        return te.compute((self.out_length,), sums, name="result")

    def sums(
        self, tensors: dict[str, Tensor], length: int, *, copied: bool
    ) -> Callable[[Expr], Expr]:
        """Return ``f(i)``, the sums of `length` results; if `copied`, of a zero-padded copy."""
        data, kernel = tensors["data"], tensors["kernel"]
        if copied:
            data = te.compute(
                (length + self.kernel - 1,),
                lambda i: inside_or(tensors["data"], (i - self.padding[0],), (0,), zero("float32")),
                name="padded",
            )
        k = te.reduce_axis((0, self.kernel), name="k")
        tap = self.kernel - 1 - k if self.flip else k
        return lambda i: te.sum(data[i + k] * kernel[tap], axis=k)


# --- on the CPU: blocks in the first-level cache, tiles in registers --------------------------

_BLOCK = 4096
"""Results per block: its padded samples stay in the first-level cache."""

_UNROLLED_TAPS = 32


def cpu_tiles(op: Conv1dOp, target: CpuTarget) -> tuple[int, ...]:
    """Return the candidate tiles: numbers of result vectors."""
    return 1, 2, 4, 8


def schedule_cpu(op: Conv1dOp, target: CpuTarget, vectors: int = 4) -> Any:
    """Schedule the convolution; a tile has `vectors` vectors of results."""
    tile = vectors * target.lanes
    tiles = ceil_div(op.out_length, tile)
    blocks = ceil_div(tiles * tile, _BLOCK)
    per_block = ceil_div(tiles, blocks)
    length = blocks * per_block * tile
    tensors = op.placeholders()
    total = te.compute((length,), op.sums(tensors, length, copied=True), name="total")
    result = te.compute((op.out_length,), lambda i: total[i], name="result")
    s = create_schedule([*tensors.values(), result])
    worth = op.flops >= PARALLEL_FLOPS
    sums = s.get_sblock("total")
    i, k = s.get_loops(sums)
    block, i, vector, lane = s.split(i, [None, per_block, vectors, target.lanes])
    s.reorder(k, vector, lane)
    s.reverse_compute_at(s.get_sblock("result"), i)
    parallel_if(s, block, worth and blocks > 1)
    if op.kernel <= _UNROLLED_TAPS:
        s.unroll(k)
    hold_in_registers(s, sums, k, lane, vector)
    s.compute_at(s.get_sblock("padded"), block)
    return s


def _conv1d_steps(op: Conv1dOp, target: CpuTarget, steps: int) -> Any:
    """Schedule the first `steps` steps: split, reorder, unroll, vectorise, cache."""
    s = create_schedule(op.declare())
    block = s.get_sblock("result")
    i, k = s.get_loops(block)
    i, inner = s.split(i, [None, largest_divisor(op.out_length, 4 * target.lanes)])
    if steps >= 2:
        s.reorder(i, k, inner)
    if steps >= 4:
        split_vector(s, inner, target.lanes)
    if steps >= 3 and op.kernel <= 32:
        s.unroll(k)
    if steps >= 5:
        for operand in (0, 1):
            s.compute_at(s.cache_read(block, operand, "local"), i)
    return s


def _conv1d_fused(op: Conv1dOp, target: CpuTarget) -> Any:
    """Schedule fused loops over blocks and taps."""
    s = _conv1d_steps(op, target, 2)
    i, k, inner = s.get_loops(s.get_sblock("result"))
    s.fuse(i, k)
    split_vector(s, inner, target.lanes)
    return s


# --- on a GPU: samples and taps in shared memory, results in registers ------------------------


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


def cuda_tiles(op: Conv1dOp, target: CudaTarget) -> Iterator[Conv1dTile]:
    """Yield the candidate tiles."""
    for threads, virtual, shared in product((64, 128, 256), (1, 2, 4, 8), (False, True)):
        yield Conv1dTile(threads, virtual, shared)


def schedule_cuda(op: Conv1dOp, target: CudaTarget, tile: Conv1dTile | None = None) -> Any:
    """Schedule the convolution."""
    tile = tile or Conv1dTile()
    s = create_cuda_schedule(op.declare())
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


CPU_STAGES = (
    Stage(
        "default",
        "The two loops as declared, after the signal is padded. LLVM keeps a vector of "
        "results in a register without being told.",
        schedule_default,
    ),
    Stage(
        "split",
        "The results are split into blocks of a few vectors.",
        partial(_conv1d_steps, steps=1),
    ),
    Stage(
        "reorder",
        "The loop over taps moves outside the loop over results: neighbouring samples "
        "are read together, but each partial sum now goes through memory.",
        partial(_conv1d_steps, steps=2),
    ),
    Stage(
        "unroll",
        "The loop over taps is unrolled.",
        partial(_conv1d_steps, steps=3),
    ),
    Stage(
        "vectorize",
        "The loop over results is vectorised.",
        partial(_conv1d_steps, steps=4),
    ),
    Stage(
        "caching",
        "The samples and taps of a block are first copied to small arrays. A CPU has a "
        "cache anyway, so the copies only add work.",
        partial(_conv1d_steps, steps=5),
    ),
    Stage(
        "fused",
        "Instead, the loops over blocks and taps are fused: no loop is left to unroll "
        "or to parallelise, and each iteration must check whether it starts a sum.",
        _conv1d_fused,
    ),
    Stage(
        "tuned",
        "The block stays in registers, its padded samples in the L1 cache; the threads "
        "share the blocks.",
        schedule_cpu,
    ),
)

CUDA_STAGES = (
    Stage(
        "threads",
        "One thread per result reads samples and taps from global memory.",
        partial(schedule_cuda, tile=Conv1dTile(256, 1, shared=False, unroll=False)),
    ),
    Stage(
        "unrolled",
        "The loop over taps is unrolled.",
        partial(schedule_cuda, tile=Conv1dTile(256, 1, shared=False)),
    ),
    Stage(
        "shared",
        "A block loads its samples and the taps to shared memory.",
        partial(schedule_cuda, tile=Conv1dTile(256, 1)),
    ),
    Stage(
        "vthread",
        "Each thread computes 4 results that lie one block of threads apart.",
        schedule_cuda,
    ),
)


def lesson(target: str = "cpu") -> Lesson:
    """Return the steps for a target, "cpu" or "cuda"."""
    stages = CPU_STAGES if target == "cpu" else CUDA_STAGES
    return Lesson("conv1d", target, lambda n: Conv1dOp(n, 13, (6, 6)), 1 << 16, "samples", stages)


if __name__ == "__main__":
    from rich import print as show

    show(lesson_table(run_lesson(lesson(*sys.argv[1:2])), "conv1d"))
