"""CPU schedules of int8 products: the dot-product instruction u8 x s8 -> s32 where there is one.

That is vpdpbusd (VNNI) on x86-64 and usdot (i8mm) on aarch64. Other x86-64 processors widen bytes
to 16 bits and multiply these by pmaddwd: exact; the instruction for bytes that they have is not.

The instruction multiplies four unsigned by four signed bytes in each int32 lane. Signed data is
shifted by 128 when it is packed, and 128 times the sum of the weights is taken off at the end.
Without any the same loops are left to LLVM: slower, equal results.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import tvm
from tvm import te, tirx
from tvm.s_tir import TensorIntrin

from vtaops.cpu.schedule.convolution import PaddedCopy, declare_woven, weave
from vtaops.cpu.schedule.prologue import Prologue, Vectors
from vtaops.cpu.schedule.tiles import (
    PARALLEL_FLOPS,
    blocks_by_columns,
    parallel_if,
    store_vectors,
)
from vtaops.cpu.target import CpuTarget
from vtaops.errors import UnsupportedError
from vtaops.kernels.ops.common import Expr, ceil_div, round_up, window_axes
from vtaops.kernels.ops.convolution import Conv2dOp
from vtaops.kernels.ops.matmul import MatmulOp
from vtaops.kernels.ops.packed import PackedConv2dOp, pad_blocked, without_gaps

_GROUP = 4
"""Bytes that the instruction multiplies per lane."""

_OFFSET = 128

_DESCRIPTION = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def dot(A: T.Buffer((4,), "uint8", offset_factor=1, align=1),
        B: T.Buffer(({lanes}, 4), "int8", offset_factor=1, align=1),
        C: T.Buffer(({lanes},), "int32", offset_factor=1, align=4)) -> None:
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:4], B[0:{lanes}, 0:4])
        T.writes(C[0:{lanes}])
        for i in T.serial({lanes}):
            for k in T.serial(4):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
"""

_IMPLEMENTATION = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def dot(A: T.Buffer((4,), "uint8", offset_factor=1, align=1),
        B: T.Buffer(({lanes}, 4), "int8", offset_factor=1, align=1),
        C: T.Buffer(({lanes},), "int32", offset_factor=1, align=4)) -> None:
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:4], B[0:{lanes}, 0:4])
        T.writes(C[0:{lanes}])
        four = T.broadcast(T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"), {lanes})
        {compute}
"""

_AT_ONCE = """
        C[T.ramp(T.int32(0), 1, {lanes})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{name}"),
            C.vload([0], dtype="int32x{lanes}"),
            T.reinterpret(four, dtype="uint8x{bytes}"),
            B.vload([0, 0], dtype="int8x{bytes}"),
            dtype="int32x{lanes}")
"""

_WIDENED = """
        data = T.reinterpret(four, dtype="uint16x{pairs}")
        weights = T.reinterpret(B.vload([0, 0], dtype="int8x{bytes}"), dtype="int16x{pairs}")
        low, high = T.broadcast(T.uint16(255), {pairs}), T.broadcast(T.uint16(8), {pairs})
        eight = T.broadcast(T.int16(8), {pairs})
        C[T.ramp(T.int32(0), 1, {lanes})] = (
            C.vload([0], dtype="int32x{lanes}")
            + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id("{name}"),
                T.reinterpret(T.bitwise_and(data, low), dtype="int16x{pairs}"),
                T.shift_right(T.shift_left(weights, eight), eight),
                dtype="int32x{lanes}")
            + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id("{name}"),
                T.reinterpret(T.shift_right(data, high), dtype="int16x{pairs}"),
                T.shift_right(weights, eight),
                dtype="int32x{lanes}"))
"""
"""Bytes 0 and 2 of each four, then bytes 1 and 3: nothing moves from one lane to another."""

_INSTRUCTIONS = {
    ("vpdpbusd", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("vpdpbusd", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("usdot", 4): "llvm.aarch64.neon.usdot.v4i32.v16i8",
    ("pmaddwd", 16): "llvm.x86.avx512.pmaddw.d.512",
    ("pmaddwd", 8): "llvm.x86.avx2.pmadd.wd",
}
"""LLVM's names of the instructions, by int32 lanes."""


@cache
def dot_intrinsic(instruction: str, lanes: int) -> str:
    """Register the dot product of `lanes` int32 sums and return its name."""
    name = f"vtaops_dot_u8s8_{instruction}_{lanes}"
    sizes = {"lanes": lanes, "pairs": 2 * lanes, "bytes": 4 * lanes}
    compute = _WIDENED if instruction == "pmaddwd" else _AT_ONCE
    compute = compute.format(**sizes, name=_INSTRUCTIONS[instruction, lanes]).strip()
    description = tvm.script.from_source(_DESCRIPTION.format(**sizes))
    implementation = tvm.script.from_source(_IMPLEMENTATION.format(**sizes, compute=compute))
    TensorIntrin.register(name, description, implementation)
    return name


