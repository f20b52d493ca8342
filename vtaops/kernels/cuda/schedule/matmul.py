"""CUDA schedule of matrix products and convolutions: tiles in shared memory, results in registers.

A thread block computes a tile of C. Its threads copy tiles of A and B to shared memory together
(cooperative fetching); each then sums its own small tile in registers. Virtual threads spread that
small tile over the block, so that neighbouring threads read neighbouring elements. Sizes that are
not a multiple of a tile are padded during the fetch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from vtaops.base.errors import ScheduleError
from vtaops.kernels.cuda.schedule.binding import (
    VECTOR,
    bind,
    check_block,
    fetch,
    inline,
    pipeline,
)
from vtaops.kernels.cuda.schedule.product import (
    Product,
    ProductOp,
    keep_sums,
    least_turns,
    product_of,
    schedule_declared,
)
from vtaops.kernels.cuda.target import WARP, CudaTarget


@dataclass(frozen=True)
class MatmulTile:
    """The distribution of C over threads.

    Attributes
    ----------
    block : (int, int)
        Rows and columns per thread block.
    thread : (int, int)
        Rows and columns per thread.
    vthreads : (int, int)
        Number of parts, far apart, that a thread's rows and columns are cut into.
    step : int
        Reduction elements per fetch.
    stages : int
        Tiles in shared memory at a time: with more than one, the next are fetched while the
        present ones are multiplied.
    parts : int
        Parts of each sum, in separate blocks; with more than one, a second kernel adds them up.
    """

    block: tuple[int, int] = (64, 64)
    thread: tuple[int, int] = (4, 4)
    vthreads: tuple[int, int] = (1, 1)
    step: int = 16
    stages: int = 1
    parts: int = 1

    def __post_init__(self) -> None:
        for axis in (0, 1):
            if self.block[axis] % self.thread[axis] or self.thread[axis] % self.vthreads[axis]:
                raise ScheduleError(
                    f"{self} does not divide: a block needs whole threads, a thread whole parts"
                )

    @property
    def threads(self) -> tuple[int, int]:
        """Extents of threadIdx.y and threadIdx.x."""
        return self.block[0] // self.thread[0], self.block[1] // self.thread[1]

    def turns(self, product: Product) -> float:
        """Return the bank cycles per reduction step: each thread's rows and columns."""
        rows, columns = self.thread
        return prod(self.block) * (rows + columns) / (rows * columns) / WARP

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory, float32; rows are padded by at most a vector."""
        rows = self.step * sum(self.block)
        return 4 * self.stages * (rows + VECTOR * (self.block[0] + self.step))


_CHOICE = (
    MatmulTile((128, 128), (8, 8), (2, 2), 16, stages=2),
    MatmulTile((64, 64), (4, 4), (1, 1), 16, stages=2),
    MatmulTile((32, 32), (2, 4), (1, 1), 16, stages=2),
    MatmulTile((16, 32), (2, 4), (1, 1), 16, stages=2),
    MatmulTile((16, 16), (2, 2), (1, 1), 16, stages=2),
)
"""Tiles from large, with the most reuse of fetched elements, to small."""


def choose_tile(op: ProductOp, target: CudaTarget) -> MatmulTile:
    """Choose the tile with the fewest shared-memory reads on the busiest multiprocessor."""
    return least_turns(_CHOICE, product_of(op), target)


def schedule_matmul(op: ProductOp, target: CudaTarget, tile: MatmulTile | None = None) -> Any:
    """Schedule a product.

    Raises
    ------
    ScheduleError
        If the tile does not fit into a block of the GPU.
    """
    tile = tile or choose_tile(op, target)
    check(op, tile, target)
    p, s = product_of(op), schedule_declared(op, tile.block, tile.step, tile.parts)
    total, result = keep_sums(s, "local")
    (ty, tx), (vy, vx) = tile.threads, tile.vthreads
    *group, i, j, k = s.get_loops(total)
    bi, vi, ti, i = s.split(i, [None, vy, ty, tile.thread[0] // vy])
    bj, vj, tj, j = s.split(j, [None, vx, tx, tile.thread[1] // vx])
    k, step = s.split(k, [None, tile.step])
    s.reorder(bi, bj, vi, vj, ti, tj, k, step, i, j)
    bind(s, block_y=bi, block_x=bj, block_z=[s.fuse(*group)] if group else [])
    bind(s, vthread_y=vi, vthread_x=vj, thread_y=ti, thread_x=tj)
    s.reverse_compute_at(result, tj)
    in_vectors = (tile.thread[1] // vx) % VECTOR == 0
    if in_vectors and _stored_together(op, tile):
        s.vectorize(s.get_loops(result)[-1])
    for operand in (0, 1):
        registers = _fetch(s, p, tile, operand, total, (k, step))
    if p.dtype_b == "float32" and in_vectors:
        s.vectorize(s.get_loops(registers)[-1])
    s.unroll(i)
    s.unroll(j)
    s.decompose_reduction(total, k)
    whole = p.whole(tile.block, tile.step * tile.parts)
    ahead = target.copies_ahead and p.dtype_a == "float32" and whole
    pipeline(s, k, tile.stages, asynchronous=ahead)
    return s


def _stored_together(op: ProductOp, tile: MatmulTile) -> bool:
    """Return whether the results of a vector lie beside each other in float32 memory.

    So do partial sums.
    """
    p = product_of(op)
    beside = p.together[2] >= VECTOR and p.n % tile.block[1] == 0
    return tile.parts > 1 or (beside and op.output.dtype == "float32")


def _fetch(
    s: Any, p: Product, tile: MatmulTile, operand: int, total: Any, steps: tuple[Any, Any]
) -> Any:
    """Fetch an operand of the sums `total` to shared memory, then to registers; return the latter.

    The loops `steps` run over tiles along the reduction, and within one.
    """
    copy = s.cache_read(total, operand, "shared")
    s.compute_at(copy, steps[0])
    inline(s, ("pad_a", "pad_b")[operand])
    turned = operand == 1 and p.transposed_b
    if operand == 0 or turned:
        s.storage_align(copy, 0, -2, VECTOR * VECTOR, VECTOR)  # rows start in different banks
    if turned:  # neighbours read along the rows of B, as stored
        s.reorder(*reversed(s.get_loops(copy)[-2:]))
    fetch(s, copy, tile.threads, 2, _vector(p, tile, operand))
    registers = s.cache_read(total, operand, "local")
    s.compute_at(registers, steps[1])
    return registers


def _vector(p: Product, tile: MatmulTile, operand: int) -> int:
    """Return the elements per load: a vector if rows are whole vectors."""
    turned = operand == 1 and p.transposed_b
    if p.dtype_a != "float32" or p.together[operand] < VECTOR or turned:
        return 1
    elements = tile.step * tile.block[operand]
    return VECTOR if elements % (prod(tile.threads) * VECTOR) == 0 else 1


def check(op: ProductOp, tile: MatmulTile, target: CudaTarget) -> None:
    """Reject a tile that a block of the GPU cannot hold.

    Raises
    ------
    ScheduleError
        If it needs too many threads or too much shared memory.
    """
    check_block(tile, prod(tile.threads), tile.shared_bytes, target)
