"""What operators compute, in te on packed tensors: building blocks, epilogues, each operator.

The fallback runs these declarations, `Operator.declare` shows them, and TVM's schedules start from
them. The only file of this room that imports TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from types import MappingProxyType
from typing import Any

import tvm
from tvm import te, tirx

from vtaops import ops
from vtaops.base.errors import ScheduleError
from vtaops.base.fixed_point import BASES, FINE_BITS, FINE_SHIFTS, MULTIPLIER_BITS, NUDGE_STEP
from vtaops.base.window import Size
from vtaops.machine.alu import AluOp
from vtaops.machine.config import LEAST, HardwareConfig
from vtaops.ops.base import Operator
from vtaops.ops.conv2d_transpose import Phases
from vtaops.ops.epilogue import VECTORS, ScaleStage, Stage

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


def bordered(
    data: te.Tensor, before: Size, *, border: bool = True, value: int = 0, blocks: int = 0
) -> Lane:
    """Return the lanes of packed images (n, blocks, rows, columns, ...) with a border.

    Parameters
    ----------
    data : te.Tensor
        The images.
    before : (int, int)
        Border rows and columns above and to the left of the image.
    border : bool
        Whether any lane lies outside the image.
    value : int
        Value of the border.
    blocks : int
        Number of channel blocks to read, if more than the data has.
    """
    _, c, height, width, *_ = (int(extent) for extent in data.shape)

    def lane(b: Expr, ci: Expr, row: Expr, column: Expr, *lanes: Expr) -> Expr:
        y, x = row - before[0], column - before[1]
        inside = [ci < c] if blocks > c else []
        inside += [y >= 0, y < height, x >= 0, x < width] if border else []
        found = data(b, ci, y, x, *lanes)
        if not inside:
            return found
        return tirx.if_then_else(tirx.all(*inside), found, tirx.const(value, "int8"))

    return lane


def declare_image(data: te.Tensor, size: Size, lane: Lane, blocks: int = 0) -> te.Tensor:
    """Declare the stage ``data_buf`` of `size` from the lanes of packed images (see `bordered`).

    It has as many channel blocks as the data, or `blocks`.
    """
    n, c, _, _, *tile = data.shape
    return te.compute((n, blocks or c, *size, *tile), lane, name="data_buf")


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

    return te.compute(
        shape, lambda *index: te.sum(product(*factors(*index, *sums)), axis=sums), name=name
    )


def product(left: Expr, right: Expr) -> Expr:
    """Return the int32 product of two int8 values."""
    return left.astype("int32") * right.astype("int32")


def declare_tiles(weights: te.Tensor, *, each: bool = False) -> te.Tensor:
    """Copy a weight tile on chip; with `each`, one tile per channel block."""
    blocks, _, _, _, *tile = weights.shape
    name = f"{weights.op.name}_buf"
    if each:
        return te.compute((blocks, *tile), lambda c, o, i: weights(c, 0, 0, 0, o, i), name=name)
    return te.compute(tile, lambda o, i: weights(0, 0, 0, 0, o, i), name=name)


def declare_product(
    name: str, data: te.Tensor, scale: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the product of tiles (..., batch, block) with one weight tile, or one per block.

    Parameters
    ----------
    name : str
        Name of the te stage.
    data : te.Tensor
        On-chip int8 tiles.
    scale : te.Tensor
        The on-chip weight tile, (block, block); or (blocks, block, block), for images whose second
        index is the channel block.

    Returns
    -------
    te.Tensor
        int32, of the shape of `data`.
    """
    return declare_product_at(name, data.shape, value_of(data), scale, config)


