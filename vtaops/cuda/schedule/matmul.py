"""CUDA schedules of matrix products: tiles in shared memory, results in registers.

A thread block computes a tile of C. Its threads copy tiles of A and B to shared memory together
(cooperative fetching), each then sums its own small tile in registers. Virtual threads spread that
small tile over the block, so that neighbouring threads read neighbouring elements. Sizes that are
no multiple of a tile are padded where tiles are fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import te, tirx

from vtaops.cuda.schedule.binding import (
    VECTOR,
    bind,
    create_schedule,
    fetch,
    fits,
    inline,
    largest_that_fills,
    pipeline,
)
from vtaops.cuda.target import CudaTarget
from vtaops.errors import ScheduleError
from vtaops.kernels.ops.common import Expr, Tensor, round_up, zero
from vtaops.kernels.ops.matmul import MatmulOp


@dataclass(frozen=True)
class MatmulTile:
    """How the elements of C are shared.

    Attributes
    ----------
    block : (int, int)
        Rows and columns of a thread block.
    thread : (int, int)
        Rows and columns of one thread.
    vthreads : (int, int)
        Parts, far apart, into which a thread's rows and columns are cut.
    step : int
        Elements of the sum that are fetched at a time.
    stages : int
        Tiles in shared memory at a time: with more than one, the next are fetched while the
        present ones are multiplied.
    """

    block: tuple[int, int] = (64, 64)
    thread: tuple[int, int] = (4, 4)
    vthreads: tuple[int, int] = (1, 1)
    step: int = 16
    stages: int = 1

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

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory, float32; rows are longer by a vector at most."""
        rows = self.step * sum(self.block)
        return 4 * self.stages * (rows + VECTOR * (self.block[0] + self.step))


def tiles(op: MatmulOp, target: CudaTarget) -> Iterator[MatmulTile]:
    """Yield the tiles to choose from."""
    shapes = [((32, 32), (2, 4)), ((64, 64), (4, 4)), ((128, 64), (8, 4)), ((128, 128), (8, 8))]
    for (block, thread), part, step, stages in product(
        shapes, ((1, 1), (2, 2)), (8, 16, 32), (1, 2, 3)
    ):
        tile = MatmulTile(block, thread, part, step, stages)
        if fits(check, op, tile, target):
            yield tile


_CHOICE = (
    MatmulTile((128, 128), (8, 8), (2, 2), 16, stages=2),
    MatmulTile((64, 64), (4, 4), (1, 1), 16, stages=2),
    MatmulTile((32, 32), (2, 4), (1, 1), 16),
)
"""Tiles from large, where a fetched element is used most often, to small."""


def choose_tile(op: MatmulOp, target: CudaTarget) -> MatmulTile:
    """Return the largest tile of which there are enough for all multiprocessors."""
    found: MatmulTile = largest_that_fills(_CHOICE, op.m, op.n, target)
    return found


def declare_padded(
    op: MatmulOp, block: tuple[int, int], step: int, transposed: bool = False
) -> list[Tensor]:
    """Declare the product over whole tiles, with the operands padded by inlined stages.

    With `transposed` the padded B stays (columns, steps), as it lies in memory.
    """
    rows, columns = round_up(op.m, block[0]), round_up(op.n, block[1])
    steps = round_up(op.k, step)
    tensors = op.placeholders()
    a, b = tensors["A"], tensors["B"]
    k = te.reduce_axis((0, steps), name="k")

    def left(i: Expr, s: Expr) -> Expr:
        return a[i, s] if (rows, steps) == (op.m, op.k) else _or_zero(a, i, s)

    def right(s: Expr, j: Expr) -> Expr:
        index = (j, s) if op.transposed_b else (s, j)
        return b(*index) if (steps, columns) == (op.k, op.n) else _or_zero(b, *index)

    pad_a = te.compute((rows, steps), left, name="pad_a")
    if transposed:
        pad_b = te.compute((columns, steps), lambda j, s: right(s, j), name="pad_b")
    else:
        pad_b = te.compute((steps, columns), right, name="pad_b")
    kind = op.accumulator
    total = te.compute(
        (rows, columns),
        lambda i, j: te.sum(
            pad_a[i, k].astype(kind) * pad_b[(j, k) if transposed else (k, j)].astype(kind), axis=k
        ),
        name="product",
    )
    finish = op.epilogue.bind(tensors, kind)
    result = te.compute((op.m, op.n), lambda i, j: finish(total[i, j], j, i, j), name="C")
    return [*tensors.values(), result]


