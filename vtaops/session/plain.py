"""PlainOp: a VTA operator on plain arrays, as a tensor operator for any processor.

On a CPU everything except the padded image of a pool is inlined into the loops of the result, and
LLVM vectorizes the innermost; a GPU has one thread per element of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce, singledispatch
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.tirx import IterVar

from vtaops import ops
from vtaops.base.errors import UnsupportedError
from vtaops.kernels.build import block_names
from vtaops.kernels.build import create_schedule as cpu_schedule
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_ELEMENTS, parallel_if
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.cuda.schedule.binding import bind
from vtaops.kernels.cuda.schedule.binding import create_schedule as cuda_schedule
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.common import Expr, Tensor, TensorSpec, pad_image
from vtaops.kernels.ops.elementwise import BINARY
from vtaops.kernels.ops.epilogue import Epilogue, FusedOp, reading_sums
from vtaops.machine.alu import AluOp
from vtaops.machine.config import LEAST, HardwareConfig
from vtaops.machine.views import constant_values
from vtaops.ops import Operator
from vtaops.ops.declarations import declare_sum, lane_meaning, scale_meaning
from vtaops.ops.epilogue import Epilogue as VtaEpilogue
from vtaops.ops.epilogue import ScaleStage
from vtaops.program import Role

Given = dict[str, Tensor]
"""The arguments of an operator by name."""

Lane = Callable[..., Expr]
"""Maps the indices of an element to its value."""


def wrapping(op: AluOp, first: Expr, second: Any) -> Expr:
    """Return an operation of the vector ALU for LLVM, where overflow of int32 is undefined."""
    if not op.wraps:
        return lane_meaning(op, first, second)
    other = second if isinstance(second, int) else second.astype("int64")
    return lane_meaning(op, first.astype("int64"), other).astype("int32")


@dataclass(frozen=True)
class AluEpilogue(Epilogue):
    """The epilogue of a VTA operator on any processor, from int32 sums to int8.

    The stages are those of the accelerator, so both compute the same, including overflows.
    """

    end: VtaEpilogue | None = None

    def result_dtype(self, accumulator: str) -> str:
        return "int8"

    def inputs(self, channels: int, shape: tuple[int, ...], dtype: str) -> tuple[TensorSpec, ...]:
        vectors = self.end.vectors if self.end else ()
        residual = [TensorSpec("residual", shape, "int8")] if self.end and self.end.residual else []
        return (*(TensorSpec(name, (channels,), "int32") for name in vectors), *residual)

    def bind(self, arguments: Given, dtype: str = "int32", *, scaled: bool = False) -> Lane:
        end = self.end
        if end is None:
            return lambda value, *_: value.astype("int8")

        def operand(name: str, channel: Expr, index: tuple[Expr, ...]) -> Expr:
            if end.residual and name == "residual":
                return arguments[name](*index).astype("int32") * end.residual.scale
            if name in end.vectors:
                return arguments[name][channel]
            return tirx.const(end.shared[name], "int32")

        def apply(value: Expr, channel: Expr, *index: Expr) -> Expr:
            for stage in end.stages:
                others = [operand(name, channel, index) for name in stage.operands]
                if isinstance(stage, ScaleStage):
                    value = scale_meaning(stage, value, others)
                else:
                    value = wrapping(stage.op, value, *(others or [stage.imm]))
            return value.astype("int8")

        return reading_sums(apply)


@dataclass(frozen=True)
class PlainOp(FusedOp):
    """A VTA operator on plain arrays: its sums, then its epilogue.

    Attributes
    ----------
    op : Operator
        The operator.
    """

    op: Operator
    accumulator = "int32"

    @property
    def epilogue(self) -> AluEpilogue:  # type: ignore[override]
        return AluEpilogue(end=self.op.epilogue)

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(buffer.name, self._shape(buffer.shape), buffer.dtype)
            for buffer in self.op.buffers(HardwareConfig())  # whose logical shapes all have
            if buffer.role is not Role.CONSTANT
        )

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape of two axes for elementwise operators, whatever their rank."""
        if not isinstance(self.op, ops.Elementwise):
            return shape
        blocks = prod(shape[:2]) if self.op.by_channel else 1
        return blocks, prod(shape) // blocks

    @property
    def flops(self) -> int:
        return 2 * self.op.macs

    def compute(self, given: Given) -> Tensor:
        total = _sums(self.op, given, self.output.shape)
        return self.result(total, self.epilogue.bind(given))


# --------------------------------------------------------------------------------- sums


@singledispatch
def _sums(op: Operator, given: Given, shape: tuple[int, ...]) -> Lane:
    """Return the int32 sums, or maxima, of an operator before its epilogue."""
    raise UnsupportedError(f"the host has no kernel for {op.summary}")


@_sums.register
def _sums_of_conv2d(op: ops.Conv2d, given: Given, shape: tuple[int, ...]) -> Lane:
    image = pad_image(given["data"], op.window, tirx.const(0, "int8"))
    inputs, outputs = op.in_channels // op.groups, op.out_channels // op.groups
    kernel = _number([given[name] for name in ("kernel_high", "kernel") if name in given])

    def factors(b, o, y, x, c, dy, dx):  # type: ignore[no-untyped-def]
        channel = o // outputs * inputs + c
        return image(b, channel, *op.window.pixel(y, x, dy, dx)), kernel(o, c, dy, dx)

    height, width = op.window.kernel
    total = declare_sum("total", shape, {"c": inputs, "dy": height, "dx": width}, factors)
    values = constant_values(HardwareConfig().block_in)
    factor = _number([given[name] for name in op.residual_digits if name in given])

    def lane(b: Expr, o: Expr, *pixel: Expr) -> Expr:
        value = total(b, o, *pixel)
        if op.bias_tiles:
            weights = given["constant_scale"]
            terms = [weights(o, i, 0, 0).astype("int32") * v for i, v in enumerate(values)]
            value = wrapping(AluOp.ADD, value, sum(terms[1:], terms[0]))
        if op.residual and op.has_factors:
            scaled = given["residual"](b, o, *pixel).astype("int32") * factor(o, 0, 0, 0)
            value = wrapping(AluOp.ADD, value, scaled)
        return value

    return lane


