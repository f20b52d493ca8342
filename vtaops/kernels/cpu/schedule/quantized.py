"""CPU schedule of int8 matrix products; `dot.py` owns the byte products."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import te, tirx

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cpu.schedule.dot import Products, unshifted, unsigned
from vtaops.kernels.cpu.schedule.matmul import (
    MatmulTile,
    end_tiles,
    in_squares,
    places_of,
    schedule_tiles,
    vectors_end,
)
from vtaops.kernels.cpu.schedule.rewrites import Prologue, Vectors, placed
from vtaops.kernels.cpu.schedule.tiles import HIDING
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, Tensor, ceil_div, round_up, zero
from vtaops.kernels.ops.matmul import MatmulOp


def schedule_matmul(op: MatmulOp, target: CpuTarget) -> Any:
    """Schedule an int8 product with int32 sums.

    Raises
    ------
    UnsupportedError
        If the matrices are of 16-bit numbers (`StoredOp` has these), or panels do not fit.
    """
    products = Products.of(op.dtype_a, target)
    lanes, group = products.lanes, products.group
    _check(op, lanes)
    few = target.narrow_tiles and op.m >= 4  # fewer rows hide no latency by eight sums
    tile = choose_tile(op, products, HIDING if few else products.sums)
    places, squares = places_of(op, tile, lanes), in_squares(op, tile, lanes, group)
    steps = ceil_div(op.k, group)
    ahead = Prologue(op)
    left, right = ahead.tensors["A"], ahead.tensors["B"]
    if op.dtype_a == "int8" or op.k % group:
        left = _pack_left(op, left, group * steps)
    if tile.pack_b:
        right = _pack_right(op, right, tile, products, squares)
    step = te.reduce_axis((0, steps), name="step")
    byte = te.reduce_axis((0, group), name="byte")

    def product(i: Expr, j: Expr) -> Expr:
        value = left[places(i, 0)[0], step * group + byte].astype("int32")
        weight = right[j // lanes, step, j % lanes, byte].astype("int32")
        return te.sum(value * weight, axis=[step, byte])

    tiles = round_up(op.m, tile.rows), round_up(op.n, tile.columns)
    total = te.compute(tiles, product, name="product")

    def weight(v: Vectors, j: Expr, k: Expr) -> Expr:
        return v["B"][j, k] if op.transposed_b else v["B"][k, j]

    epilogue = unshifted(ahead, op.dtype_a, op.n, weight, (op.k,), op.transposed_b)
    tiled = tiles if vectors_end(op, lanes) else (tiles[0], op.n)
    s = ahead.create_schedule(op.result(total, epilogue, tiled, places))
    schedule_tiles(s, op, tile, products, target.cores if squares else 0)
    return end_tiles(ahead.attach(s), op, tile, lanes, squares, group)


def _check(op: MatmulOp, lanes: int) -> None:
    if op.accumulator != "int32":
        raise UnsupportedError(f"unsupported product of {op.dtype_a}; give float32, int8 or uint8")
    if op.panel not in (0, lanes):
        raise UnsupportedError(f"panels have {op.panel} columns; this processor takes {lanes}")
    if op.dtype_a == "int8" and op.panel:
        raise UnsupportedError("panels of int8 data; shift them to uint8")


def _pack_left(op: MatmulOp, a: Tensor, columns: int) -> Tensor:
    """Declare A without signs, its rows zero-padded to `columns`."""

    def element(i: Expr, k: Expr) -> Expr:
        inside = tirx.all(k < op.k)
        return tirx.if_then_else(inside, unsigned(a[i, k], op.dtype_a), zero("uint8"))

    return te.compute((op.m, columns), element, name="pack_a")


def _pack_right(
    op: MatmulOp, b: Tensor, tile: MatmulTile, products: Products, squares: bool
) -> Tensor:
    """Declare B in panels of vectors, (vectors, groups of steps, columns, group).

    Only what a vector or group lacks is zero; the last squares end with B.
    """
    lanes, group = products.lanes, products.group
    steps = ceil_div(op.k, group)
    places, ends = places_of(op, tile, lanes), vectors_end(op, lanes)

    def element(p: Expr, s: Expr, j: Expr, g: Expr) -> Expr:
        column = places(0, p * lanes + j)[1]
        step = (placed(s, steps, lanes) if squares else s) * group + g
        at = (column, step) if op.transposed_b else (step, column)
        inside = [] if ends else [column < op.n]
        inside += [step < op.k] if op.k % group else []
        value = b[at]
        return tirx.if_then_else(tirx.all(*inside), value, zero("int8")) if inside else value

    vectors = round_up(op.n, tile.columns) // lanes
    steps_packed = round_up(steps, lanes) if squares else steps
    return te.compute((vectors, steps_packed, lanes, group), element, name="pack_b")


def choose_tile(op: MatmulOp, products: Products, most: int) -> MatmulTile:
    """Choose the register tile with the least waste, of at most `most` vectors of sums."""
    lanes = products.lanes
    candidates = [(8, 2), (4, 4), (12, 2), (4, 2), (8, 1), (4, 1), (2, 1), (1, 1)]
    candidates = [tile for tile in candidates if prod(tile) <= most]
    if op.panel:
        candidates = [tile for tile in candidates if ceil_div(op.n, lanes) % tile[1] == 0]

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        tiles = ceil_div(op.m, rows) * ceil_div(op.n, vectors * lanes)
        return tiles * (max(rows * vectors / 2, 4.0) + 0.5)

    rows, vectors = min(candidates, key=cost)
    return MatmulTile(min(rows, op.m), vectors * lanes, not op.panel)
