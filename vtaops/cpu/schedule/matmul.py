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

from tvm import te

from vtaops.cpu.schedule.dot import Products
from vtaops.cpu.schedule.prologue import Prologue
from vtaops.cpu.schedule.tiles import PARALLEL_FLOPS, hold_in_registers, parallel_if, store_vectors
from vtaops.cpu.schedule.transpose import transpose_squares
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, Tensor, ceil_div, largest_divisor, round_up, zero
from vtaops.kernels.ops.convolution import inside_or
from vtaops.kernels.ops.matmul import MatmulOp

_FEW_ROWS = 12
"""Rows of A up to which B is read as it lies, some rows of it at a time."""

_DOT_ROWS = 20
"""Rows of A up to which rows of a transposed B are read as they lie."""

_STEPS = 8
"""Rows of B that are added to a row of C at a time."""

_STRETCH = 1024
"""Columns of C that stay in the first-level cache meanwhile."""

_PACK_BYTES = 1 << 20
"""B is packed above this size: its rows then lie too far apart for the cache and the TLB."""


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
    best = min(
        ((r, v) for v in vectors for r in range(1, 15) if r * v <= target.accumulators),
        key=lambda tile: _cost(op, tile[0], tile[1] * lanes, lanes),
    )
    rows, columns = best[0], best[1] * lanes
    padded_b = op.n % columns != 0
    large = op.k * op.n * 4 > _PACK_BYTES
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
    return packing * tiles * (max(arithmetic, latency, loads) + 0.25)


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
    if tile is None and not (op.panel or op.transposed_b) and op.m <= _FEW_ROWS and op.k >= _STEPS:
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
    done = op.k // _STEPS * _STEPS
    outer = te.reduce_axis((0, op.k // _STEPS), name="outer")
    step = te.reduce_axis((0, _STEPS), name="step")

    def steps(i: Expr, j: Expr) -> Expr:
        k = outer * _STEPS + step
        return te.sum(a[i, k] * b[k, j], axis=[outer, step])

    ahead, s = _with_rest(op, tensors, te.compute((op.m, op.n), steps, name="product"), done)
    i, j = s.get_loops(s.get_sblock("C"))
    stretch, j = s.split(j, [None, min(_STRETCH, op.n)])
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
    columns = largest_divisor(op.n, 4)
    rows = largest_divisor(op.m, min(4, target.registers // 2 // columns))
    steps = op.k // lanes
    tensors = op.placeholders()
    a, b = tensors["A"], tensors["B"]
    step = te.reduce_axis((0, steps), name="step")
    fold = te.reduce_axis((0, lanes // quarter), name="fold")
    last = te.reduce_axis((0, quarter), name="last")
    partial = te.compute(
        (op.m, op.n, lanes),
        lambda i, j, v: te.sum(a[i, step * lanes + v] * b[j, step * lanes + v], axis=step),
        name="partial",
    )
    folded = te.compute(
        (op.m, op.n, quarter),
        lambda i, j, v: te.sum(partial[i, j, fold * quarter + v], axis=fold),
        name="folded",
    )
    joined = te.compute(
        (op.m, op.n), lambda i, j: te.sum(folded[i, j, last], axis=last), name="joined"
    )
    names = [*["tail"] * (op.k % lanes > 0), "joined", "folded", "partial"]
    ahead, s = _with_rest(op, tensors, joined, steps * lanes)
    i, j = s.get_loops(s.get_sblock("C"))
    i, row = s.split(i, [None, rows])
    j, column = s.split(j, [None, columns])
    s.reorder(j, i, row, column)
    outer = s.fuse(j, i)
    parallel_if(s, outer, op.flops >= PARALLEL_FLOPS)
    for name in names:
        s.compute_at(s.get_sblock(name), outer, preserve_unit_loops=True)
    block = s.get_sblock("folded")
    row, column, lane, fold = s.get_loops(block)[-4:]
    s.reorder(row, column, fold, lane)
    s.vectorize(lane)
    block = s.get_sblock("partial")
    row, column, lane, step = s.get_loops(block)[-4:]
    s.reorder(step, row, column, lane)
    hold_in_registers(s, block, step, lane, column, row)
    return ahead.attach(s)


def _with_rest(
    op: MatmulOp, tensors: dict[str, Tensor], total: Tensor, done: int
) -> tuple[Prologue, Any]:
    """Return the product, not yet scheduled, whose first `done` steps are `total`.

    The others, where there are any, are the stage ``tail``.
    """
    a, b = tensors["A"], tensors["B"]
    rest = te.reduce_axis((0, op.k - done), name="rest")

    def last_steps(i: Expr, j: Expr) -> Expr:
        right = (j, done + rest) if op.transposed_b else (done + rest, j)
        return te.sum(a[i, done + rest] * b(*right), axis=rest)

    parts = [total]
    if done < op.k:
        parts.append(te.compute((op.m, op.n), last_steps, name="tail"))
    ahead = Prologue(tensors)
    finish = ahead.epilogue(op.epilogue)

    def element(i: Expr, j: Expr) -> Expr:
        return parts[0][i, j] if len(parts) == 1 else parts[0][i, j] + parts[1][i, j]

    return ahead, ahead.create_schedule(op.finished(element, finish))