def declare_product_at(
    name: str, shape: Any, data: Lane, scale: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the product of tiles selected by index; as `declare_product`.

    Parameters
    ----------
    shape : sequence of int
        Shape of the result.
    data : callable
        Maps a result index, with the input channel, to a scalar of a tile.
    """

    def factors(*index: Expr) -> tuple[Expr, Expr]:
        *tile, channel, lane = index
        block = index[1:2] if len(scale.shape) > 2 else ()
        return data(*tile, lane), scale(*block, channel, lane)

    if config.block_in == 1:  # plain tensors: nothing to sum
        return te.compute(shape, lambda *index: product(*factors(*index, 0)), name=name)
    return declare_sum(name, shape, {f"{name}_lane": config.block_in}, factors)


def declare_constant(
    shape: tuple[int, ...], tile: te.Tensor, weights: te.Tensor, config: HardwareConfig
) -> te.Tensor:
    """Declare the per-lane constants of a packed image of `shape`."""
    constant = te.compute(tile.shape[2:], lambda r, i: tile(0, 0, r, i), name="constant_buf")
    return declare_product_at(
        "res_constant",
        shape,
        lambda *index: constant(*index[-2:]),
        declare_tiles(weights, each=True),
        config,
    )


# -------------------------------------------------------------------------- epilogue


def declare_epilogue(
    op: Operator, sums: te.Tensor, given: Given, operands: Given = MappingProxyType({})
) -> te.Tensor:
    """Declare the epilogue of int32 sums and the cast to int8; return the result.

    Parameters
    ----------
    sums : te.Tensor
        Packed as the result.
    given : mapping of str to te.Tensor
        The arguments of the operator, including per-channel vectors.
    operands : mapping of str to te.Tensor
        Other operands of stages, of the shape of the sums.
    """
    vectors = {name: _vector_lane(given[name]) for name in given if name in VECTORS}
    others = {name: value_of(tensor) for name, tensor in operands.items()}
    value = declare_stages(sums, op.stages, {**vectors, **others})
    return te.compute(sums.shape, lambda *i: value(*i).astype("int8"), name="res")


def _vector_lane(vector: te.Tensor) -> Lane:
    """Return a per-channel vector as a value for each lane of a packed result.

    The packed vector is (blocks, rows, block); the second index of a result selects the block. All
    blocks may share one tile, and all rows of a tile one row.
    """
    copy, (blocks, rows, _) = declare_copy(vector), map(int, vector.shape)

    def lane(*index: Expr) -> Expr:
        return copy(index[1] if blocks > 1 else 0, index[-2] if rows > 1 else 0, index[-1])

    return lane


def declare_stages(
    acc: te.Tensor, stages: Sequence[Stage], operands: Mapping[str, Lane]
) -> te.Tensor:
    """Append stages to int32 accumulators; return the last one.

    Parameters
    ----------
    acc : te.Tensor
        int32 accumulators.
    stages : sequence of AluStage or ScaleStage
        The stages.
    operands : mapping of str to callable
        Maps each operand name to a function from a lane's index to the operand's value.
    """
    value = acc
    for stage in stages:
        value = te.compute(acc.shape, _stage_body(stage, value, operands), name=stage.name)
    return value


def _stage_body(stage: Stage, source: te.Tensor, operands: Mapping[str, Lane]) -> Lane:
    plain = [int(extent) for extent in source.shape[-2:]] == [1, 1]  # not hardware tiles

    def body(*index: Any) -> Any:
        others = [operands[name](*index) for name in stage.operands]
        if isinstance(stage, ScaleStage):
            return scale_meaning(stage, source(*index), others)
        second = others[0] if others else stage.imm
        if plain:
            return wrapping_meaning(stage.op, source(*index), second)
        return lane_meaning(stage.op, source(*index), second)

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


def wrapping_meaning(op: AluOp, first: Any, second: Any) -> Any:
    """Return a wrapping operation for CPUs: int32 overflow is undefined in LLVM, int64 wraps."""
    if not op.wraps:
        return lane_meaning(op, first, second)
    other = second if isinstance(second, int) else second.astype("int64")
    return lane_meaning(op, first.astype("int64"), other).astype("int32")


# --------------------------------------------------------------------------- operators


def declare(op: Operator, config: HardwareConfig) -> tvm.IRModule:
    """Return the computation of an operator on packed tensors, as one PrimFunc ``main``."""
    return tvm.IRModule({"main": te.create_prim_func(tensors(op, config))})


def tensors(op: Operator, config: HardwareConfig) -> list[te.Tensor]:
    """Declare the computation on packed tensors in te; return arguments, then result."""
    if isinstance(op, ops.Conv2d):
        op = op.unfolded
    *arguments, result = op.buffers(config)
    given = {
        buffer.name: te.placeholder(
            op.declared_shape(buffer, config), buffer.dtype, name=buffer.name
        )
        for buffer in arguments
    }
    shape = op.declared_shape(result, config)
    return [*given.values(), compute(op, given, shape, config)]


@singledispatch
def compute(op: Operator, given: Given, shape: Shape, config: HardwareConfig) -> te.Tensor:
    """Declare the result, of a packed `shape`, from packed arguments by name."""
    raise ScheduleError(f"there is no declaration of {type(op).__name__}")


@compute.register
def _declared_of_gemm(
    op: ops.Gemm, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    data, kernel = declare_copy(given["data"]), declare_copy(given["weight"], "kernel_buf")
    acc = declare_sum(
        "res_gem",
        shape,
        {"ko": data.shape[1], "ki": config.block_in},
        lambda mo, no, mi, ni, ko, ki: (data[mo, ko, mi, ki], kernel[no, ko, ni, ki]),
    )
    return declare_epilogue(op, acc, given)


@compute.register
def _declared_of_batch_matmul(
    op: ops.BatchMatmul, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    def product(part: str, name: str) -> te.Tensor:
        left, right = (declare_copy(given[f"{side}{part}"]) for side in ("data", "other"))
        return declare_sum(
            name,
            shape,
            {"ko": left.shape[2], "ki": config.block_in},
            lambda b, mo, no, mi, ni, ko, ki: (
                left[b, mo, ko, mi, ki],
                right[b, no, ko, ni, ki],
            ),
        )

    total = product("", "res_gem")
    if op.zero_terms:
        return declare_epilogue(op, total, given, _declare_zero_terms(op, given, shape, config))
    if not op.coarse:
        return declare_epilogue(op, total, given)
    first = product("_coarse", "res_coarse")
    return declare_epilogue(op, first, given, {"product": total})


def _declare_zero_terms(
    op: ops.BatchMatmul, given: Given, shape: Shape, config: HardwareConfig
) -> dict[str, te.Tensor]:
    """Declare the terms of zero points: products of an operand with constants."""
    columns = {"ko": given["data"].shape[2], "ki": config.block_in}
    found = {}
    for name, value in op.zero_terms.items():
        constant = given[name]
        if name == "column":
            total = declare_sum(
                "res_column_sum",
                shape,
                columns,
                lambda b, mo, no, mi, ni, ko, ki, c=constant: (
                    c[0, ko, mi, ki],
                    given["other"][b, no, ko, ni, ki],
                ),
            )
        else:
            total = declare_sum(
                "res_row_sum",
                shape,
                columns,
                lambda b, mo, no, mi, ni, ko, ki, c=constant: (
                    given["data"][b, mo, ko, mi, ki],
                    c[0, ko, ni, ki],
                ),
            )
        factor = value // ops.matmul.one_of(value)
        found[name] = te.compute(shape, _times(total, factor), name=f"res_{name}_term")
    return found


def _times(tensor: te.Tensor, factor: int) -> Callable[..., Any]:
    """Return a tensor times a number, element by element; te takes no other arguments."""
    return lambda *indices: tensor(*indices) * factor


@compute.register
def _declared_of_conv2d(
    op: ops.Conv2d, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    blocks = op.blocks(config)
    data_buf = _declare_input(op, given["data"], blocks.count * blocks.ic)
    (kh, kw), (sh, sw), (dh, dw) = op.window.kernel, op.window.strides, op.window.dilation
    row_step, row_tap = (kh, 1) if op.gathers_rows else (sh, dh)
    axes = {"ic": blocks.ic, "dy": kh, "dx": kw, "ic_tns": config.block_in}

    def sums(kernel: str, name: str) -> te.Tensor:
        kernel_buf = declare_copy(given[kernel])

        def factors(b, co, i, j, bi, ci, ic, dy, dx, lane):  # type: ignore[no-untyped-def]
            group = co // blocks.oc * blocks.ic if blocks.count > 1 else 0
            row, column = i * row_step + dy * row_tap, j * sw + dx * dw
            pixel = data_buf[b, group + ic, row, column, bi, lane]
            return pixel, kernel_buf[co, ic, dy, dx, ci, lane]

        return declare_sum(name, shape, axes, factors)

    found = {"conv": sums("kernel", "res_conv")}
    if op.wide:
        found["conv_high"] = sums("kernel_high", "res_conv_high")
    return _declare_residual(op, found, given, config)


def _declare_residual(
    op: ops.Conv2d, sums: dict[str, te.Tensor], given: Given, config: HardwareConfig
) -> te.Tensor:
    """Declare everything after the convolution, whose sums are given by name."""
    tensors = dict(sums)
    if op.bias_tiles:
        tile, weights = given["constant"], given["constant_scale"]
        tensors["constant"] = declare_constant(sums["conv"].shape, tile, weights, config)
    residual = declare_copy(given["residual"]) if op.residual else None
    if op.residual and op.has_factors:
        for name in op.residual_digits:
            tiles = declare_tiles(given[name], each=True)
            tensors[name] = declare_product(f"res_{name}", residual, tiles, config)
    elif op.residual:
        tile = declare_tiles(given["residual_scale"])
        tensors["residual"] = declare_product("res_residual", residual, tile, config)
    return declare_epilogue(op, tensors[op.digits[0][0]], given, tensors)


def _declare_input(op: ops.Conv2d, data: te.Tensor, blocks: int) -> te.Tensor:
    """Declare the padded input; if the stride skips rows, only the rows in use.

    `blocks` is the number of channel blocks that the groups read; the last merged group can
    read past the end.
    """
    (kh, _), (sh, _), (dh, _) = op.window.kernel, op.window.strides, op.window.dilation
    pixel = bordered(data, op.pads[:2], border=any(op.pads), blocks=blocks)
    if not op.gathers_rows:
        return declare_image(data, op.padded_size, pixel, blocks)

    def gathered(b, ci, r, *index):  # type: ignore[no-untyped-def]
        return pixel(b, ci, r // kh * sh + r % kh * dh, *index)

    size = op.out_size[0] * kh, op.padded_size[1]
    return declare_image(data, size, gathered, blocks)


@compute.register
def _declared_of_conv2d_transpose(
    op: ops.Conv2dTranspose, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    rows, columns = op.rows, op.columns
    size, before = (rows.span, columns.span), (-rows.lowest, -columns.lowest)
    data_buf = declare_image(given["data"], size, bordered(given["data"], before))
    kernel_buf = _declare_kernel(op, given["kernel"])

    def factors(b, co, y, x, bi, ci, ic, ty, tx, lane):  # type: ignore[no-untyped-def]
        (i, dy), (j, dx) = _read(rows, y, ty), _read(columns, x, tx)
        return data_buf[b, ic, i, j, bi, lane], kernel_buf[co, ic, dy, dx, ci, lane]

    axes = {"ic": data_buf.shape[1], "ty": rows.taps, "tx": columns.taps}
    acc = declare_sum("res_conv", shape, {**axes, "lane": config.block_in}, factors)
    return declare_epilogue(op, acc, given)


def _declare_kernel(op: ops.Conv2dTranspose, kernel: te.Tensor) -> te.Tensor:
    """Declare the weights, padded to the same number of taps for every phase.

    The padding is void: never loaded or multiplied (see
    `vtaops.lowering.emission.voids`).
    """
    o, i, *size = (int(extent) for extent in kernel.shape)
    padded = [axis.taps * axis.stride for axis in (op.rows, op.columns)]
    tap = bordered(kernel, (0, 0), border=padded != size[:2])
    return te.compute((o, i, *padded, *size[2:]), tap, name="kernel_buf")


@compute.register
def _declared_of_elementwise(
    op: ops.Elementwise, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    copies = {name: declare_copy(given[name]) for name in op.operands}
    found = {
        name: declare_product(
            f"res_{name}", copies[tensor], declare_tiles(given[f"{name}_scale"]), config
        )
        for name, tensor, _ in op.products
    }
    for name, stage in op.offset_stages.items():
        found[name] = declare_stages(found[name], [stage], {})
    operands: dict[str, Any] = dict(found)
    if op.by_channel:
        operands["other"] = lambda block, _, *lane: found["other"](block, 0, *lane)
    return declare_epilogue(op, next(iter(found.values())), given, operands)


def _declare_padded(op: ops.MaxPool2d | ops.AvgPool2d, data: te.Tensor, value: int) -> te.Tensor:
    """Declare the stage ``data_buf``: packed images padded with `value`."""
    pixel = bordered(data, op.pads[:2], border=any(op.pads), value=value)
    return declare_image(data, op.padded_size, pixel)


@compute.register
def _declared_of_max_pool2d(
    op: ops.MaxPool2d, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    pixels = _declare_padded(op, given["data"], LEAST)
    if not op.reads_inputs(config):
        scale = declare_tiles(given["data_scale"])
        pixels = declare_product("res_data", pixels, scale, config)
    (kh, kw), (sh, sw) = op.window.kernel, op.window.strides
    dy, dx = te.reduce_axis((0, kh), name="dy"), te.reduce_axis((0, kw), name="dx")
    maximum = te.comm_reducer(
        lambda a, b: tirx.max(a, b), lambda dtype: tirx.const(LEAST, dtype), name="maximum"
    )
    greatest = te.compute(
        shape,
        lambda b, c, y, x, *lane: maximum(
            pixels(b, c, y * sh + dy, x * sw + dx, *lane).astype("int32"), axis=[dy, dx]
        ),
        name="res_max",
    )
    return declare_epilogue(op, greatest, given)


@compute.register
def _declared_of_avg_pool2d(
    op: ops.AvgPool2d, given: Given, shape: Shape, config: HardwareConfig
) -> te.Tensor:
    data_buf = _declare_padded(op, given["data"], 0)
    scale_buf = declare_tiles(given["data_scale"])
    (kh, kw), (sh, sw) = op.window.kernel, op.window.strides
    total = declare_sum(
        "res_sum",
        shape,
        {"dy": kh, "dx": kw, "lane": config.block_in},
        lambda b, c, y, x, row, channel, dy, dx, lane: (
            data_buf(b, c, y * sh + dy, x * sw + dx, row, lane),
            scale_buf(channel, lane),
        ),
    )
    mean = _declare_division(op, total) if op.divides else total
    return declare_epilogue(op, mean, given)


def _declare_division(op: ops.AvgPool2d, total: te.Tensor) -> te.Tensor:
    """Declare the rounded quotient of sums and the pixel counts of their windows."""

    def body(b, c, y, x, *lane):  # type: ignore[no-untyped-def]
        count = tirx.max(_pixels(op, 0, y) * _pixels(op, 1, x), 1)
        value = total(b, c, y, x, *lane)
        if op.rounding == "half_up":
            return tirx.floordiv(2 * value + count, 2 * count)
        return tirx.floordiv(value, count)

    return te.compute(total.shape, body, name="res_mean")


def _pixels(op: ops.AvgPool2d, axis: int, position: Any) -> Any:
    """Return a window's number of image pixels along an axis, as a TIR expression."""
    first = position * op.window.strides[axis] - op.pads[axis]
    last = tirx.min(first + op.window.kernel[axis], (op.height, op.width)[axis])
    return tirx.max(last - tirx.max(first, 0), 0)


def _read(axis: Phases, output: Expr, tap: Expr) -> tuple[Expr, Expr]:
    """Return the input pixel, from the lowest, and the kernel tap that an output reads."""
    place = output + axis.before
    return place // axis.stride - tap - axis.lowest, place % axis.stride + tap * axis.stride
