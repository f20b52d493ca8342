"""Declarations and schedules as users write them, with public names only; some of them random."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np
import tvm
from tvm import te, tirx

import vtaops
from trials.kernel_reference import conv2d_reference
from vtaops import HardwareConfig
from vtaops import schedule as vta


@dataclass(frozen=True)
class Convolution:
    """A convolution on packed tensors, and the stages behind it: (name, operation, operand)."""

    config: HardwareConfig
    out_blocks: int = 2
    in_blocks: int = 2
    height: int = 6
    width: int = 5
    kernel: int = 3
    dilation: int = 1
    padding: int = 1
    bias: bool = False
    stages: tuple[tuple[str, str, object], ...] = (("shr", "shr", 6), ("low", "max", -100))

    @property
    def out_size(self):
        span = (self.kernel - 1) * self.dilation
        return self.height + 2 * self.padding - span, self.width + 2 * self.padding - span

    def declare(self):
        c, p, d = self.config, self.padding, self.dilation
        rows, columns = self.out_size
        image = (1, self.in_blocks, self.height, self.width, c.batch, c.block_in)
        filters = (self.out_blocks, self.in_blocks, self.kernel, self.kernel)
        data = te.placeholder(image, "int8", name="data")
        kernel = te.placeholder((*filters, c.block_out, c.block_in), "int8", name="kernel")
        vector = te.placeholder((self.out_blocks, c.batch, c.block_out), "int32", name="bias")

        def pixel(n, i, y, x, *lane):
            inside = [y >= p, y < self.height + p, x >= p, x < self.width + p]
            value = data(n, i, y - p, x - p, *lane)
            return (
                tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, "int8")) if p else value
            )

        padded = (1, self.in_blocks, self.height + 2 * p, self.width + 2 * p, c.batch, c.block_in)
        data_buf = te.compute(padded, pixel, name="data_buf")
        kernel_buf = te.compute(kernel.shape, lambda *i: kernel(*i), name="kernel_buf")
        bias_buf = te.compute(vector.shape, lambda *i: vector(*i), name="bias_buf")
        ic, dy, dx, lane = (
            te.reduce_axis((0, extent), name=name)
            for name, extent in (
                ("ic", self.in_blocks),
                ("dy", self.kernel),
                ("dx", self.kernel),
                ("lane", c.block_in),
            )
        )
        shape = (1, self.out_blocks, rows, columns, c.batch, c.block_out)
        made = {
            "conv": te.compute(
                shape,
                lambda n, o, y, x, b, v: te.sum(
                    data_buf(n, ic, y + dy * d, x + dx * d, b, lane).astype("int32")
                    * kernel_buf(o, ic, dy, dx, v, lane).astype("int32"),
                    axis=[ic, dy, dx, lane],
                ),
                name="conv",
            )
        }
        last = made["conv"]
        if self.bias:
            last = te.compute(
                shape,
                lambda n, o, y, x, *v: made["conv"](n, o, y, x, *v) + bias_buf(o, *v),
                "biased",
            )
        for name, op, operand in self.stages:
            last = made[name] = te.compute(shape, _body(op, last, made.get(operand, operand)), name)
        res = te.compute(shape, lambda *i: last(*i).astype("int8"), name="res")
        return te.create_prim_func([data, kernel, *([vector] if self.bias else []), res])

    def arrays(self, rng):
        """Return random packed arguments."""
        c = self.config
        image = (1, self.in_blocks, self.height, self.width, c.batch, c.block_in)
        filters = (self.out_blocks, self.in_blocks, self.kernel, self.kernel)
        found = [
            rng.integers(-128, 128, image).astype(np.int8),
            rng.integers(-128, 128, (*filters, c.block_out, c.block_in)).astype(np.int8),
        ]
        if self.bias:
            row = rng.integers(-5000, 5000, (self.out_blocks, 1, c.block_out))
            found.append(np.repeat(row, c.batch, axis=1).astype(np.int32))
        return found

    def expected(self, data, kernel, bias=None):
        """Return the packed result by NumPy."""
        c, p = self.config, self.padding
        images = data.transpose(0, 4, 1, 5, 2, 3).reshape(c.batch, -1, self.height, self.width)
        filters = kernel.transpose(0, 4, 1, 5, 2, 3).reshape(
            self.out_blocks * c.block_out, -1, self.kernel, self.kernel
        )
        total = conv2d_reference(images, filters, (1, 1), (p,) * 4, (self.dilation,) * 2)
        made = {"conv": total}
        if bias is not None:
            total = total + bias[:, 0].reshape(1, -1, 1, 1)
        for name, op, operand in self.stages:
            total = made[name] = _numpy(op, total, made.get(operand, operand))
        low = total.astype(np.int32).astype(np.int8)
        blocks = low.reshape(1, c.batch, self.out_blocks, c.block_out, *self.out_size)
        return blocks.transpose(0, 2, 4, 5, 1, 3)


def _body(op, first, second):
    def value(*index):
        other = second(*index) if isinstance(second, te.Tensor) else second
        return {
            "add": lambda a, b: a + b,
            "max": tirx.max,
            "min": tirx.min,
            "mul": lambda a, b: a * b,
            "shr": lambda a, b: a >> b,
        }[op](first(*index), other)

    return value


def _numpy(op, first, second):
    return {
        "add": np.add,
        "max": np.maximum,
        "min": np.minimum,
        "mul": np.multiply,
        "shr": np.right_shift,
    }[op](first, second)


@dataclass
class Plan:
    """A schedule of a `Convolution`: tiles, order, threads, marks."""

    oc: int = 1
    y: int = 3
    x: int = 5
    ic: int = 1
    threads: str = ""
    order: tuple[str, ...] = ("oc", "y", "x")
    marked: bool = True
    inner: tuple[str, ...] = ("co", "cy", "dy", "dx", "cx")
    until: str = field(default="")

    def schedule(self, op: Convolution):
        """Return the schedule; `until` names the step before which it stops."""
        s = tvm.s_tir.Schedule(tvm.IRModule({"main": op.declare()}))
        self.apply(s, op)
        return s

    def apply(self, s, op: Convolution):
        """Schedule the declaration of `op`; sizes of tiles may be TVM's random variables."""
        config = op.config
        n, oc, y, x, b, v = s.get_loops(s.get_sblock("res"))
        outer, inside = {}, {}
        for name, loop, tile in (("oc", oc, self.oc), ("y", y, self.y), ("x", x, self.x)):
            if name == self.threads:
                outer[name], thread, inside[name] = s.split(loop, [None, 2, tile])
            else:
                outer[name], inside[name] = s.split(loop, [None, tile])
        order = [outer[name] for name in self.order]
        threads = [thread] if self.threads else []
        s.reorder(*threads, *order, n, inside["oc"], inside["y"], inside["x"], b, v)
        tile = order[-1]
        names = [name for name, *_ in op.stages]
        for name in [*reversed(names), *(["biased"] if op.bias else []), "conv"]:
            s.compute_at(s.get_sblock(name), tile, preserve_unit_loops=True)
            s.set_scope(s.get_sblock(name), 0, vta.acc_scope)
        if op.bias:
            s.compute_at(s.get_sblock("bias_buf"), tile, preserve_unit_loops=True)
            s.set_scope(s.get_sblock("bias_buf"), 0, vta.acc_scope)
        *_, _n, co, cy, cx, cb, cv, ic, dy, dx, lane = s.get_loops(s.get_sblock("conv"))
        step, ci = s.split(ic, [None, self.ic])
        places = {"co": co, "cy": cy, "cx": cx, "dy": dy, "dx": dx}
        s.reorder(step, ci, *(places[name] for name in self.inner), cb, cv, lane)
        for name, scope in (("data_buf", vta.inp_scope), ("kernel_buf", vta.wgt_scope)):
            s.compute_at(s.get_sblock(name), step, preserve_unit_loops=True)
            s.set_scope(s.get_sblock(name), 0, scope)
        if threads:
            s.bind(thread, vta.vthread)
        if self.marked:
            for name, own in (("data_buf", 6), ("kernel_buf", 6)):
                s.annotate(s.get_loops(s.get_sblock(name))[-own], vta.dma_copy, True)
            s.annotate(s.get_loops(s.get_sblock("res"))[-2], vta.dma_copy, True)
        if self.until == "reset":
            return
        s.decompose_reduction(s.get_sblock("conv"), step)
        vta.tensorize(s, "conv_init", vta.reset(config))
        vta.tensorize(s, "conv_update", vta.gemm(config))
        if self.until == "alu":
            return
        if op.bias:
            vta.tensorize(s, "biased", vta.alu(config, "add"))
        for name, kind, operand in op.stages:
            imm = operand if isinstance(operand, int) else None
            vta.tensorize(s, name, vta.alu(config, kind, imm))


