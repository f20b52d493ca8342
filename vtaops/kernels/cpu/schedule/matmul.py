"""CPU schedules of matrix products.

A tile of rows x lanes of C stays in vector registers over the whole sum (the write cache; without
it every step loads and stores C). B is packed into panels as wide as a tile if rows of B would
collide in the cache. The last tiles end with C, see `vtaops.kernels.cpu.schedule.rewrites`.

Few rows do not pay for packing. If B is (N, K), rows of A meet rows of B: the lanes are steps of
the sum, reduced at its end. If B is (K, N), a few of its rows at a time are added to those of C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import te, tirx

from vtaops.kernels.build import block_names
from vtaops.kernels.cpu.schedule.dot import Products
from vtaops.kernels.cpu.schedule.rewrites import Places, Prologue, overlapping, placed
from vtaops.kernels.cpu.schedule.tiles import (
    FIRST_CACHE,
    HIDING,
    PARALLEL_FLOPS,
    STEPS,
    add_to_stretch,
    hold_in_registers,
    parallel_if,
    rows_of_tile,
    store_vectors,
    stretch_of,
)
from vtaops.kernels.cpu.schedule.transpose import transpose_squares
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, Tensor, ceil_div, round_up, zero
from vtaops.kernels.ops.matmul import MatmulOp

_FEW_ROWS = (1, 12)
"""Maximum rows of A for adding up rows of B; and the same if B would have to be packed."""

_DOT_ROWS = 20
"""Maximum rows of A for reading rows of a transposed B in place; for short sums, the number of
vectors in a row of B, since each sum has lanes to reduce."""

_PACK_BYTES = 1 << 20
"""B is packed above this size: its rows are then too far apart for the cache and the TLB."""

_REUSES = 32
"""Rows of A from which packing pays for any B that fills half of the first-level cache.

Distant rows of B share few cache sets: packed, 256 x 256 takes 0.86 of the time, 64 x 64 takes
1.03.
"""


_PANEL_BYTES = 1 << 17
"""Maximum bytes of a panel of one vector: longer ones share pages and lines of B with others."""

_SAME_SET = 1024
"""Elements between lines that compete for one set of the first-level cache."""

_WAYS = 8
"""Lines of a set."""

_LINE = 4
"""Vectors of 16 bytes to a cache line: B's columns are packed by lines."""


@dataclass(frozen=True)
class MatmulTile:
    """Register tile and packing of a matrix product.

    Attributes
    ----------
    rows, columns : int
        Elements of C held in registers.
    pack_b : bool
        Whether to copy B into the order in which tiles read it.
    """

    rows: int
    columns: int
    pack_b: bool


