"""Operators that users declare by themselves, with random schedules: all but 2-D convolutions.

Each `random_*` returns an `Own`: a declaration with public names only, its packed arguments and the
packed result by NumPy. `random_schedule` draws tiles, orders, virtual threads and marks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from trials.own_schedules import _body, _numpy
from vtaops import HardwareConfig
from vtaops import schedule as vta
from vtaops.machine.isa import AluOp

LOADS = {"inp": vta.inp_scope, "wgt": vta.wgt_scope, "acc": vta.acc_scope}


@dataclass
class Own:
    """A declaration ``res``: loads, at most one reduction, stages of the ALU.

    Attributes
    ----------
    arguments : list
        Placeholders, then the result.
    arrays : list
        Their values.
    expected : array
        The result.
    loads : dict
        The scratchpad of each block that loads.
    stages : list
        Blocks of the ALU in order: (name, operation, immediate or None for a second tile).
    reduction : str
        ``"gemm"``, ``"max"``, or nothing; the block is named ``total``.
    axes : int
        Axes of the result that count tiles.
    sums : int
        Axes of the reduction.
    """

    config: HardwareConfig
    arguments: list[te.Tensor]
    arrays: list[np.ndarray]
    expected: np.ndarray
    loads: dict[str, str]
    axes: int
    stages: list[tuple[str, str, int | None]] = field(default_factory=list)
    reduction: str = ""
    sums: int = 0


def random_schedule(rng: random.Random, own: Own) -> tvm.s_tir.Schedule:
    """Return a schedule drawn at random; tiles may overhang the operator, or not fit."""
    config = own.config
    s = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func(own.arguments)}))
    *axes, row, lane = s.get_loops(s.get_sblock("res"))
    extents = [int(s.get(axis).extent) for axis in axes]
    thread_at = rng.choice([None, *(i for i, extent in enumerate(extents) if extent > 1)])
    outer, inner, threads = [], [], []
    for index, (axis, extent) in enumerate(zip(axes, extents, strict=True)):
        if index == thread_at:
            tile = rng.randint(1, -(-extent // 2))
            o, thread, i = s.split(axis, [None, 2, tile])
            threads = [thread]
        else:
            o, i = s.split(axis, [None, rng.randint(1, extent)])
        outer.append(o)
        inner.append(i)
    rng.shuffle(outer)
    s.reorder(*threads, *outer, *inner, row, lane)
    tile = outer[-1]
    made = [name for name, _, _ in own.stages]
    for name in [*reversed(made), *(["total"] if own.reduction else [])]:
        _place(s, name, tile, vta.acc_scope)
    step = tile
    if own.reduction:
        loops = s.get_loops(s.get_sblock("total"))[-own.axes - 2 - own.sums :]
        spatial, (row, lane), sums = loops[: own.axes], loops[own.axes :][:2], loops[own.axes + 2 :]
        lanes = [row, lane, sums.pop()] if own.reduction == "gemm" else [row, lane]
        first, rest = sums[0], sums[1:]
        step, within = s.split(first, [None, rng.randint(1, int(s.get(first).extent))])
        order = [*spatial, *rest, within]
        rng.shuffle(order)
        s.reorder(step, *order, *lanes)
    for name, scratchpad in own.loads.items():
        _place(s, name, step if scratchpad in ("inp", "wgt") else tile, LOADS[scratchpad])
    for thread in threads:
        s.bind(thread, vta.vthread)
    if rng.random() < 0.5:
        s.annotate(s.get_loops(s.get_sblock("res"))[-2 - rng.randint(0, 1)], vta.dma_copy, True)
    if own.reduction:
        s.decompose_reduction(s.get_sblock("total"), step)
        product = own.reduction == "gemm"
        vta.tensorize(s, "total_init", vta.reset(config, 0 if product else -128))
        once = vta.gemm(config) if product else vta.alu_reduction(config, AluOp.MAX)
        vta.tensorize(s, "total_update", once)
    for name, op, immediate in own.stages:
        vta.tensorize(s, name, vta.alu(config, op, immediate))
    return s


def _place(s: tvm.s_tir.Schedule, name: str, loop: Any, scope: str) -> None:
    s.compute_at(s.get_sblock(name), loop, preserve_unit_loops=True)
    s.set_scope(s.get_sblock(name), 0, scope)


# ------------------------------------------------------------------------- declarations

CHAINS = [
    [("shr", "shr", 5)],
    [("shr", "shr", 6), ("low", "max", -90), ("high", "min", 90)],
    [("more", "add", -77), ("shr", "shr", 7)],
    [("tenth", "shr", 3), ("leaky", "max", "total"), ("out", "shr", 5)],
]


def _finish(
    rng: random.Random,
    config: HardwareConfig,
    total: te.Tensor,
    value: np.ndarray,
    arguments: list[te.Tensor],
    arrays: list[np.ndarray],
    loads: dict[str, str],
    chain: list[tuple[str, str, Any]],
    **how: Any,
) -> Own:
    """Append stages, sometimes a residual of the result's shape, and the cast to int8."""
    made, values, stages = {"total": total}, {"total": value}, []
    last, shape = total, total.shape
    for name, op, operand in chain:
        last = made[name] = te.compute(shape, _body(op, last, made.get(operand, operand)), name)
        value = values[name] = _numpy(op, value, values.get(operand, operand))
        stages.append((name, op, operand if isinstance(operand, int) else None))
    if rng.random() < 0.4:
        dtype = rng.choice(["int8", "int32"])
        residual = te.placeholder(shape, dtype, name="residual")
        added = _random(rng, [int(n) for n in shape], dtype)
        widened = te.compute(shape, lambda *i: residual(*i).astype("int32"), name="residual_buf")
        before = last
        last = te.compute(shape, lambda *i: before(*i) + widened(*i), name="added")
        value = value + added
        arguments, arrays = [*arguments, residual], [*arrays, added]
        loads = {**loads, "residual_buf": "acc"}
        stages.append(("added", "add", None))
    final = last
    res = te.compute(shape, lambda *i: final(*i).astype("int8"), name="res")
    expected = value.astype(np.int32).astype(np.int8)
    axes = len(shape) - 2
    return Own(config, [*arguments, res], arrays, expected, loads, axes, stages, **how)


