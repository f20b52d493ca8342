"""Sums of products on VTA: convolutions, matrix products, and means that are sums with one weight.

Constants are folded: weights are spread over the lanes that hold their channels, and all terms of
the sums, including zero points, become one bias (``docs/quantization.md``).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.graph import Node, Quotient
from vtaops.graph import operators as ops
from vtaops.graph.thresholds import scale_of_quotient
from vtaops.machine.views import constant_digits
from vtaops.network.averages import parts, scaled
from vtaops.network.digits import in_digits
from vtaops.network.epilogue import LARGEST_WEIGHT, Sum, SumEpilogue, right_shift
from vtaops.network.im2col import im2col
from vtaops.network.places import Lanes, TensorPlace, on_lanes, packed_lanes
from vtaops.network.propagation import mixes_heads
from vtaops.network.region import LoweredRegion, padding_of, zero_weights
from vtaops.network.storage import Storage
from vtaops.network.target import NotOnVta
from vtaops.ops import AvgPool2d, Conv2d, Conv2dTranspose, Gemm
from vtaops.ops.constants import digits


def lower_convolution(op: ops.Convolution, node: Node, region: LoweredRegion) -> None:
    """Lower to a convolution; a depthwise one does not change lanes."""
    if mixes_heads(node, node.inputs[0].shape, region.storages[node.inputs[0].name]):
        op = _of_heads(op, region.storages[node.inputs[0].name])
    data, weight, groups = region.first(node), op.weight, op.groups
    if groups > 1 and weight.shape[:2] == (groups, 1):
        _depthwise(op, node, region)
        return
    outputs, lanes = packed_lanes(region.image_of(node.outputs[0])[1]), data.seen_lanes
    if groups == 1 or lanes != packed_lanes(len(lanes)):
        weight = ungrouped(weight, groups) if groups > 1 else weight
        weight = on_lanes(weight, lanes, data.width, axis=1)
        weight, groups = on_lanes(weight, outputs, region.filled(len(outputs))), 1
    _convolve(op, node, region, data, weight, outputs, groups)


def _of_heads(op: ops.Convolution, storage: Storage) -> ops.Convolution:
    """Return a convolution that mixes heads, as one that mixes the channels of all heads."""
    each = storage.image[1] // storage.outer
    return replace(
        op,
        weight=np.kron(op.weight[..., 0, 0], np.eye(each, dtype=np.int8))[..., None, None],
        bias=None if op.bias is None else np.repeat(op.bias, each),
        requantization=op.requantization.repeated(each),
    )


def _depthwise(op: ops.Convolution, node: Node, region: LoweredRegion) -> None:
    data = region.same_lanes(node)
    weight = on_lanes(op.weight, data.seen_lanes, data.width)
    _convolve(op, node, region, data, weight, data.seen_lanes, data.width)


def _convolve(
    op: ops.Convolution,
    node: Node,
    region: LoweredRegion,
    data: TensorPlace,
    weight: Array,
    outputs: Lanes,
    groups: int,
) -> None:
    """Add a convolution on lanes; the weights cover all lanes."""
    epilogue = SumEpilogue.of(op, op.weight, node.inputs, region.target)
    padding, sides = padding_of(node.inputs[0], op.padding)
    place = region.result(node, outputs)
    uses = {"data": data.with_sides(sides)}
    if op.residual_factor is not None:
        uses["residual"] = region.second(node, place.seen_lanes)
    uses["res"] = place
    convolution = Conv2d(
        **uses["data"].extents,
        in_channels=groups * weight.shape[1],
        out_channels=len(weight),
        kernel=weight.shape[2:],
        strides=op.strides,
        padding=padding,
        dilation=op.dilation,
        groups=groups,
        **epilogue.fields,
    )
    epilogue = epilogue.on_lanes(outputs, len(weight))
    if groups == 1 and region.is_only_for(node):
        channels = len(data.lanes)
        narrow = replace(convolution, in_channels=channels)
        config = region.target.config
        if found := im2col(narrow, weight[:, :channels], epilogue.constant, config):
            convolution, data.memory.folded, weight, constant = found
            epilogue = replace(epilogue, constant=constant)
    _add_sum(convolution, node, region, uses, weight, epilogue)


def _add_sum(
    op: Conv2d,
    node: Node,
    region: LoweredRegion,
    uses: dict[str, TensorPlace],
    weight: Array,
    epilogue: SumEpilogue,
) -> None:
    """Add a convolution with the terms that are added to its sums."""
    constant = epilogue.constant
    plain = not (region.target.scales or op.wide)  # its constants are small
    constants = constant_digits(constant, region.block) if plain else None
    if constants is None:
        op, bias = epilogue.with_bias(op)
        kernels = {"kernel": weight}
        if op.wide:
            high, low = (digit.astype(np.int8) for digit in digits(weight))
            kernels = {"kernel": low, "kernel_high": high}
        region.step(node, op, uses, **kernels, bias=bias, **epilogue.vectors)
        return
    tiles = constants[:, :, None, None] if constant.any() else None
    op = replace(op, bias_tiles=tiles is not None)
    region.step(node, op, uses, kernel=weight, constant_scale=tiles)


def ungrouped(weight: Array, groups: int) -> Array:
    """Return the weights of a grouped sum as those of a dense one; each group has part of axis 0.

    Raises NotOnVta if they are too many.
    """
    first, second, *kernel = weight.shape
    dense = zero_weights(groups, first // groups, groups, second, *kernel).astype(weight.dtype)
    each = range(groups)
    dense[each, :, each] = weight.reshape(groups, -1, second, *kernel)
    return dense.reshape(first, -1, *kernel)


def lower_transposed_convolution(
    op: ops.TransposedConvolution, node: Node, region: LoweredRegion
) -> None:
    """Lower to a transposed convolution."""
    zero_point, constant = node.inputs[0].zero_point, op.by_output
    if op.groups > 1 or op.dilation != (1, 1):
        raise NotOnVta(
            "window",
            f"it has {op.groups} groups and the dilation {op.dilation}; with zeros between its "
            f"weights, they would be too many or its sums not those of VTA",
        )
    if _one_tap(op):
        constant = constant[..., :1, :1]
    elif zero_point:  # each phase has other taps, hence another constant
        text = f"its input has the zero point {zero_point}; transposed, VTA needs 0"
        raise NotOnVta("zero_point", text)
    if not region.target.scales:
        right_shift(op.requantization)
    epilogue = SumEpilogue.of(op, constant, node.inputs, region.target)
    data, place = region.first(node), region.result(node)
    product = Conv2dTranspose(
        **data.extents,
        in_channels=data.width,
        out_channels=place.width,
        kernel=op.weight.shape[2:],
        strides=op.strides,
        padding=op.padding,
        output_padding=op.output_padding,
        **epilogue.fields,
    )
    _multiply(product, node, region, epilogue, op.weight)


def _one_tap(op: ops.TransposedConvolution) -> bool:
    """Return whether every pixel of the result has one tap, all with the same sum of weights."""
    weight = op.weight.astype(np.int64)
    sums = np.stack([weight.sum(axis=0), np.abs(weight).sum(axis=0)])
    alone = op.weight.shape[2:] == op.strides and op.output_padding == (0, 0)
    return alone and bool((sums == sums[..., :1, :1]).all())


def lower_dense(op: ops.Dense, node: Node, region: LoweredRegion) -> None:
    """Lower to a matrix product, or to a convolution.

    A product for each pixel, or of a flattened image, is a convolution of its size.
    """
    data = region.first(node)
    n, _, h, w = data.image
    epilogue = SumEpilogue.of(op, op.weight, node.inputs, region.target)
    if h * w > 1 or epilogue.fields.get("wide"):
        size = (1, 1) if op.weight.shape[1] == len(data.lanes) else (h, w)
        weight, storage = op.weight, region.storages[node.inputs[0].name]
        if size != (1, 1) and storage.split:  # heads, rows, channels of each head
            outer, inner, *_ = storage.parts[1:]
            weight = np.moveaxis(weight.reshape(-1, outer, h, w, inner), 4, 2)
        weight = weight.reshape(len(weight), len(data.lanes), *size)
        lower_convolution(ops.Convolution(weight, op.bias, op.requantization), node, region)
        return
    place = region.result(node)
    product = Gemm(m=n, n=place.width, k=data.width, **epilogue.fields)
    _multiply(product, node, region, epilogue, op.weight)


def _multiply(
    product: Sum,
    node: Node,
    region: LoweredRegion,
    epilogue: SumEpilogue,
    weight: Array,
) -> None:
    """Add a product with weights; those of a matrix product have output channels first."""
    data, place = region.first(node), region.places[node.outputs[0].name]
    lanes, outputs = place.seen_lanes, place.width
    name, axis = ("weight", 1) if isinstance(product, Gemm) else ("kernel", 0)
    weight = on_lanes(weight, data.seen_lanes, data.width, axis)
    weight = on_lanes(weight, lanes, outputs, 1 - axis)
    epilogue = epilogue.on_lanes(lanes, outputs)
    product, bias = epilogue.with_bias(product)
    weights = {name: weight, "bias": bias, **epilogue.vectors}
    region.step(node, product, {"data": data, "res": place}, **weights)


def lower_requantize(op: ops.Requantize, node: Node, region: LoweredRegion) -> None:
    """Lower to a depthwise convolution with weights of 1, or of the multipliers."""
    channels, scaling = len(region.first(node).lanes), op.requantization
    weight: Array = np.ones((channels, 1, 1, 1), np.int8)
    if not region.target.scales and in_digits(scaling):
        factors = np.broadcast_to(scaling.multiplier, (channels,))
        weight = factors.astype(np.int16).reshape(weight.shape)
        scaling = replace(scaling, multiplier=1, shift=scaling.shift.max())
    _depthwise(ops.Convolution(weight, None, scaling, groups=channels), node, region)


def lower_average_pool(op: ops.AveragePool, node: Node, region: LoweredRegion) -> None:
    """Lower to pools, or to a depthwise convolution whose weights are the factor of the mean."""
    window, scaling = op.window(node.inputs[0]), op.requantization
    if op.differs(node.inputs[0]):
        _average_in_parts(op, node, region)
        return
    channels, bias = len(region.first(node).lanes), None
    if isinstance(scaling, Quotient):  # of the values, with their zero points
        zeros = window.count * node.inputs[0].zero_point
        scaling = scale_of_quotient(scaling, window.count)
        bias = np.full(channels, zeros, np.int32)
    elif not region.target.scales:
        right_shift(scaling)
    kind = np.int8 if op.factor <= LARGEST_WEIGHT else np.int16
    weight = np.full((channels, 1, *window.kernel), op.factor, kind)
    around, each = (op.padding, op.dilation), channels
    convolution = ops.Convolution(weight, bias, scaling, op.strides, *around, each)
    SumEpilogue.of(convolution, weight[:1], node.inputs, region.target)
    if window.dilation != (1, 1) or not _average(op, node, region, window.kernel):
        _depthwise(convolution, node, region)


def _average_in_parts(op: ops.AveragePool, node: Node, region: LoweredRegion) -> None:
    """Lower a mean whose windows differ to one pool for each part of the result."""
    (source,), (result,) = node.inputs, node.outputs
    try:
        found = list(parts(op, source, result, region.target.scales))
    except (NotOnVta, ShapeError) as error:
        raise NotOnVta("window", f"in parts of equal windows: {error}") from error
    data = region.same_lanes(node)
    place = region.result(node, data.seen_lanes)
    for pool, read, written in found:
        pool = replace(pool, channels=data.width)
        region.step(node, pool, {"data": data.with_sides(read), "res": place.with_sides(written)})


def _average(
    op: ops.AveragePool, node: Node, region: LoweredRegion, kernel: tuple[int, int]
) -> bool:
    """Add the pool of VTA, whose weights are one tile; return False if it does not fit."""
    place, source = region.same_lanes(node), node.inputs[0]
    padding, sides = padding_of(source, op.padding)
    data = place.with_sides(sides)
    pool = AvgPool2d(
        **data.extents,
        channels=place.width,
        kernel=kernel,
        strides=op.strides,
        padding=padding,
        rounding="half_up",
        clip=op.requantization.clip,
    )
    scales = region.target.scales
    try:
        pool = scaled(pool, op.requantization, op.factor, source.zero_point, scales)
    except (NotOnVta, ShapeError):
        return False
    if not pool.offset and pool.division == (plain := replace(pool, division=None)).factor:
        pool = plain
    elif pool.offset and math.prod(pool.out_size) > pool.window.count:
        return False  # an offset costs passes over the results, in a convolution a product
    region.step(node, pool, {"data": data, "res": region.result(node, place.seen_lanes)})
    return True