def choose_tile(op: MatmulOp, target: CpuTarget) -> MatmulTile:
    """Choose the tile for an operator: few padded elements, many busy accumulators."""
    rows, vectors = min(
        _sides(op, target), key=lambda sides: _cost(op, sides[0], sides[1], target.lanes)
    )
    large = op.k * op.n * 4 > (_PACK_BYTES if op.m < _REUSES else FIRST_CACHE // 2)
    pack_b = not op.panel and (op.transposed_b or op.n < target.lanes or large)
    return MatmulTile(rows, vectors * target.lanes, pack_b)


def _sides(op: MatmulOp, target: CpuTarget) -> list[tuple[int, int]]:
    """Return the rows and vectors of the tiles to choose from."""
    most = min(op.m, _WAYS if op.k % _SAME_SET == 0 else 14)
    if _narrow(op, target):
        return [(min(most, rows_of_tile(op.m, 1, target)), 1)]
    # Sums, vectors of B that serve several rows, and an element of A.
    free = target.registers - 1
    vectors = [count * max(op.panel // target.lanes, 1) for count in (1, 2, 3, 4)]
    return [(r, v) for v in vectors for r in range(1, most + 1) if (r + (r > 1)) * v <= free]


def _narrow(op: MatmulOp, target: CpuTarget) -> bool:
    """Whether tiles are one vector wide; layers' panels are wider, and one row needs more sums."""
    near = op.transposed_b or 4 * target.lanes * op.k <= _PANEL_BYTES
    return target.narrow_tiles and op.m >= HIDING and not op.panel and near


def _cost(op: MatmulOp, rows: int, vectors: int, lanes: int) -> float:
    """Estimate the cycles of a product: padded multiply-adds, or operand loads if these bound."""
    tiles = ceil_div(op.m, rows) * ceil_div(op.n, vectors * lanes)
    arithmetic = rows * vectors / 2  # two multiply-adds per cycle
    latency = 4.0  # of a multiply-add: fewer accumulators than 8 stall the units
    loads = max((rows + vectors) / 2 + 0.5, vectors)  # of B one per cycle, from the next cache
    narrow = 1.5 if vectors == 1 else 1.0
    return narrow * tiles * (max(arithmetic, latency, loads) + 0.25)


def declare_tiled(op: MatmulOp, tile: MatmulTile, ahead: Prologue, lanes: int) -> Tensor:
    """Declare the product with its packing stage, for whole tiles; see `places_of`.

    Cropped columns hold arbitrary values: B's last column stands in for missing ones.
    """
    a, b = ahead.tensors["A"], ahead.tensors["B"]
    rows, columns = round_up(op.m, tile.rows), round_up(op.n, tile.columns)
    k = te.reduce_axis((0, op.k), name="k")
    places = places_of(op, tile, lanes)

    def right(j: Expr, step: Expr) -> Expr:
        if op.panel:
            panel = j // op.panel
            if columns > round_up(op.n, op.panel):
                panel = tirx.min(panel, ceil_div(op.n, op.panel) - 1)
            return b[panel, step, j % op.panel]
        column = places(0, j)[1] if vectors_end(op, lanes) else tirx.min(j, op.n - 1)
        return b[column, step] if op.transposed_b else b[step, column]

    # Columns of B are written as whole vectors, rows of B are read as far as a tile needs them.
    panel = lanes if op.transposed_b else tile.columns
    if tile.pack_b:
        square = lanes if in_squares(op, tile, lanes) else 1
        panels = te.compute(
            (columns // panel, round_up(op.k, square), panel),
            lambda p, s, j: right(p * panel + j, placed(s, op.k, square)),
            name="pack_b",
        )

    def product(i: Expr, j: Expr) -> Expr:
        value = panels[j // panel, k, j % panel] if tile.pack_b else right(j, k)
        return te.sum(a[places(i, 0)[0], k] * value, axis=k)

    total = te.compute((rows, columns), product, name="product")
    tiled = rows, columns if vectors_end(op, lanes) else op.n
    return op.result(total, ahead.epilogue(), tiled, places)


def vectors_end(op: MatmulOp, lanes: int) -> bool:
    """Whether the last vectors end with the result; otherwise they are cropped.

    Prepacked panels, whose position is fixed, and fewer columns than a vector are cropped.
    """
    return op.panel == 0 and op.n >= lanes


def places_of(op: MatmulOp, tile: MatmulTile, lanes: int) -> Places:
    """Return the positions of whole tiles' elements; the last rows end with the result, too."""
    vectors = vectors_end(op, lanes)

    def places(i: Expr, j: Expr) -> tuple[Expr, Expr]:
        return placed(i, op.m, tile.rows), placed(j, op.n, lanes, tile.columns) if vectors else j

    return places


def in_squares(op: MatmulOp, tile: MatmulTile, lanes: int, group: int = 1) -> bool:
    """Whether B is transposed in squares of elements of `group` steps when it is packed."""
    squares = tile.pack_b and op.transposed_b and op.k % group == 0
    return squares and min(op.n, op.k // group) >= lanes


def schedule_matmul(op: MatmulOp, target: CpuTarget, tile: MatmulTile | None = None) -> Any:
    """Schedule a float32 product."""
    if tile is None and not op.panel:
        few = _FEW_ROWS[4 * op.k * op.n > _PACK_BYTES]
        if op.transposed_b and op.m <= min(_DOT_ROWS, op.k // target.lanes):
            return schedule_row_dots(op, target)
        if not op.transposed_b and op.m <= few and op.k >= STEPS:
            return schedule_row_sums(op)
    tile = tile or choose_tile(op, target)
    return _schedule_panels(op, target, replace(tile, rows=min(tile.rows, op.m)))


def _schedule_panels(op: MatmulOp, target: CpuTarget, tile: MatmulTile) -> Any:
    """Schedule by tiles of C, with at most as many rows as C has."""
    lanes = target.lanes
    ahead = Prologue(op)
    s = ahead.create_schedule(declare_tiled(op, tile, ahead, lanes))
    squares = in_squares(op, tile, lanes)
    schedule_tiles(s, op, tile, Products.of(op.dtype_a, target), target.cores if squares else 0)
    return end_tiles(ahead.attach(s), op, tile, lanes, squares)


def end_tiles(
    s: Any, op: MatmulOp, tile: MatmulTile, lanes: int, squares: bool, group: int = 1
) -> Any:
    """Return the finished schedule with its last tiles, and squares, moved to end with C and B."""
    s = overlapping(s, "C", places_of(op, tile, lanes), op.output.shape)
    steps = op.k // group
    if squares and steps % lanes:
        s = overlapping(s, "pack_b", lambda p, k, *at: (p, placed(k, steps, lanes), *at))
    return s


def schedule_tiles(
    s: Any, op: MatmulOp, tile: MatmulTile, products: Products, squares: int = 0
) -> None:
    """Hold tiles of the sums ``product`` in registers, up to the result ``C``; pack in parallel.

    `squares` is the number of threads for packing B in squares, if any: each panel is packed just
    before its use, if there is one per thread and it has whole squares.
    """
    lanes, worth = products.lanes, op.flops >= PARALLEL_FLOPS
    product, result = s.get_sblock("product"), s.get_sblock("C")
    i, j, k, *byte = s.get_loops(product)
    extents = [[int(s.get(at).extent) for at in loops] for loops in ((i, j), s.get_loops(result))]
    i, row = s.split(i, [None, tile.rows])
    j, vector, lane = s.split(j, [None, tile.columns // lanes, lanes])
    s.reorder(j, i, k, row, vector, lane, *byte)
    whole = op.k % (lanes * products.group) == 0
    near = squares and whole and ceil_div(op.n, tile.columns) >= squares
    outer, inner = (j, i) if near else [s.fuse(j, i)] * 2
    s.reverse_compute_at(result, inner, preserve_unit_loops=True)
    if extents[0] == extents[1]:
        store_vectors(s, result, 2, lanes)
    parallel_if(s, outer, worth)
    if "pack_a" in block_names(s):
        parallel_if(s, s.get_loops(s.get_sblock("pack_a"))[0], worth)
    if tile.pack_b:
        right = s.get_sblock("pack_b")
        if near:
            s.compute_at(right, j, preserve_unit_loops=True)
        else:
            parallel_if(s, s.get_loops(right)[0], worth)
        _pack_right(s, op, right, products, bool(squares))
    hold_in_registers(s, product, k, lane, vector, row, intrinsic=products.intrinsic)


def _pack_right(s: Any, op: MatmulOp, block: Any, products: Products, squares: bool) -> None:
    """Pack the columns of B in squares, or the rows of bytes by whole lines."""
    if squares:
        step, column, *four = s.get_loops(block)[-2 - (products.group > 1) :]
        transpose_squares(s, step, column, products.lanes, *four)
    elif products.group > 1 and not op.transposed_b:
        panel, step = s.get_loops(block)[-4:-2]
        s.reorder(step, s.split(panel, [None, _LINE])[1])


def schedule_row_sums(op: MatmulOp) -> Any:
    """Schedule a float32 product of few rows with B as (K, N).

    B is read once, from its first row to its last. LLVM vectorizes the innermost loop.
    """
    ahead = Prologue(op)
    a, b = ahead.tensors["A"], ahead.tensors["B"]
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
    total = op.result(lambda *at: sum(part(*at) for part in parts), ahead.epilogue())
    s = ahead.create_schedule(total)
    i, j = s.get_loops(s.get_sblock("C"))
    stretch, j = s.split(j, [None, stretch_of(op.n)])
    s.reorder(stretch, i, j)
    parallel_if(s, stretch, op.flops >= PARALLEL_FLOPS)
    if done < op.k:
        add_to_stretch(s, s.get_sblock("tail"), stretch, dims=3)
    add_to_stretch(s, s.get_sblock("product"), stretch, dims=4)
    return ahead.attach(s)


def schedule_row_dots(op: MatmulOp, target: CpuTarget) -> Any:
    """Schedule a float32 product with B as (N, K), without any packing."""
    lanes, quarter = target.lanes, 4
    rows, columns = _dot_tile(op, target)
    shape = round_up(op.m, rows), round_up(op.n, columns)
    ahead = Prologue(op)
    a, b = ahead.tensors["A"], ahead.tensors["B"]
    step = te.reduce_axis((0, op.k // lanes), name="step")
    fold = te.reduce_axis((0, lanes // quarter), name="fold")
    last = te.reduce_axis((0, quarter), name="last")

    def places(i: Expr, j: Expr) -> tuple[Expr, Expr]:
        return placed(i, op.m, rows), placed(j, op.n, columns)

    def products(i: Expr, j: Expr, k: Expr) -> Expr:
        row, column = places(i, j)
        return a[row, k] * b[column, k]

    partial = te.compute(
        (*shape, lanes),
        lambda i, j, v: te.sum(products(i, j, step * lanes + v), axis=step),
        name="partial",
    )

    def sums(i: Expr, j: Expr, lane: Expr) -> Expr:
        if op.k % lanes == 0:
            return partial[i, j, lane]
        # The last steps, less than a vector, end one that begins with steps already done.
        end, nothing = products(i, j, op.k - lanes + lane), zero("float32")
        return partial[i, j, lane] + tirx.Select(lane >= lanes - op.k % lanes, end, nothing)

    folded = te.compute(
        (*shape, quarter),
        lambda i, j, v: te.sum(sums(i, j, fold * quarter + v), axis=fold),
        name="folded",
    )
    joined = te.compute(shape, lambda i, j: te.sum(folded[i, j, last], axis=last), name="joined")
    s = ahead.create_schedule(op.result(joined, ahead.epilogue(), shape, places))
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
    return overlapping(ahead.attach(s), "C", places, op.output.shape)


def _dot_tile(op: MatmulOp, target: CpuTarget) -> tuple[int, int]:
    """Return the rows of A and of B to combine at once: few loads, few of them repeated."""

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        rows, columns = tile
        tiles, loads = ceil_div(op.m, rows) * ceil_div(op.n, columns), rows + columns
        return tiles * max(rows * columns / 2, loads / 2, 4.0), tiles * loads  # 4: see `_cost`

    most = target.registers // 2
    sides = [
        (rows, columns)
        for columns in range(min(op.n, 4), 0, -1)
        for rows in range(min(op.m, 4), 0, -1)
        if rows * columns <= most
    ]
    return min(sides, key=cost)