def random_convolution(rng: random.Random, config: HardwareConfig) -> Convolution:
    stages = rng.choice(
        [
            (("shr", "shr", 5),),
            (("shr", "shr", 7), ("low", "max", 0), ("high", "min", 90)),
            (("more", "add", 33), ("shr", "shr", 6), ("low", "max", -60)),
            (("tenth", "shr", 3), ("leaky", "max", "conv"), ("out", "shr", 6)),
            (("own", "shr", 6), ("half", "shr", 1), ("both", "add", "own"), ("low", "max", -99)),
        ]
    )
    biased = rng.random() < 0.4 and all(operand != "conv" for _, _, operand in stages)
    return Convolution(
        config,
        out_blocks=rng.randint(1, 4),
        in_blocks=rng.randint(1, 3),
        height=rng.randint(3, 8),
        width=rng.randint(3, 8),
        kernel=rng.choice([1, 2, 3]),
        dilation=rng.choice([1, 1, 2]) if rng.random() < 0.7 else 1,
        padding=rng.randint(0, 2),
        bias=biased,
        stages=stages,
    )


def random_plan(rng: random.Random, op: Convolution) -> Plan:
    rows, columns = op.out_size
    inner = ["co", "cy", "dy", "dx", "cx"]
    rng.shuffle(inner)
    threads = rng.choice(["", "oc", "y"])
    extents = {"oc": op.out_blocks, "y": rows}
    tiles = {"oc": rng.randint(1, op.out_blocks), "y": rng.randint(1, rows)}
    if threads:
        tiles[threads] = rng.randint(1, -(-extents[threads] // 2))
    return Plan(
        oc=tiles["oc"],
        y=tiles["y"],
        x=rng.randint(1, columns),
        ic=rng.randint(1, op.in_blocks),
        threads=threads,
        order=tuple(rng.sample(["oc", "y", "x"], 3)),
        inner=tuple(inner),
        marked=rng.random() < 0.5,
    )


def described_program(
    rng: random.Random, config: HardwareConfig
) -> tuple[vtaops.Conv2d, vtaops.Program]:
    """Return the program of a random schedule, and a description of what it computes."""
    low, high = sorted((rng.randint(-128, 127), rng.randint(-128, 127)))
    shift = rng.randint(1, 15)
    stages = ("shr", "shr", shift), ("low", "max", low), ("high", "min", high)
    while True:
        own = replace(random_convolution(rng, config), stages=stages)
        if min(own.out_size) < 1:
            continue
        op = vtaops.Conv2d(
            batch=config.batch,
            in_channels=own.in_blocks * config.block_in,
            out_channels=own.out_blocks * config.block_out,
            height=own.height,
            width=own.width,
            kernel=own.kernel,
            padding=own.padding,
            dilation=own.dilation,
            bias=own.bias,
            shift=shift,
            clip=(low, high),
        )
        try:
            return op, vtaops.compile_schedule(random_plan(rng, own).schedule(own), config)
        except vtaops.errors.ScheduleError as error:
            if "too many" not in str(error):
                raise