def _random(rng: random.Random, shape: list[int], dtype: str) -> np.ndarray:
    bound = 128 if dtype == "int8" else 5000
    return np.random.default_rng(rng.getrandbits(32)).integers(-bound, bound, shape).astype(dtype)


def random_gemm(rng: random.Random, config: HardwareConfig) -> Own:
    """Return a matrix product, ``a @ b.T``."""
    m, n, k = rng.randint(1, 9), rng.randint(1, 5), rng.randint(1, 6)
    a = te.placeholder((m, k, config.batch, config.block_in), "int8", name="a")
    b = te.placeholder((n, k, config.block_out, config.block_in), "int8", name="b")
    a_buf, b_buf = _copy(a, "a_buf"), _copy(b, "b_buf")
    step, lane = te.reduce_axis((0, k), "step"), te.reduce_axis((0, config.block_in), "lane")
    total = te.compute(
        (m, n, config.batch, config.block_out),
        lambda i, j, r, v: te.sum(
            a_buf[i, step, r, lane].astype("int32") * b_buf[j, step, v, lane].astype("int32"),
            axis=[step, lane],
        ),
        name="total",
    )
    arrays = [_random(rng, [int(e) for e in t.shape], "int8") for t in (a, b)]
    value = np.einsum("mkri,nkvi->mnrv", *(x.astype(np.int64) for x in arrays))
    loads = {"a_buf": "inp", "b_buf": "wgt"}
    return _finish(
        rng,
        config,
        total,
        value,
        [a, b],
        arrays,
        loads,
        rng.choice(CHAINS),
        reduction="gemm",
        sums=2,
    )


