"""CPU schedules of matrix products.

A tile of rows x lanes of C stays in vector registers over the whole sum (the write cache; without
it every step loads and stores C). B is packed into panels as wide as a tile where rows of B would
collide in the cache, or where N is no multiple of the tile. Tails are padded in the packing and cut
off when the tile is written back: a predicate in the inner loop would cost the vectors.

Few rows do not pay for packing. Where B is (N, K), rows of A meet rows of B: the lanes are steps of
the sum, joined at its end. Where B is (K, N), some of its rows at a time are added to those of C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

from tvm import te, tirx

from vtaops.cpu.schedule.dot import Products
from vtaops.cpu.schedule.prologue import Prologue
from vtaops.cpu.schedule.tiles import (
    FIRST_CACHE,
    PARALLEL_FLOPS,
    STEPS,
    hold_in_registers,
    parallel_if,
    store_vectors,
    stretch_of,
)
from vtaops.cpu.schedule.transpose import transpose_squares
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, Tensor, ceil_div, round_up, zero
from vtaops.kernels.ops.convolution import inside_or
from vtaops.kernels.ops.matmul import MatmulOp

_FEW_ROWS = 12
"""Rows of A up to which B is read as it lies, some rows of it at a time."""

_DOT_ROWS = 20
"""Rows of A up to which rows of a transposed B are read as they lie."""

_LONG_DOT = 20
"""Vectors of a row below which no tile reaches over the last one.

LLVM unrolls so few, and computes each sum alone, behind the condition that its result exists.
"""

_PACK_BYTES = 1 << 20
"""B is packed above this size: its rows then lie too far apart for the cache and the TLB."""

_REUSES = 32
"""Rows of A from which on packing pays for any B that fills half of the first-level cache.