def _lanes(target: CpuTarget) -> int:
    return target.dot_lanes or target.lanes


def _sums(target: CpuTarget) -> int:
    """Return the vector registers that a tile of sums may fill."""
    return target.accumulators - 4 * (target.dot_instruction == "pmaddwd")  # for halves of operands


def _unsigned(value: Expr, dtype: str) -> Expr:
    """Return int8 as uint8, shifted by 128; uint8 as it is."""
    if dtype == "uint8":
        return value
    return value.astype("uint8") ^ tirx.const(_OFFSET, "uint8")  # in bytes, 64 to a vector


def _neutral(dtype: str) -> Expr:
    """Return what stands for zero in shifted data."""
    return tirx.const(0 if dtype == "uint8" else _OFFSET, "uint8")


def schedule_matmul(op: MatmulOp, target: CpuTarget) -> Any:
    """Return the scheduled kernel of an int8 product with int32 sums."""
    lanes = _lanes(target)
    if op.panel not in (0, lanes):
        raise UnsupportedError(f"panels have {op.panel} columns; this processor takes {lanes}")
    rows, vectors = _matmul_tile(op, lanes, _sums(target))
    width = vectors * lanes
    m, n, k = round_up(op.m, rows), round_up(op.n, width), round_up(op.k, _GROUP)
    tensors = op.placeholders()
    a, b = tensors["A"], tensors["B"]

    def left_element(i: Expr, s: Expr) -> Expr:
        inside = tirx.all(i < op.m, s < op.k)
        return tirx.if_then_else(inside, _unsigned(a[i, s], op.dtype_a), tirx.const(0, "uint8"))

    in_place = op.dtype_a == "uint8" and (m, k) == (op.m, op.k)
    left = a if in_place else te.compute((m, k), left_element, name="pack_a")

    def right_element(p: Expr, s: Expr, j: Expr, g: Expr) -> Expr:
        column, step = p * lanes + j, s * _GROUP + g
        inside = tirx.all(column < op.n, step < op.k)
        value = b[column, step] if op.transposed_b else b[step, column]
        return tirx.if_then_else(inside, value, tirx.const(0, "int8"))

    right = b
    if not op.panel:
        right = te.compute((n // lanes, k // _GROUP, lanes, _GROUP), right_element, name="pack_b")
    step = te.reduce_axis((0, k // _GROUP), name="step")
    group = te.reduce_axis((0, _GROUP), name="group")

    def product(i: Expr, j: Expr) -> Expr:
        value = left[i, step * _GROUP + group].astype("int32")
        weight = right[j // lanes, step, j % lanes, group].astype("int32")
        return te.sum(value * weight, axis=[step, group])

    total = te.compute((m, n), product, name="product")
    ahead = Prologue(tensors)
    finish = ahead.epilogue(op.epilogue, "int32")
    correction = None
    if op.dtype_a == "int8" and op.panel:
        raise UnsupportedError("panels of int8 data; shift them to uint8")
    if op.dtype_a == "int8":

        def column_sum(v: Vectors, j: Expr, k: Expr) -> Expr:
            weight = v["B"][j, k] if op.transposed_b else v["B"][k, j]
            return weight.astype("int32") * tirx.const(_OFFSET, "int32")

        correction = ahead.vector(
            "correction", op.n, "int32", column_sum, over=(op.k,), along=op.transposed_b
        )

    def element(i: Expr, j: Expr) -> Expr:
        value = total[i, j] if correction is None else total[i, j] - correction[j]
        return finish(value, j, i, j)

    s = ahead.create_schedule(te.compute((op.m, op.n), element, name="C"))
    worth = op.flops >= PARALLEL_FLOPS
    block = s.get_sblock("product")
    i, j, step, group = s.get_loops(block)
    i, row = s.split(i, [None, rows])
    j, vector, lane = s.split(j, [None, vectors, lanes])
    s.reorder(j, i, step, row, vector, lane, group)
    outer = s.fuse(j, i)
    result = s.get_sblock("C")
    s.reverse_compute_at(result, outer, preserve_unit_loops=True)
    if (m, n) == (op.m, op.n):
        store_vectors(s, result, 2, lanes)
    parallel_if(s, outer, worth)
    _finish_dot(s, target, block, (step, row, vector, lane))
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


def schedule_conv2d(op: Conv2dOp, target: CpuTarget, tile: tuple[int, int] | None = None) -> Any:
    """Return the scheduled kernel of an int8 convolution; `tile` is (vectors, columns)."""
    lanes = _lanes(target)
    rows, columns = op.out_size
    vectors, pixels = tile or blocks_by_columns(
        columns,
        ceil_div(op.group_out, lanes),
        ceil_div(op.group_in, _GROUP) * prod(op.window.kernel),
        _sums(target),
    )
    blocks = round_up(ceil_div(op.group_out, lanes), vectors)
    inputs = ceil_div(op.group_in, _GROUP)
    padding = PaddedCopy(op.window, rows, round_up(columns, pixels), by_phase=False)
    tensors = op.placeholders()
    kernel = tensors["kernel"]
    image = declare_woven(
        op,
        padding,
        _GROUP,
        tensors["data"],
        _neutral(op.dtype),
        lambda value: _unsigned(value, op.dtype),
    )

    def weight(o: Expr, c: Expr, kh: Expr, kw: Expr, v: Expr, g: Expr) -> Expr:
        within, ic = o % blocks * lanes + v, c * _GROUP + g
        inside = tirx.all(within < op.group_out, ic < op.group_in)
        value = kernel[o // blocks * op.group_out + within, ic, kh, kw]
        return tirx.if_then_else(inside, value, tirx.const(0, "int8"))

    packed = te.compute(
        (op.groups * blocks, inputs, *op.window.kernel, lanes, _GROUP), weight, name="pack_kernel"
    )
    channel = te.reduce_axis((0, inputs), name="ic")
    group = te.reduce_axis((0, _GROUP), name="group")
    kh, kw = window_axes(op.window)
    (sh, sw), (dh, dw) = op.window.strides, op.window.dilation

    def tap(n: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        source = c // (blocks * lanes) * inputs + channel
        value = image[n, source, i * sh + kh * dh, j * sw + kw * dw, group].astype("int32")
        factor = packed[c // lanes, channel, kh, kw, c % lanes, group].astype("int32")
        return te.sum(value * factor, axis=[channel, kh, kw, group])

    shape = (op.batch, rows, padding.columns, op.groups * blocks * lanes)
    total = te.compute(shape, tap, name="total")
    ahead = Prologue(tensors)
    finish = ahead.epilogue(op.epilogue, "int32")
    correction = None
    whole = op.groups == 1 or op.group_out % (vectors * lanes) == 0
    if op.dtype == "int8":

        def kernel_sum(v: Vectors, o: Expr, *at: Expr) -> Expr:
            return v["kernel"][o, at[0], at[1], at[2]].astype("int32") * tirx.const(
                _OFFSET, "int32"
            )

        taps = (op.group_in, *op.window.kernel)
        correction = ahead.vector(
            "correction", op.out_channels, "int32", kernel_sum, over=taps, along=True
        )

    def element(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        at = c
        if not whole:
            at = c // op.group_out * (blocks * lanes) + c % op.group_out
        value = total[n, i, j, at]
        return finish(value if correction is None else value - correction[c], c, n, c, i, j)

    s = ahead.create_schedule(te.compute(op.output.shape, element, name="result"))
    worth = op.flops >= PARALLEL_FLOPS
    block = s.get_sblock("total")
    # The tile leaves the registers in whole vectors; only this copy of it is transposed.
    copy = s.cache_write(block, 0, "global")
    n, i, j, c, ic, kh, kw, group = s.get_loops(block)
    c, vector, lane = s.split(c, [None, vectors, lanes])
    j, pixel_loop = s.split(j, [None, pixels])
    s.reorder(n, c, i, j, ic, kh, kw, pixel_loop, vector, lane, group)
    outer = s.fuse(n, c, i)
    s.reverse_compute_at(copy, j, preserve_unit_loops=True)
    store_vectors(s, copy, 2, lanes)
    if whole:  # else the padded channels of the groups are cut off in a pass of its own
        s.reverse_compute_at(s.get_sblock("result"), j, preserve_unit_loops=True)
        if columns % pixels == 0 == op.group_out % (vectors * lanes):
            s.vectorize(s.get_loops(s.get_sblock("result"))[-1])
    parallel_if(s, outer, worth)
    _finish_dot(s, target, block, (ic, pixel_loop, vector, lane))
    weave(s, worth, target.lanes)
    parallel_if(s, s.fuse(*s.get_loops(s.get_sblock("pack_kernel"))[:2]), worth)
    return ahead.attach(s)


def schedule_packed_conv2d(
    op: PackedConv2dOp, target: CpuTarget, tile: tuple[int, int] | None = None
) -> Any:
    """Return the scheduled kernel of an int8 NCHW[x]c convolution; `tile` is (blocks, columns)."""
    rows, columns = op.out_size
    blocks, pixels = tile or blocks_by_columns(
        columns,
        op.out_blocks,
        op.in_blocks * op.in_block // _GROUP * prod(op.window.kernel),
        _sums(target) // max(1, op.block // _lanes(target)),
        divide=True,
    )
    window, apart = without_gaps(op.window)
    padding = PaddedCopy(window, rows, round_up(columns, pixels), by_phase=False)
    tensors = op.placeholders()
    data, kernel = tensors["data"], tensors["kernel"]
    image = data
    if op.dtype == "int8" or max(apart) > 1 or padding.needed(op.height, op.width):
        size = padding.height, padding.width
        image = pad_blocked(op, data, size, apart, lambda value: _unsigned(value, op.dtype))
    outer_ic = te.reduce_axis((0, op.in_blocks), name="ico")
    inner_ic = te.reduce_axis((0, op.in_block // _GROUP), name="ici")
    group = te.reduce_axis((0, _GROUP), name="group")
    kh, kw = window_axes(op.window)
    (sh, sw), (dh, dw) = window.strides, window.dilation

    def tap(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        at = (i * sh + kh * dh, j * sw + kw * dw, inner_ic * _GROUP + group)
        value = image(n, outer_ic, *at).astype("int32")
        weight = kernel[c, outer_ic, kh, kw, inner_ic, b, group].astype("int32")
        return te.sum(value * weight, axis=[outer_ic, kh, kw, inner_ic, group])

    shape = (op.batch, op.out_blocks, rows, padding.columns, op.block)
    total = te.compute(shape, tap, name="total")
    ahead = Prologue(tensors)
    finish = ahead.epilogue(op.epilogue, "int32")
    correction = None
    if op.dtype == "int8":

        def kernel_sum(v: Vectors, o: Expr, *at: Expr) -> Expr:
            ico, kh, kw, ici, g = at
            weight = v["kernel"][o // op.block, ico, kh, kw, ici, o % op.block, g]
            return weight.astype("int32") * tirx.const(_OFFSET, "int32")

        taps = (op.in_blocks, *op.window.kernel, op.in_block // _GROUP, _GROUP)
        channels = op.out_blocks * op.block
        correction = ahead.vector("correction", channels, "int32", kernel_sum, over=taps)

    def element(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        channel, value = c * op.block + b, total[n, c, i, j, b]
        value = value if correction is None else value - correction[channel]
        return finish(value, channel, n, c, i, j, b)

    s = ahead.create_schedule(te.compute(op.output.shape, element, name="result"))
    worth = op.flops >= PARALLEL_FLOPS
    block, stored = s.get_sblock("total"), s.get_sblock("result")
    n, c, i, j, b, ico, kh, kw, ici, group = s.get_loops(block)
    c, channels = s.split(c, [None, blocks])
    j, pixel_loop = s.split(j, [None, pixels])
    dot = target.dot_lanes and op.block % target.dot_lanes == 0
    b, lane = s.split(b, [None, target.dot_lanes if dot else op.block])
    s.reorder(n, c, i, j, ico, kh, kw, ici, pixel_loop, channels, b, lane, group)
    outer = s.fuse(n, c, i)
    s.reverse_compute_at(stored, j)
    parallel_if(s, outer, worth)
    s.vectorize(s.get_loops(stored)[-1])
    s.unroll(channels)
    s.unroll(b)
    _finish_dot(s, target if dot else None, block, (ico, pixel_loop, ici, lane))
    if image is not data:
        loops = s.get_loops(s.get_sblock("padded"))
        s.vectorize(loops[-1])
        parallel_if(s, s.fuse(*loops[:3]), worth)
    return ahead.attach(s)


def _finish_dot(s: Any, target: CpuTarget | None, block: Any, loops: tuple[Any, ...]) -> None:
    """Unroll the register tile and use the instruction, if there is one.

    `loops` is (outer sum, a, b, lane); None: the lanes of the loop are not those of a target.
    """
    intrinsic = None
    if target and target.dot_lanes:
        intrinsic = dot_intrinsic(target.dot_instruction, target.dot_lanes)
    outer, first, second, lane = loops
    s.unroll(first)
    s.unroll(second)
    if intrinsic is None:
        s.vectorize(lane)
    start = s.decompose_reduction(block, outer)
    *_, a, b, v = s.get_loops(start)
    s.vectorize(v)
    s.unroll(b)
    s.unroll(a)
    if intrinsic is not None:
        s.tensorize(lane, intrinsic)
