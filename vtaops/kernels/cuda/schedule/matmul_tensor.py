"""CUDA schedule of matrix products on tensor cores: float16 with float32 sums, int8 with int32.

As in the schedule without them, a thread block computes a tile of C from tiles of A and B in shared
memory; but each of its warps multiplies fragments of 16 x 16 x 16. The warps are side by side: each
has all rows of the block, so that the sums go back through shared memory one row of fragments at a
time. There the epilogue accesses single elements, and memory is written in whole lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vtaops.base.errors import ScheduleError
from vtaops.kernels.cuda.schedule import tensorcore
from vtaops.kernels.cuda.schedule.binding import bind, check_block, fetch, inline, pipeline
from vtaops.kernels.cuda.schedule.product import (
    BANKS,
    Product,
    ProductOp,
    keep_sums,
    least_turns,
    product_of,
    schedule_declared,
)
from vtaops.kernels.cuda.target import WARP, CudaTarget

_PAD = 16
"""Padding of shared-memory rows in elements: their starts fall in different banks.

Not less: PTX (section "Matrix Storage for WMMA") requires each row of a fragment to start at a
multiple of 32 bytes for float16, of 8 for int8.
"""


@dataclass(frozen=True)
class TensorTile:
    """The distribution of C's fragments over warps.

    Attributes
    ----------
    warps : int
        Warps per block, along the columns of C.
    fragments : (int, int)
        Fragments per warp along rows and columns.
    step : int
        Reduction elements per fetch, a multiple of 16.
    stages : int
        Tiles in shared memory at a time: with more than one, the next are fetched while the
        present ones are multiplied.
    parts : int
        Parts of each sum, in separate blocks; with more than one, a second kernel adds them up.
    """

    warps: int = 4
    fragments: tuple[int, int] = (4, 1)
    step: int = 32
    stages: int = 1
    parts: int = 1

    def __post_init__(self) -> None:
        if self.step % tensorcore.SIZE:
            raise ScheduleError(f"step is {self.step}; it must be a multiple of {tensorcore.SIZE}")

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of C per thread block."""
        down, across = self.fragments
        return down * tensorcore.SIZE, self.warps * across * tensorcore.SIZE

    @property
    def threads(self) -> int:
        """Threads per block."""
        return WARP * self.warps

    def turns(self, product: Product) -> float:
        """Return the bank cycles per reduction step: each warp's rows and columns."""
        return self.warps * sum(self.fragments) * tensorcore.SIZE * product.nbytes[0] / BANKS

    def shared_bytes(self, product: Product) -> int:
        """Return the bytes of shared memory: tiles of A and B, and a row of fragments of C."""
        size, _ = product.nbytes
        rows, columns = self.block
        b = columns * (self.step + _PAD) if product.transposed_b else self.step * (columns + _PAD)
        tiles = size * (rows * (self.step + _PAD) + b) * self.stages
        return tiles + 4 * tensorcore.SIZE * columns


def suits(op: ProductOp, target: CudaTarget) -> bool:
    """Return whether a GPU's tensor cores support a product's dtypes."""
    product = product_of(op)
    return product.dtype_a == product.dtype_b and target.tensor_cores(product.dtype_a)


_CHOICE = (
    TensorTile(4, (4, 2), 32, stages=2),
    TensorTile(4, (4, 1), 32, stages=2),
    TensorTile(4, (2, 1), 32, stages=2),
    TensorTile(2, (2, 1), 32, stages=2),
    TensorTile(2, (1, 1), 32, stages=2),
)
"""Tiles from large, with the most reuse of fragments, to small."""


def choose_tile(op: ProductOp, target: CudaTarget) -> TensorTile:
    """Choose the tile with the fewest shared-memory reads on the busiest multiprocessor."""
    return least_turns(_CHOICE, product_of(op), target)


def check(op: ProductOp, tile: TensorTile, target: CudaTarget) -> None:
    """Reject a tile that a block of the GPU cannot hold.

    Raises
    ------
    ScheduleError
        If tensor cores do not support the dtypes, or it needs too many threads or too much
        shared memory.
    """
    p = product_of(op)
    if not suits(op, target):
        raise ScheduleError(
            f"tensor cores multiply {' or '.join(tensorcore.OPERANDS)} by the same; here "
            f"{p.dtype_a} by {p.dtype_b} on {target.arch}"
        )
    check_block(tile, tile.threads, tile.shared_bytes(p), target)