def _or_zero(matrix: Tensor, *index: Expr) -> Expr:
    """Return an element, or zero outside of a matrix; one condition for a vector of a row."""
    rows, columns = map(int, matrix.shape)
    row, column = index
    whole = VECTOR if columns % VECTOR == 0 else 1
    inside = tirx.all(row < rows, column // whole < columns // whole)
    return tirx.if_then_else(inside, matrix(*index), zero(matrix.dtype))


def exact(op: MatmulOp, block: tuple[int, int], step: int) -> bool:
    """Return whether whole tiles make up the product, so that nothing is padded."""
    return op.m % block[0] == op.n % block[1] == op.k % step == 0


def schedule_matmul(op: MatmulOp, target: CudaTarget, tile: MatmulTile | None = None) -> Any:
    """Return the scheduled kernel of a product.

    Raises
    ------
    ScheduleError
        If the tile does not fit into a block of the GPU.
    """
    tile = tile or choose_tile(op, target)
    check(op, tile, target)
    s = create_schedule(declare_padded(op, tile.block, tile.step))
    inline(s, "bn_shift", "bn_scale")
    total, result = s.get_sblock("product"), s.get_sblock("C")
    (ty, tx), (vy, vx) = tile.threads, tile.vthreads
    i, j, k = s.get_loops(total)
    bi, vi, ti, i = s.split(i, [None, vy, ty, tile.thread[0] // vy])
    bj, vj, tj, j = s.split(j, [None, vx, tx, tile.thread[1] // vx])
    k, step = s.split(k, [None, tile.step])
    s.reorder(bi, bj, vi, vj, ti, tj, k, step, i, j)
    bind(s, block_y=bi, block_x=bj)
    bind(s, vthread_y=vi, vthread_x=vj, thread_y=ti, thread_x=tj)
    s.set_scope(total, 0, "local")
    s.reverse_compute_at(result, tj)
    in_vectors = (tile.thread[1] // vx) % VECTOR == 0
    if in_vectors and op.n % tile.block[1] == 0 and op.output.dtype == "float32":
        s.vectorize(s.get_loops(result)[-1])
    vectors = [_vector(op, tile, index) for index in (0, 1)]
    whole = exact(op, tile.block, tile.step) and op.dtype_a == "float32"
    for index, name in ((0, "pad_a"), (1, "pad_b")):
        copy = s.cache_read(total, index, "shared")
        s.compute_at(copy, k)
        inline(s, name)
        if index == 0 or op.transposed_b:
            s.storage_align(copy, 0, -2, VECTOR * VECTOR, VECTOR)  # rows begin in other banks
        if index == 1 and op.transposed_b:  # neighbours read along the rows of B as it lies
            s.reorder(*reversed(s.get_loops(copy)[-2:]))
        fetch(s, copy, tile.threads, 2, vectors[index])
        registers = s.cache_read(total, index, "local")
        s.compute_at(registers, step)
        if index == 1 and op.dtype_b == "float32" and in_vectors:
            s.vectorize(s.get_loops(registers)[-1])
    s.unroll(i)
    s.unroll(j)
    s.decompose_reduction(total, k)
    pipeline(s, k, tile.stages, asynchronous=whole and target.copies_ahead)
    return s


def _vector(op: MatmulOp, tile: MatmulTile, operand: int) -> int:
    """Return how many elements one load fetches: a vector where rows are whole vectors."""
    row = op.n if operand else op.k
    if op.dtype_a != "float32" or row % VECTOR or (operand == 1 and op.transposed_b):
        return 1
    threads = tile.threads[0] * tile.threads[1]
    elements = tile.step * tile.block[operand]
    return VECTOR if elements % (threads * VECTOR) == 0 else 1


def check(op: MatmulOp, tile: MatmulTile, target: CudaTarget) -> None:
    """Refuse a tile that a block of the GPU cannot hold.

    Raises
    ------
    ScheduleError
        If it needs too many threads or too much shared memory.
    """
    threads = tile.threads[0] * tile.threads[1]
    if threads > target.threads:
        raise ScheduleError(f"{tile} needs {threads} threads; a block has {target.threads}")
    if tile.shared_bytes > target.shared:
        raise ScheduleError(
            f"{tile} needs {tile.shared_bytes} bytes of shared memory; a block has {target.shared}"
        )