def _number(digits: list[Tensor]) -> Lane:
    """Return int32 numbers of int8 digits, the highest first."""
    return lambda *index: reduce(
        lambda high, low: high * 256 + low, [digit(*index).astype("int32") for digit in digits]
    )


@_sums.register
def _sums_of_batch_matmul(op: ops.BatchMatmul, given: Given, shape: tuple[int, ...]) -> Lane:
    def factors(b: Expr, i: Expr, j: Expr, k: Expr) -> tuple[Expr, Expr]:
        left, right = given["data"](b, i, k), given["other"](b, j, k)
        zeros = op.data_zero_point, op.other_zero_point
        return left.astype("int32") - zeros[0], right.astype("int32") - zeros[1]

    total = declare_sum("total", shape, {"k": op.k}, factors)
    # The constant of both zero points, the epilogue adds.
    return lambda *index: total(*index) - op.epilogue.constant


@_sums.register
def _sums_of_elementwise(op: ops.Elementwise, given: Given, shape: tuple[int, ...]) -> Lane:
    def operand(name: str, scale: int, offset: int, index: tuple[Expr, Expr]) -> Expr:
        block, place = index
        at = place if int(given[name].shape[1]) > 1 else 0
        return given[name](block, at).astype("int32") * scale + offset

    def lane(*index: Expr) -> Expr:
        value = operand("data", op.scale, op.data_offset, index)
        if not op.binary:
            return value
        other = operand("other", op.other_scale, op.other_offset, index)
        if op.function == "multiply":
            return wrapping(AluOp.MUL, value, other)
        return BINARY["subtract" if op.function == "sub" else op.function](value, other)

    return lane


@_sums.register
def _sums_of_max_pool2d(op: ops.MaxPool2d, given: Given, shape: tuple[int, ...]) -> Lane:
    return _over_windows(op, given, shape, te.max, LEAST)


@_sums.register
def _sums_of_avg_pool2d(op: ops.AvgPool2d, given: Given, shape: tuple[int, ...]) -> Lane:
    total = _over_windows(op, given, shape, te.sum, 0)
    factor = 1 if op.multiplier else op.factor[0]
    return lambda *index: total(*index) * factor


def _over_windows(
    op: ops.MaxPool2d | ops.AvgPool2d, given: Given, shape: tuple[int, ...], function: Any, pad: int
) -> Lane:
    image = pad_image(given["data"], op.window, tirx.const(pad, "int8"))
    dy, dx = (te.reduce_axis((0, n), name=d) for n, d in zip(op.window.kernel, "yx", strict=True))

    def lane(b: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        pixel = image(b, c, *op.window.pixel(y, x, dy, dx))
        return function(pixel.astype("int32"), axis=[dy, dx])

    total: Lane = te.compute(shape, lane, name="total")
    return total


# ---------------------------------------------------------------------------- schedules


def _inline_into_result(s: Any) -> list[Any]:
    """Inline all elementwise stages except the last; return the reductions, which remain."""
    sums = []
    for block in s.get_child_blocks(s.get_sblock("root")):
        stage = s.get(block)
        if any(axis.iter_type == IterVar.CommReduce for axis in stage.iter_vars):
            sums.append(block)
        elif str(stage.name_hint) != "res":
            s.compute_inline(block)
    return sums


_ROW = 16
"""Minimum row length to vectorize over rows; for shorter rows, window pixels are innermost."""


def schedule_on_cpu(op: PlainOp, target: CpuTarget) -> Any:
    """Schedule a VTA operator's kernel for a CPU."""
    s = cpu_schedule(op.declare())
    worth = op.nbytes >= PARALLEL_ELEMENTS
    if isinstance(op.op, ops.MaxPool2d | ops.AvgPool2d):
        _schedule_pool(s, worth)
    else:
        _inline_into_result(s)
        pieces = s.split(s.fuse(*s.get_loops(s.get_sblock("res"))), [4 * target.cores, None])
        parallel_if(s, pieces[0], worth)
    return s


def _schedule_pool(s: Any, worth: bool) -> None:
    """Pad one channel at a time, then reduce row by row."""
    n, c, row, *_ = s.get_loops(s.get_sblock("res"))
    channel = s.fuse(n, c)
    parallel_if(s, channel, worth)
    s.compute_at(s.get_sblock("total"), row, preserve_unit_loops=True)
    if "padded" in block_names(s):
        s.compute_at(s.get_sblock("padded"), channel)
    column, _, _, *pixels = s.get_loops(s.get_sblock("total"))[2:]
    if int(s.get(column).extent) >= _ROW:
        s.reorder(*pixels, column)
        s.decompose_reduction(s.get_sblock("total"), pixels[0])


_THREADS = 256


def schedule_on_cuda(op: PlainOp, _: CudaTarget) -> Any:
    """Schedule a VTA operator's kernel for a GPU."""
    s = cuda_schedule(op.declare())
    sums = _inline_into_result(s)
    element = s.fuse(*s.get_loops(s.get_sblock("res")))
    grid, thread = s.split(element, [None, min(_THREADS, int(s.get(element).extent))])
    bind(s, block_x=grid, thread_x=thread)
    for block in sums:
        s.compute_at(block, thread)
        s.set_scope(block, 0, "local")
    return s