def random_conv1d(rng: random.Random, config: HardwareConfig) -> Own:
    """Return a convolution in one dimension: padded, strided, dilated."""
    out, blocks, taps = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4)
    stride, dilation, pad = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 2)
    span = (taps - 1) * dilation + 1
    length = rng.randint(span, span + 12)
    size = (length + 2 * pad - span) // stride + 1
    data = te.placeholder((blocks, length, config.batch, config.block_in), "int8", name="data")
    kernel = te.placeholder(
        (out, blocks, taps, config.block_out, config.block_in), "int8", name="kernel"
    )

    def pixel(c: Any, x: Any, *lane: Any) -> Any:
        inside = tirx.all(x >= pad, x < length + pad)
        found = data(c, x - pad, *lane)
        return tirx.if_then_else(inside, found, tirx.const(0, "int8")) if pad else found

    shape = (blocks, length + 2 * pad, config.batch, config.block_in)
    data_buf, kernel_buf = te.compute(shape, pixel, name="data_buf"), _copy(kernel, "kernel_buf")
    c, t = te.reduce_axis((0, blocks), "c"), te.reduce_axis((0, taps), "t")
    lane = te.reduce_axis((0, config.block_in), "lane")
    total = te.compute(
        (out, size, config.batch, config.block_out),
        lambda o, x, r, v: te.sum(
            data_buf[c, x * stride + t * dilation, r, lane].astype("int32")
            * kernel_buf[o, c, t, v, lane].astype("int32"),
            axis=[c, t, lane],
        ),
        name="total",
    )
    arrays = [_random(rng, [int(e) for e in p.shape], "int8") for p in (data, kernel)]
    wide = np.pad(arrays[0].astype(np.int64), ((0, 0), (pad, pad), (0, 0), (0, 0)))
    at = np.arange(size)[:, None] * stride + np.arange(taps) * dilation
    value = np.einsum("cxtri,octvi->oxrv", wide[:, at], arrays[1].astype(np.int64))
    loads = {"data_buf": "inp", "kernel_buf": "wgt"}
    how = {"reduction": "gemm", "sums": 3}
    chain, found = rng.choice(CHAINS), [data, kernel]
    return _finish(rng, config, total, value, found, arrays, loads, chain, **how)


def random_max_pool(rng: random.Random, config: HardwareConfig) -> Own:
    """Return maxima of windows, int8 pixels widened by the load."""
    kernel, stride = rng.randint(1, 3), rng.randint(1, 3)
    rows, columns = rng.randint(1, 4), rng.randint(1, 4)
    height, width = ((n - 1) * stride + kernel for n in (rows, columns))
    blocks = rng.randint(1, 3)
    data = te.placeholder((blocks, height, width, *config.acc.shape), "int8", name="data")
    data_buf = te.compute(data.shape, lambda *i: data(*i).astype("int32"), name="data_buf")
    dy, dx = te.reduce_axis((0, kernel), "dy"), te.reduce_axis((0, kernel), "dx")
    maximum = te.comm_reducer(
        lambda a, b: tirx.max(a, b), lambda dtype: tirx.const(-128, dtype), name="maximum"
    )
    total = te.compute(
        (blocks, rows, columns, *config.acc.shape),
        lambda c, y, x, *lane: maximum(
            data_buf(c, y * stride + dy, x * stride + dx, *lane), axis=[dy, dx]
        ),
        name="total",
    )
    array = _random(rng, [int(e) for e in data.shape], "int8")
    windows = np.lib.stride_tricks.sliding_window_view(array, (kernel, kernel), (1, 2))
    value = windows[:, ::stride, ::stride].max((-1, -2)).astype(np.int64)
    chain = rng.choice([[], [("more", "add", 9), ("half", "shr", 1)]])
    return _finish(
        rng,
        config,
        total,
        value,
        [data],
        [array],
        {"data_buf": "acc"},
        chain,
        reduction="max",
        sums=2,
    )


def random_sum(rng: random.Random, config: HardwareConfig) -> Own:
    """Return stages of the ALU on two images, and no product."""
    shape = (rng.randint(1, 4), rng.randint(1, 9), *config.acc.shape)
    dtypes = [rng.choice(["int8", "int32"]) for _ in range(2)]
    a, b = (te.placeholder(shape, d, name=n) for d, n in zip(dtypes, "ab", strict=True))
    a_buf, b_buf = _widened(a), _widened(b)
    op = rng.choice(["add", "max", "min"])
    first = te.compute(shape, _body(op, a_buf, b_buf), name="first")
    arrays = [_random(rng, list(shape), dtype) for dtype in dtypes]
    value = _numpy(op, *(x.astype(np.int64) for x in arrays))
    chain = rng.choice([[], [("half", "shr", 1), ("low", "max", -60)], [("high", "min", 99)]])
    own = _finish(
        rng, config, first, value, [a, b], arrays, {"a_buf": "acc", "b_buf": "acc"}, chain
    )
    own.stages.insert(0, ("first", op, None))
    return own


def _copy(tensor: te.Tensor, name: str) -> te.Tensor:
    return te.compute(tensor.shape, lambda *i: tensor(*i), name=name)


def _widened(tensor: te.Tensor) -> te.Tensor:
    return te.compute(
        tensor.shape, lambda *i: tensor(*i).astype("int32"), name=f"{tensor.op.name}_buf"
    )


RANDOM: dict[str, Callable[[random.Random, HardwareConfig], Own]] = {
    "gemm": random_gemm,
    "conv1d": random_conv1d,
    "max pool": random_max_pool,
    "sum": random_sum,
}