def schedule_tensor(op: ProductOp, target: CudaTarget, tile: TensorTile | None = None) -> Any:
    """Schedule a product.

    Raises
    ------
    ScheduleError
        See `check`.
    """
    tile = tile or choose_tile(op, target)
    check(op, tile, target)
    size = tensorcore.SIZE
    p = product_of(op)
    s = schedule_declared(op, tile.block, tile.step, tile.parts, transposed=p.transposed_b)
    total, result = keep_sums(s, "wmma.accumulator")
    *group, i, j, k = s.get_loops(total)
    bi, fi, i = s.split(i, [None, tile.fragments[0], size])
    bj, warp, fj, j = s.split(j, [None, tile.warps, tile.fragments[1], size])
    ko, ki, k = s.split(k, [None, tile.step // size, size])
    s.reorder(bi, bj, warp, ko, ki, fi, fj, i, j, k)
    bind(s, block_y=bi, block_x=bj, block_z=[s.fuse(*group)] if group else [], thread_y=warp)
    for index, (name, operand) in enumerate((("pad_a", "a"), ("pad_b", "b"))):
        copy = s.cache_read(total, index, "shared")
        s.compute_at(copy, ko)
        inline(s, name)
        s.storage_align(copy, 0, -2, 2 * size, _PAD)
        fetch(s, copy, (tile.warps, WARP), 2, _vector(p, tile, index))
        fragment = s.cache_read(total, index, f"wmma.matrix_{operand}")
        s.compute_at(fragment, ki)
        by_columns = operand == "b" and p.transposed_b
        _tensorize(s, fragment, tensorcore.load(operand, p.dtype_a, by_columns))
    _store(s, op, tile, result, bj)
    first = s.decompose_reduction(total, ko)
    s.tensorize(s.get_loops(first)[-2], tensorcore.fill(op.accumulator))
    s.tensorize(i, tensorcore.multiply(p.dtype_a, p.transposed_b))
    in_vectors = min(_vector(p, tile, index) for index in (0, 1)) > 1
    whole = p.whole(tile.block, tile.step * tile.parts)
    ahead = target.copies_ahead and whole and in_vectors
    pipeline(s, ko, tile.stages, asynchronous=ahead)
    return s


def _store(s: Any, op: ProductOp, tile: TensorTile, result: Any, block: Any) -> None:
    """Write the sums: fragments to shared memory, one row per warp at a time, then elements."""
    size = tensorcore.SIZE
    staged = s.cache_read(result, _position(s, result, "product"), "shared")
    s.reverse_compute_at(staged, block, preserve_unit_loops=True)
    i, j = s.get_loops(staged)[-2:]
    fi, i = s.split(i, [None, size])
    s.reverse_compute_at(result, fi, preserve_unit_loops=True)
    warp, fj, j = s.split(j, [tile.warps, tile.fragments[1], size])
    s.reorder(warp, fj, i, j)
    bind(s, thread_y=warp)
    s.tensorize(i, tensorcore.store(op.accumulator))
    _, y, x = s.split(s.fuse(*s.get_loops(result)[-2:]), [None, tile.warps, WARP])
    bind(s, thread_y=y, thread_x=x)


def _position(s: Any, block: Any, name: str) -> int:
    """Return the index of the buffer of a given name among those that a block reads."""
    sources = [str(read.source.name) for read in s.get(block).reads]
    return next(index for index, source in enumerate(sources) if source.startswith(name))


def _tensorize(s: Any, block: Any, intrinsic: str) -> None:
    """Tensorize a block whose two inner loops cover whole fragments."""
    i, j = s.get_loops(block)[-2:]
    fi, i = s.split(i, [None, tensorcore.SIZE])
    fj, j = s.split(j, [None, tensorcore.SIZE])
    s.reorder(fi, fj, i, j)
    s.tensorize(i, intrinsic)


def _vector(product: Product, tile: TensorTile, operand: int) -> int:
    """Return the elements per load: 16 bytes if rows are whole vectors.

    For int8 4 if zeros may replace them: TVM generates no longer zero vectors of that type.
    """
    nbytes, _ = product.nbytes
    vector, elements = 16 // nbytes, tile.step * tile.block[operand]
    if nbytes == 1 and not product.whole(tile.block, tile.step * tile.parts):
        vector = 4
    together = product.together[operand] >= vector
    return vector if together and elements % (tile.threads * vector) == 0 else 1
