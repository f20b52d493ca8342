"""CPU schedule of int8 matrix products; `vtaops.cpu.schedule.dot` owns the byte products."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import te, tirx

from vtaops.base.errors import UnsupportedError
from vtaops.cpu.schedule.dot import Products, unshifted, unsigned
from vtaops.cpu.schedule.matmul import MatmulTile, schedule_tiles
from vtaops.cpu.schedule.prologue import Prologue, Vectors
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, ceil_div, round_up, zero
from vtaops.kernels.ops.convolution import inside_or
from vtaops.kernels.ops.matmul import MatmulOp


def schedule_matmul(op: MatmulOp, target: CpuTarget) -> Any:
    """Schedule an int8 product with int32 sums.

    Raises
    ------
    UnsupportedError
        If the matrices are of 16-bit numbers (`StoredOp` has these), or panels do not fit.
    """
    if op.accumulator != "int32":
        raise UnsupportedError(f"unsupported product of {op.dtype_a}; give float32, int8 or uint8")
    products = Products.of(op.dtype_a, target)
    lanes, group = products.lanes, products.group
    if op.panel not in (0, lanes):
        raise UnsupportedError(f"panels have {op.panel} columns; this processor takes {lanes}")
    if op.dtype_a == "int8" and op.panel:
        raise UnsupportedError("panels of int8 data; shift them to uint8")
    tile = choose_tile(op, products)
    m, n, k = round_up(op.m, tile.rows), round_up(op.n, tile.columns), round_up(op.k, group)
    ahead = Prologue(op)
    a, b = ahead.tensors["A"], ahead.tensors["B"]

    def left_element(i: Expr, s: Expr) -> Expr:
        inside = tirx.all(i < op.m, s < op.k)
        return tirx.if_then_else(inside, unsigned(a[i, s], op.dtype_a), zero("uint8"))

    in_place = op.dtype_a == "uint8" and op.m % tile.rows == op.k % group == 0
    left = te.compute((m, k), left_element, name="pack_a") if not in_place else a

    def right_element(p: Expr, s: Expr, j: Expr, g: Expr) -> Expr:
        column, step = p * lanes + j, s * group + g
        index = (column, step) if op.transposed_b else (step, column)
        return inside_or(b, index, (0, 1), zero("int8"))

    right = b
    if tile.pack_b:
        right = te.compute((n // lanes, k // group, lanes, group), right_element, name="pack_b")
    step = te.reduce_axis((0, k // group), name="step")
    byte = te.reduce_axis((0, group), name="byte")

    def product(i: Expr, j: Expr) -> Expr:
        value = left[i, step * group + byte].astype("int32")
        weight = right[j // lanes, step, j % lanes, byte].astype("int32")
        return te.sum(value * weight, axis=[step, byte])

    total = te.compute((m, n), product, name="product")

    def weight(v: Vectors, j: Expr, k: Expr) -> Expr:
        return v["B"][j, k] if op.transposed_b else v["B"][k, j]

    epilogue = unshifted(ahead, op.dtype_a, op.n, weight, (op.k,), op.transposed_b)
    s = ahead.create_schedule(op.result(total, epilogue))
    schedule_tiles(s, op, tile, products)
    return ahead.attach(s)


def choose_tile(op: MatmulOp, products: Products) -> MatmulTile:
    """Choose the register tile with the least waste."""
    lanes = products.lanes
    candidates = [(8, 2), (4, 4), (12, 2), (4, 2), (8, 1), (4, 1), (2, 1), (1, 1)]
    candidates = [tile for tile in candidates if prod(tile) <= products.sums]
    if op.panel:
        candidates = [tile for tile in candidates if ceil_div(op.n, lanes) % tile[1] == 0]

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        tiles = ceil_div(op.m, rows) * ceil_div(op.n, vectors * lanes)
        return tiles * (max(rows * vectors / 2, 4.0) + 0.5)

    rows, vectors = min(candidates, key=cost)
    return MatmulTile(rows, vectors * lanes, not op.panel)
