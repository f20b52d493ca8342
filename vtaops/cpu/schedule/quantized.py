"""CPU schedule of int8 matrix products; `vtaops.cpu.schedule.dot` has what multiplies bytes."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import te

from vtaops.cpu.schedule.dot import Products, unshifted, unsigned
from vtaops.cpu.schedule.prologue import Prologue, Vectors
from vtaops.cpu.schedule.tiles import PARALLEL_FLOPS, hold_in_registers, parallel_if, store_vectors
from vtaops.cpu.target import CpuTarget
from vtaops.errors import UnsupportedError
from vtaops.kernels.ops.common import Expr, ceil_div, round_up, zero
from vtaops.kernels.ops.convolution import inside_or
from vtaops.kernels.ops.matmul import MatmulOp


def schedule_matmul(op: MatmulOp, target: CpuTarget) -> Any:
    """Return the scheduled kernel of an int8 product with int32 sums."""
    products = Products.of(op.dtype_a, target)
    lanes, group = products.lanes, products.group
    if op.panel not in (0, lanes):
        raise UnsupportedError(f"panels have {op.panel} columns; this processor takes {lanes}")
    if op.dtype_a == "int8" and op.panel:
        raise UnsupportedError("panels of int8 data; shift them to uint8")
    rows, vectors = _matmul_tile(op, lanes, products.sums)
    width = vectors * lanes
    m, n, k = round_up(op.m, rows), round_up(op.n, width), round_up(op.k, group)
    tensors = op.placeholders()
    a, b = tensors["A"], tensors["B"]

    def left_element(i: Expr, s: Expr) -> Expr:
        return unsigned(inside_or(a, (i, s), (0, 1), zero(op.dtype_a)), op.dtype_a)

    in_place = op.dtype_a == "uint8" and (m, k) == (op.m, op.k)
    left = a if in_place else te.compute((m, k), left_element, name="pack_a")

    def right_element(p: Expr, s: Expr, j: Expr, g: Expr) -> Expr:
        column, step = p * lanes + j, s * group + g
        index = (column, step) if op.transposed_b else (step, column)
        return inside_or(b, index, (0, 1), zero("int8"))

    right = b
    if not op.panel:
        right = te.compute((n // lanes, k // group, lanes, group), right_element, name="pack_b")
    step = te.reduce_axis((0, k // group), name="step")
    byte = te.reduce_axis((0, group), name="byte")

    def product(i: Expr, j: Expr) -> Expr:
        value = left[i, step * group + byte].astype("int32")
        weight = right[j // lanes, step, j % lanes, byte].astype("int32")
        return te.sum(value * weight, axis=[step, byte])

    total = te.compute((m, n), product, name="product")
    ahead = Prologue(tensors)

    def weight(v: Vectors, j: Expr, k: Expr) -> Expr:
        return v["B"][j, k] if op.transposed_b else v["B"][k, j]

    finish = ahead.epilogue(op.epilogue, "int32")
    finish = unshifted(finish, ahead, op.dtype_a, op.n, weight, (op.k,), op.transposed_b)
    s = ahead.create_schedule(op.finished(total, finish))
    worth = op.flops >= PARALLEL_FLOPS
    block = s.get_sblock("product")
    i, j, step, byte = s.get_loops(block)
    i, row = s.split(i, [None, rows])
    j, vector, lane = s.split(j, [None, vectors, lanes])
    s.reorder(j, i, step, row, vector, lane, byte)
    outer = s.fuse(j, i)
    result = s.get_sblock("C")
    s.reverse_compute_at(result, outer, preserve_unit_loops=True)
    if (m, n) == (op.m, op.n):
        store_vectors(s, result, 2, lanes)
    parallel_if(s, outer, worth)
    hold_in_registers(s, block, step, lane, vector, row, intrinsic=products.intrinsic)
    if not in_place:
        parallel_if(s, s.get_loops(s.get_sblock("pack_a"))[0], worth)
    if not op.panel:
        parallel_if(s, s.get_loops(s.get_sblock("pack_b"))[0], worth)
    return ahead.attach(s)


def _matmul_tile(op: MatmulOp, lanes: int, sums: int) -> tuple[int, int]:
    """Return (rows, vectors) of the register tile with least waste, of at most `sums`."""
    candidates = [(8, 2), (4, 4), (12, 2), (8, 1), (4, 2), (4, 1), (2, 1), (1, 1)]
    candidates = [tile for tile in candidates if prod(tile) <= sums]
    if op.panel:
        candidates = [tile for tile in candidates if ceil_div(op.n, lanes) % tile[1] == 0]

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        tiles = ceil_div(op.m, rows) * ceil_div(op.n, vectors * lanes)
        return tiles * (max(rows * vectors / 2, 4.0) + 0.5)

    return min(candidates, key=cost)
