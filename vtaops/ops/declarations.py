"""What matrix products and convolutions compute, in te on packed tensors.

`Operator.declare` shows these declarations, and TVM's schedules start from them. The only file of
this room that imports TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import tvm
from tvm import te, tirx

from vtaops import ops
from vtaops.base.errors import ScheduleError
from vtaops.base.fixed_point import BASES, FINE_BITS, FINE_SHIFTS, MULTIPLIER_BITS, NUDGE_STEP
from vtaops.machine.alu import AluOp
from vtaops.machine.config import HardwareConfig
from vtaops.ops.base import Operator
from vtaops.ops.epilogue import VECTORS, AluStage, ScaleStage

Expr = Any
"""A TIR expression. TVM gives no useful static types."""

Lane = Callable[..., Expr]
"""Maps the indices of a lane to its value."""

Given = Mapping[str, te.Tensor]
"""The packed arguments of an operator, by name."""

Shape = tuple[int, ...]


def declare_copy(tensor: te.Tensor, name: str = "") -> te.Tensor:
    """Declare an on-chip copy of a tensor, by default named ``{name of the tensor}_buf``."""
    return te.compute(tensor.shape, lambda *i: tensor(*i), name=name or f"{tensor.op.name}_buf")


def declare_sum(
    name: str, shape: Shape, axes: Mapping[str, int], factors: Callable[..., tuple[Expr, Expr]]
) -> te.Tensor:
    """Declare int32 sums of products of int8 values.

    Parameters
    ----------
    name : str
        Name of the te stage.
    shape : tuple of int
        Shape of the result.
    axes : mapping of str to int
        Names and extents of the reduction axes.
    factors : callable
        Maps a result index followed by a reduction index to the factors of a product.
    """
    sums = [te.reduce_axis((0, extent), name=axis) for axis, extent in axes.items()]

    def total(*index: Expr) -> Expr:
        left, right = factors(*index, *sums)
        return te.sum(left.astype("int32") * right.astype("int32"), axis=sums)

    return te.compute(shape, total, name=name)


# -------------------------------------------------------------------------- epilogue


def declare_epilogue(op: Operator, sums: te.Tensor, given: Given) -> te.Tensor:
    """Declare the ALU stages of int32 sums and the cast to int8; return the result.

    The second index of a result selects the block of a vector, the last two its lane.
    """
    vectors = {name: declare_copy(given[name]) for name in VECTORS if name in given}

    def passed(stage: AluStage, source: te.Tensor) -> Lane:
        def lane(*index: Expr) -> Expr:
            _, block, *_, row, channel = index
            other = stage.imm
            if other is None:
                other = vectors[stage.operand](block, row, channel)
            return lane_meaning(stage.op, source(*index), other)

        return lane

    for stage in op.stages:
        assert isinstance(stage, AluStage)
        sums = te.compute(sums.shape, passed(stage, sums), name=stage.name)
    return te.compute(sums.shape, lambda *index: sums(*index).astype("int8"), name="res")


def scale_meaning(stage: ScaleStage, acc: Any, vectors: Sequence[Any]) -> Any:
    """Return a stage's computation on one lane as a TIR expression.

    Parameters
    ----------
    stage : ScaleStage
        The stage.
    acc : PrimExpr
        The sum, int32.
    vectors : sequence of PrimExpr
        The channel's bias if any, then its scale; int32.
    """
    *bias, scale = vectors
    total = acc.astype("int64")
    if bias:  # int32 overflow is undefined in LLVM: wrap by a cast
        total = (total + bias[0].astype("int64")).astype("int32").astype("int64")
    rounding: Any = 0
    if stage.fine:
        top = FINE_BITS - 1
        multiplier = (scale & ((1 << top) - 1)).astype("int64") + (1 << top)
        shift = ((scale >> top) & 31).astype("int64") + FINE_SHIFTS.start
        code = scale >> (top + 5)
        nudge = (code * (1 << NUDGE_STEP) + BASES[stage.fine]).astype("int64")
        rounding = tirx.Select(total < 0, tirx.const(0, "int64") - nudge, nudge)
    else:
        multiplier = (scale & ((1 << MULTIPLIER_BITS) - 1)).astype("int64")
        shift = (scale >> MULTIPLIER_BITS).astype("int64")
    half = (tirx.const(1, "int64") << shift) >> tirx.const(1, "int64")
    value = ((total * multiplier + (half + rounding)) >> shift) + stage.zero_point
    low, high = stage.clip
    return tirx.min(tirx.max(value, low), high).astype("int32")


def lane_meaning(op: AluOp, first: Any, second: Any) -> Any:
    """Return an ALU operation on one lane as a TIR expression."""
    return op.expression(tirx, first, second)


# --------------------------------------------------------------------------- operators


def declare(op: Operator, config: HardwareConfig) -> tvm.IRModule:
    """Return the computation of an operator on packed tensors, as one PrimFunc ``main``."""
    return tvm.IRModule({"main": te.create_prim_func(tensors(op, config))})


def tensors(op: Operator, config: HardwareConfig) -> list[te.Tensor]:
    """Declare the computation on packed tensors in te; return arguments, then result."""
    if not _is_plain(op):
        raise ScheduleError(
            f"{op.summary} has no te declaration, as only Gemm and Conv2d have, without groups, "
            f"residual, scales, wide weights and skipped rows; vtaops.compile builds its loops "
            f"directly"
        )
    op = op.unfolded if isinstance(op, ops.Conv2d) else op
    *arguments, result = op.buffers(config)
    given = {
        buffer.name: te.placeholder(
            op.declared_shape(buffer, config), buffer.dtype, name=buffer.name
        )
        for buffer in arguments
    }
    shape = op.declared_shape(result, config)
    if isinstance(op, ops.Conv2d):
        sums = _sums_of_conv2d(op, given, shape)
    else:
        sums = _sums_of_gemm(given, shape)
    return [*given.values(), declare_epilogue(op, sums, given)]


def _is_plain(op: Operator) -> TypeGuard[ops.Gemm | ops.Conv2d]:
    """Whether an operator is one sum of products, followed by passes of the ALU."""
    if isinstance(op, ops.Conv2d):
        special = op.wide or op.residual or op.bias_tiles or op.scales or op.gathers_rows
        return op.groups == 1 and not special
    return isinstance(op, ops.Gemm) and not op.scales


def _sums_of_gemm(given: Given, shape: Shape) -> te.Tensor:
    data, kernel = declare_copy(given["data"]), declare_copy(given["weight"], "kernel_buf")
    _, steps, _, lanes = data.shape
    return declare_sum(
        "res_gem",
        shape,
        {"ko": steps, "ki": lanes},
        lambda mo, no, mi, ni, ko, ki: (data[mo, ko, mi, ki], kernel[no, ko, ni, ki]),
    )


def _sums_of_conv2d(op: ops.Conv2d, given: Given, shape: Shape) -> te.Tensor:
    data, kernel = _padded(op, given["data"]), declare_copy(given["kernel"])
    (kh, kw), (sh, sw), (dh, dw) = op.window.kernel, op.window.strides, op.window.dilation

    def factors(b, co, i, j, bi, ci, ic, dy, dx, lane):  # type: ignore[no-untyped-def]
        pixel = data[b, ic, i * sh + dy * dh, j * sw + dx * dw, bi, lane]
        return pixel, kernel[co, ic, dy, dx, ci, lane]

    blocks, lanes = data.shape[1], data.shape[-1]
    axes = {"ic": blocks, "dy": kh, "dx": kw, "ic_tns": lanes}
    return declare_sum("res_conv", shape, axes, factors)


def _padded(op: ops.Conv2d, data: te.Tensor) -> te.Tensor:
    """Declare the input with the zeros around it."""
    n, blocks, height, width, *tile = data.shape
    if not any(op.pads):
        return declare_copy(data)

    def lane(b: Expr, ci: Expr, row: Expr, column: Expr, *lanes: Expr) -> Expr:
        y, x = row - op.pads[0], column - op.pads[1]
        inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        return tirx.if_then_else(inside, data(b, ci, y, x, *lanes), tirx.const(0, "int8"))

    return te.compute((n, blocks, *op.padded_size, *tile), lane, name="data_buf")