Rows of B that lie apart share few sets of it: 256 x 256 takes 0.86 of the time packed, 64 x 64
1.03.
"""


@dataclass(frozen=True)
class MatmulTile:
    """Register tile and packing of a matrix product.

    Attributes
    ----------
    rows, columns : int
        Elements of C held in registers.
    pack_a, pack_b : bool
        Copy the operand into the order in which tiles read it.
    """

    rows: int
    columns: int
    pack_a: bool
    pack_b: bool


def choose_tile(op: MatmulOp, target: CpuTarget) -> MatmulTile:
    """Return the tile for an operator: few padded elements, many busy accumulators."""
    lanes = target.lanes
    vectors = (op.panel // lanes,) if op.panel else (1, 2, 3, 4)
    # Sums, vectors of B, and an element of A, which only AVX-512 multiplies from memory.
    free = target.registers - (lanes < 16)
    best = min(
        ((r, v) for v in vectors for r in range(1, 15) if (r + 1) * v <= free),
        key=lambda tile: _cost(op, tile[0], tile[1] * lanes, lanes),
    )
    rows, columns = best[0], best[1] * lanes
    padded_b = op.n % columns != 0
    large = op.k * op.n * 4 > (_PACK_BYTES if op.m < _REUSES else FIRST_CACHE // 2)
    pack_b = not op.panel and (op.transposed_b or padded_b or large)
    return MatmulTile(rows, columns, op.m % rows != 0, pack_b)


def tiles(op: MatmulOp, target: CpuTarget) -> Iterator[MatmulTile]:
    """Yield the tiles to choose from."""
    for vectors in (1, 2, 4):
        for rows in (2, 4, 6, 8, 12, 14, 16):
            columns = vectors * target.lanes
            if rows * vectors <= target.accumulators:
                for packed in {op.transposed_b or op.n % columns != 0, True}:
                    yield MatmulTile(rows, columns, op.m % rows != 0, packed)


def _cost(op: MatmulOp, rows: int, columns: int, lanes: int) -> float:
    """Estimate cycles of a product: padded multiply-adds, or operand loads where these bound."""
    vectors = columns // lanes
    tiles = round_up(op.m, rows) // rows * (round_up(op.n, columns) // columns)
    arithmetic = rows * vectors / 2  # two multiply-adds per cycle
    latency = 4.0  # of a multiply-add: fewer accumulators than 8 leave the units waiting
    loads = (rows + vectors) / 2 + 0.5
    packing = 1.03 if op.m % rows else 1.0
    narrow = 1.5 if vectors == 1 else 1.0
    return narrow * packing * tiles * (max(arithmetic, latency, loads) + 0.25)


def declare_tiled(
    op: MatmulOp, tile: MatmulTile, tensors: dict[str, Tensor], finish: Any
) -> Tensor:
    """Declare the product with its packing stages; ``product`` is padded to whole tiles."""
    a, b = tensors["A"], tensors["B"]
    rows, columns = round_up(op.m, tile.rows), round_up(op.n, tile.columns)
    k = te.reduce_axis((0, op.k), name="k")

    whole = gcd(op.n, tile.columns)

    def within(j: Expr) -> Expr:
        if op.n == columns:
            return j
        return te.min(j // whole, op.n // whole - 1) * whole + j % whole

    def right(j: Expr, step: Expr) -> Expr:
        if op.panel:
            return b[j // op.panel, step, j % op.panel]
        if op.transposed_b:
            return b[within(j), step]
        return b[step, j] if op.n == columns else inside_or(b, (step, j), (1,), zero(op.dtype_b))

    left_operand = a
    if tile.pack_a:
        left_operand = te.compute(
            (rows, op.k), lambda i, s: inside_or(a, (i, s), (0,), zero(op.dtype_a)), name="pack_a"
        )
    if tile.pack_b:
        panels = te.compute(
            (columns // tile.columns, op.k, tile.columns),
            lambda p, s, j: right(p * tile.columns + j, s),
            name="pack_b",
        )

    def product(i: Expr, j: Expr) -> Expr:
        value = panels[j // tile.columns, k, j % tile.columns] if tile.pack_b else right(j, k)
        return te.sum(left_operand[i, k] * value, axis=k)

    total = te.compute((rows, columns), product, name="product")
    return op.finished(total, finish)


def schedule_matmul(op: MatmulOp, target: CpuTarget, tile: MatmulTile | None = None) -> Any:
    """Return the scheduled kernel of a float32 product."""
    if (
        tile is None
        and not op.panel
        and op.transposed_b
        and op.m <= _DOT_ROWS
        and op.k >= 2 * target.lanes
    ):
        return schedule_row_dots(op, target)
    if tile is None and not (op.panel or op.transposed_b) and op.m <= _FEW_ROWS and op.k >= STEPS:
        return schedule_row_sums(op)
    tile = tile or choose_tile(op, target)
    tensors = op.placeholders()
    ahead = Prologue(tensors)
    s = ahead.create_schedule(declare_tiled(op, tile, tensors, ahead.epilogue(op.epilogue)))
    squares = tile.pack_b and op.transposed_b and op.n % target.lanes == op.k % target.lanes == 0
    # A panel stays in the cache while it is used.
    inside = squares and ceil_div(op.n, tile.columns) >= target.cores
    schedule_tiles(s, op, tile, Products.of(op.dtype_a, target), transposed_inside=inside)
    return ahead.attach(s)


def schedule_tiles(
    s: Any, op: MatmulOp, tile: MatmulTile, products: Products, *, transposed_inside: bool = False
) -> None:
    """Hold tiles of the sums ``product`` in registers, to the result ``C``; pack on all threads.

    With `transposed_inside` each panel of B is packed just before it is used, in squares.
    """
    lanes, worth = products.lanes, op.flops >= PARALLEL_FLOPS
    product, result = s.get_sblock("product"), s.get_sblock("C")
    i, j, k, *byte = s.get_loops(product)
    i, row = s.split(i, [None, tile.rows])
    j, vector, lane = s.split(j, [None, tile.columns // lanes, lanes])
    s.reorder(j, i, k, row, vector, lane, *byte)
    if transposed_inside:
        panels = s.get_sblock("pack_b")
        s.compute_at(panels, j, preserve_unit_loops=True)
        step, column = s.get_loops(panels)[-2:]
        transpose_squares(s, step, column, lanes)
        outer, inner = j, i
    else:
        outer = inner = s.fuse(j, i)
    s.reverse_compute_at(result, inner, preserve_unit_loops=True)
    if op.m % tile.rows == op.n % tile.columns == 0:
        store_vectors(s, result, 2, lanes)
    parallel_if(s, outer, worth)
    hold_in_registers(s, product, k, lane, vector, row, intrinsic=products.intrinsic)
    packed_apart = tile.pack_b and not transposed_inside
    for name, packed in (("pack_a", tile.pack_a), ("pack_b", packed_apart)):
        if packed:
            parallel_if(s, s.get_loops(s.get_sblock(name))[0], worth)


def schedule_row_sums(op: MatmulOp) -> Any:
    """Return the scheduled kernel of a float32 product of few rows with B as (K, N).

    B is read once, from its first row to its last. LLVM makes vectors of the innermost loop.
    """
    tensors = op.placeholders()
    a, b = tensors["A"], tensors["B"]
    done = op.k // STEPS * STEPS
    outer = te.reduce_axis((0, op.k // STEPS), name="outer")
    step = te.reduce_axis((0, STEPS), name="step")

    rest = te.reduce_axis((0, op.k - done), name="rest")

    def steps(i: Expr, j: Expr) -> Expr:
        k = outer * STEPS + step
        return te.sum(a[i, k] * b[k, j], axis=[outer, step])

    def last_steps(i: Expr, j: Expr) -> Expr:
        return te.sum(a[i, done + rest] * b[done + rest, j], axis=rest)

    parts = [te.compute((op.m, op.n), steps, name="product")]
    if done < op.k:
        parts.append(te.compute((op.m, op.n), last_steps, name="tail"))
    ahead = Prologue(tensors)
    finish = ahead.epilogue(op.epilogue)
    s = ahead.create_schedule(op.finished(lambda *at: sum(part(*at) for part in parts), finish))
    i, j = s.get_loops(s.get_sblock("C"))
    stretch, j = s.split(j, [None, stretch_of(op.n)])
    s.reorder(stretch, i, j)
    parallel_if(s, stretch, op.flops >= PARALLEL_FLOPS)
    if done < op.k:
        block = s.get_sblock("tail")
        s.compute_at(block, stretch, preserve_unit_loops=True)
        i, j, k = s.get_loops(block)[-3:]
        s.reorder(k, i, j)
        s.decompose_reduction(block, k)
    block = s.get_sblock("product")
    s.compute_at(block, stretch, preserve_unit_loops=True)
    i, j, k, step = s.get_loops(block)[-4:]
    s.reorder(k, i, j, step)
    s.unroll(step)
    s.decompose_reduction(block, k)
    return ahead.attach(s)


def schedule_row_dots(op: MatmulOp, target: CpuTarget) -> Any:
    """Return the scheduled kernel of a float32 product with B as (N, K): no packing at all."""
    lanes, quarter = target.lanes, 4
    rows, columns = _dot_tile(op, target)
    shape = round_up(op.m, rows), round_up(op.n, columns)
    tensors = op.placeholders()
    a, b = tensors["A"], tensors["B"]
    step = te.reduce_axis((0, op.k // lanes), name="step")
    fold = te.reduce_axis((0, lanes // quarter), name="fold")
    last = te.reduce_axis((0, quarter), name="last")

    def products(i: Expr, j: Expr, k: Expr) -> Expr:
        # What lies behind the last row is cut off in the end.
        i, j = te.min(i, op.m - 1), te.min(j, op.n - 1)
        return a[i, k] * b[j, k]

    partial = te.compute(
        (*shape, lanes),
        lambda i, j, v: te.sum(products(i, j, step * lanes + v), axis=step),
        name="partial",
    )

    def sums(i: Expr, j: Expr, lane: Expr) -> Expr:
        if op.k % lanes == 0:
            return partial[i, j, lane]
        # The last steps, less than a vector, end one that begins with steps that are done already.
        end, nothing = products(i, j, op.k - lanes + lane), zero("float32")
        return partial[i, j, lane] + tirx.Select(lane >= lanes - op.k % lanes, end, nothing)

    folded = te.compute(
        (*shape, quarter),
        lambda i, j, v: te.sum(sums(i, j, fold * quarter + v), axis=fold),
        name="folded",
    )
    joined = te.compute(shape, lambda i, j: te.sum(folded[i, j, last], axis=last), name="joined")
    ahead = Prologue(tensors)
    s = ahead.create_schedule(op.finished(joined, ahead.epilogue(op.epilogue)))
    i, j, _ = s.get_loops(s.get_sblock("joined"))
    i, row = s.split(i, [None, rows])
    j, column = s.split(j, [None, columns])
    s.reorder(j, i, row, column)
    outer = s.fuse(j, i)
    s.reverse_compute_at(s.get_sblock("C"), outer, preserve_unit_loops=True)
    parallel_if(s, outer, op.flops >= PARALLEL_FLOPS)
    for name in ("folded", "partial"):
        s.compute_at(s.get_sblock(name), outer, preserve_unit_loops=True)
    block = s.get_sblock("folded")
    row, column, lane, fold = s.get_loops(block)[-4:]
    s.reorder(row, column, fold, lane)
    s.vectorize(lane)
    for loop in (row, column, fold, *s.get_loops(s.get_sblock("joined"))[-3:]):
        s.unroll(loop)
    block = s.get_sblock("partial")
    row, column, lane, step = s.get_loops(block)[-4:]
    s.reorder(step, row, column, lane)
    hold_in_registers(s, block, step, lane, column, row)
    return ahead.attach(s)


def _dot_tile(op: MatmulOp, target: CpuTarget) -> tuple[int, int]:
    """Return the rows of A and of B that meet at once: few loads, few of them behind the last."""

    def cost(tile: tuple[int, int]) -> float:
        rows, columns = tile
        tiles = ceil_div(op.m, rows) * ceil_div(op.n, columns)
        return tiles * max(rows * columns / 2, (rows + columns) / 2, 4.0)  # 4: see `_cost`

    sides = [(r, c) for c in (4, 3, 2, 1) for r in (4, 3, 2, 1) if r * c <= target.registers // 2]
    if op.k < _LONG_DOT * target.lanes:
        sides = [(r, c) for r, c in sides if op.m % r == op.n % c == 0]
    return min(sides, key=cost)
