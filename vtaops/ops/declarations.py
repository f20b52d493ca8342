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
from vtaops.ops.groups import GroupBlocks

Expr = Any
"""A TIR expression. TVM gives no useful static types."""

Lane = Callable[..., Expr]
"""Maps the indices of a lane to its value."""

Given = Mapping[str, te.Tensor]
"""The packed arguments of an operator, by name."""

Shape = tuple[int, ...]


def declare_copy(tensor: te.Tensor, name: str = "") -> te.Tensor:
    """Declare an on-chip copy of a tensor, by default named ``{name of the tensor}_buf``."""
    return te.compute(tensor.shape, value_of(tensor), name=name or f"{tensor.op.name}_buf")


def value_of(tensor: te.Tensor) -> Lane:
    """Return a function from a lane's index to the tensor's value."""
    return lambda *index: tensor(*index)


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
    """Declare the epilogue of int32 sums and the cast to int8; return the result.

    Parameters
    ----------
    sums : te.Tensor
        Packed as the result.
    given : mapping of str to te.Tensor
        The arguments of the operator, including per-channel vectors.
    """
    vectors = {name: _vector_lane(given[name]) for name in given if name in VECTORS}
    value = sums
    for stage in op.stages:
        assert isinstance(stage, AluStage)
        value = te.compute(sums.shape, _stage_body(stage, value, vectors), name=stage.name)
    return te.compute(sums.shape, lambda *i: value(*i).astype("int8"), name="res")


def _vector_lane(vector: te.Tensor) -> Lane:
    """Return a per-channel vector as a value for each lane of a packed result.

    The packed vector is (blocks, rows, block); the second index of a result selects the block. All
    rows of a tile may share one row.
    """
    copy, rows = declare_copy(vector), int(vector.shape[1])
    return lambda *index: copy(index[1], index[-2] if rows > 1 else 0, index[-1])


def _stage_body(stage: AluStage, source: te.Tensor, vectors: Mapping[str, Lane]) -> Lane:
    def body(*index: Any) -> Any:
        other = stage.imm if stage.imm is not None else vectors[stage.operand](*index)
        return lane_meaning(stage.op, source(*index), other)

    return body


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
    return _clipped(value, *stage.clip).astype("int32")


def _clipped(value: Any, low: int, high: int) -> Any:
    """Clip a value.

    For a one-value clip, TVM's simplifier would turn min/max into a constant: a block that reads
    nothing and matches no intrinsic. It does not simplify comparisons.
    """
    if low < high:
        return tirx.min(tirx.max(value, low), high)
    bound = tirx.const(low, "int64")
    return tirx.Select(value < low, bound, tirx.Select(value > high, bound, value))


def lane_meaning(op: AluOp, first: Any, second: Any) -> Any:
    """Return an ALU operation on one lane as a TIR expression."""
    return op.expression(tirx, first, second)


# --------------------------------------------------------------------------- operators


def declare(op: Operator, config: HardwareConfig) -> tvm.IRModule:
    """Return the computation of an operator on packed tensors, as one PrimFunc ``main``."""
    return tvm.IRModule({"main": te.create_prim_func(tensors(op, config))})


def tensors(op: Operator, config: HardwareConfig) -> list[te.Tensor]:
    """Declare the computation on packed tensors in te; return arguments, then result."""
    if not _is_plain(op, config):
        raise ScheduleError(
            f"{op.summary} has no te declaration, as only Gemm and Conv2d have, without residual, "
            f"scales, wide weights and windows; vtaops.compile builds its loops directly"
        )
    op = op.unfolded if isinstance(op, ops.Conv2d) else op
    *arguments, result = op.buffers(config)
    placeholders = {
        buffer.name: te.placeholder(
            op.declared_shape(buffer, config), buffer.dtype, name=buffer.name
        )
        for buffer in arguments
    }
    shape = op.declared_shape(result, config)
    if isinstance(op, ops.Gemm):
        return [*placeholders.values(), _declared_gemm(op, placeholders, shape, config)]
    return [*placeholders.values(), _declared_conv2d(op, placeholders, shape, config)]


def _is_plain(op: Operator, config: HardwareConfig) -> TypeGuard[ops.Gemm | ops.Conv2d]:
    """Whether an operator is one sum of products, followed by passes of the ALU."""
    if isinstance(op, ops.Conv2d) and (op.wide or op.residual or op.bias_tiles):
        return False
    windows = isinstance(op, ops.Conv2d) and op.windows(config)
    return isinstance(op, ops.Gemm | ops.Conv2d) and not (op.scales or windows)


def _declared_gemm(op: ops.Gemm, given: Given, shape: Shape, config: HardwareConfig) -> te.Tensor:
    data, kernel = declare_copy(given["data"]), declare_copy(given["weight"], "kernel_buf")
    acc = declare_sum(
        "res_gem",
        shape,
        {"ko": data.shape[1], "ki": config.block_in},
        lambda mo, no, mi, ni, ko, ki: (data[mo, ko, mi, ki], kernel[no, ko, ni, ki]),
    )
    return declare_epilogue(op, acc, given)


def _declared_conv2d(
    op: ops.Conv2d, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    blocks = op.blocks(config)
    data, kernel = _declare_input(op, given["data"], blocks), declare_copy(given["kernel"])
    (kh, kw), (sh, sw), (dh, dw) = op.window.kernel, op.window.strides, op.window.dilation
    row_step, row_tap = (kh, 1) if op.gathers_rows else (sh, dh)

    def factors(b, co, i, j, bi, ci, ic, dy, dx, lane):  # type: ignore[no-untyped-def]
        group = co // blocks.oc * blocks.ic if blocks.count > 1 else 0
        row, column = i * row_step + dy * row_tap, j * sw + dx * dw
        return data[b, group + ic, row, column, bi, lane], kernel[co, ic, dy, dx, ci, lane]

    axes = {"ic": blocks.ic, "dy": kh, "dx": kw, "ic_tns": config.block_in}
    return declare_epilogue(op, declare_sum("res_conv", shape, axes, factors), given)


def _declare_input(op: ops.Conv2d, data: te.Tensor, groups: GroupBlocks) -> te.Tensor:
    """Declare the padded input; if the stride skips rows, only the rows in use.

    It has the channel blocks that the groups read; the last merged group can read past the end.
    """
    n, c, height, width, *tile = (int(extent) for extent in data.shape)
    blocks, kh = groups.count * groups.ic, op.window.kernel[0]

    def lane(b: Expr, ci: Expr, row: Expr, column: Expr, *lanes: Expr) -> Expr:
        if op.gathers_rows:
            row = row // kh * op.window.strides[0] + row % kh * op.window.dilation[0]
        y, x = row - op.pads[0], column - op.pads[1]
        inside = [ci < c] if blocks > c else []
        inside += [y >= 0, y < height, x >= 0, x < width] if any(op.pads) else []
        pixel = data(b, ci, y, x, *lanes)
        if not inside:
            return pixel
        return tirx.if_then_else(tirx.all(*inside), pixel, tirx.const(0, "int8"))

    rows = op.out_size[0] * kh if op.gathers_rows else op.padded_size[0]
    return te.compute((n, blocks, rows, op.padded_size[1], *tile), lane, name="data_buf")
