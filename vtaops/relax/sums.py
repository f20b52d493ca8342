"""Sums of products: a convolution or product with all terms that are added before rounding.

`quantize(conv(dequantize(x), dequantize(w)) + dequantize(b) + dequantize(r))` is one operator of
the integer graph: bias and residual are added to the exact sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import ChannelShuffle, Concat, Convolution, Dense, TransposedConvolution
from vtaops.graph.operators import MAX_FACTOR
from vtaops.graph.requantization import Rounding
from vtaops.relax.steps import NotTranslated, ResultRange, Source, Step, shapes_translated, step
from vtaops.relax.values import Value, integers, pair, real, sides

LEAST_FACTOR = 64
"""Least factor of a residual that is not a power of two; its rounding error is below 1 in 128."""

Product = Convolution | TransposedConvolution | Dense
Operand = Callable[[Value], tuple[Source, float]]


@dataclass(frozen=True, eq=False)
class Sum:
    """An exact sum before rounding.

    Attributes
    ----------
    product
        Function that makes the operator from bias, requantisation and residual factor.
    data
        The tensor that the weights multiply.
    scale
        Scale of the sums: one number, or one per output channel.
    channels, axis
        Number of output channels and their axis.
    bias
        Real values to add, one per channel.
    residual, factor
        A tensor to add, and its scale relative to that of the sums.
    """

    product: partial[Product]
    data: Source
    scale: Array
    channels: int
    axis: int
    bias: Array
    residual: Source | None = None
    factor: Array | None = None

    def rounded(self, target: ResultRange) -> Step:
        """Return the operator that rounds the sum to a grid."""
        scale = self.scale
        rounding: Rounding = "twice"
        if target.tflite and self.product.func is Dense:
            rounding = "once"
            if np.ndim(scale) == 0:  # there TFLite multiplies in float32
                scale = np.asarray(np.float32(scale), np.float64)
        requantization = target.requantization(scale / target.grid.scale, rounding)
        steps = np.rint(self.bias / self.scale)
        if np.abs(steps).max(initial=0) >= 1 << 31:
            raise NotTranslated("a bias beyond 32 bits")
        moved = np.abs(steps * self.scale - self.bias) / target.grid.scale
        if moved.max(initial=0) > 0.5:
            raise NotTranslated("a bias between two steps of the sums, which are too coarse for it")
        bias = steps.astype(np.int32) if steps.any() else None
        inputs = [self.data] if self.residual is None else [self.data, self.residual]
        given = {} if self.factor is None else {"residual_factor": self.factor}
        with shapes_translated():
            op = self.product(bias=bias, requantization=requantization, **given)
        return step(op, *inputs, scale=target.grid.scale)


def is_sum(value: Value) -> bool:
    """Return whether a value is a product with weights, or a sum with one."""
    if value.op in ("add", "subtract"):
        return any(is_sum(argument) for argument in value.args)
    return value.op in PRODUCTS and (value.op != "matmul" or integers(value.args[1]) is not None)


def read_sum(value: Value, operand: Operand) -> Sum:
    """Return a value as a sum.

    Parameters
    ----------
    value
        A value for which `is_sum` holds.
    operand
        Returns the step or leaf of a quantised operand, and its scale.

    Raises
    ------
    NotTranslated
        If an operand is not quantised, or VTA has no such product.
    """
    if value.op in PRODUCTS:
        return PRODUCTS[value.op](value, operand)
    first, second = value.args
    swapped = not is_sum(first)
    inner, other = (second, first) if swapped else (first, second)
    constant = real(other)
    if constant is None:
        if value.op == "subtract":
            raise NotTranslated("a difference whose operands share no grid")
        return _with_residual(read_sum(inner, operand), value, other, operand)
    if value.op == "subtract" and swapped:
        raise NotTranslated("a constant less a sum of products")
    found = read_sum(inner, operand)
    sign = -1 if value.op == "subtract" else 1
    added = _per_channel(constant, len(value.shape), found.axis, found.channels)
    return replace(found, bias=found.bias + sign * added)


def _with_residual(found: Sum, value: Value, other: Value, operand: Operand) -> Sum:
    if found.residual is not None:
        raise NotTranslated("a second tensor is added to one sum")
    residual, scale = operand(other)
    if residual.tensor.shape != value.shape:
        raise NotTranslated(f"a tensor of {residual.tensor.shape} is added to one of {value.shape}")
    if found.product.func is not Convolution:
        raise NotTranslated(f"a residual on the product {found.product.func.__name__}")
    exact = scale / found.scale
    factor = np.rint(exact)
    coarse = (exact != factor) & (factor < LEAST_FACTOR)
    if coarse.any() or (factor < 1).any() or (factor > MAX_FACTOR).any():
        raise NotTranslated("a residual whose step is too fine for the sums that it joins")
    return replace(found, residual=residual, factor=factor.astype(np.int64))


def _per_channel(constant: Array, rank: int, axis: int, channels: int) -> Array:
    """Return a constant that broadcasts to a sum as one value per channel."""
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if any(extent != 1 for a, extent in enumerate(shape) if a != axis):
        raise NotTranslated(f"a constant of shape {constant.shape} is added to sums")
    return np.broadcast_to(constant.reshape(-1).astype(np.float64), (channels,))


def _weights(value: Value, axis: int) -> tuple[Array, Array]:
    """Return weights and their scale: one number, or one per index of `axis`.

    Weights are 8-bit integers less their zero point, so they have up to 9 bits.
    """
    found = integers(value)
    if found is None:
        raise NotTranslated("its weights are not quantised constants")
    data, scale = found
    if data.min() < -255 or data.max() > 255:
        raise NotTranslated("weights of more than 8 bits")
    scales = np.moveaxis(np.broadcast_to(scale, data.shape), axis, 0).reshape(data.shape[axis], -1)
    if (scales != scales[:, :1]).any():
        raise NotTranslated("weights with scales along another axis than output channels")
    each = scales[:, 0].astype(np.float64)
    return data, each[0] if (each == each[0]).all() else each


def _narrow(
    weight: Array, data: Source, axis: int, data_axis: int = 1, groups: int = 1
) -> tuple[Array, Source]:
    """Return int8 weights and the data that they multiply.

    Weights that exceed int8 after subtraction of their zero point are split into a sum of two or
    three that do not. The input channels are repeated accordingly, on `axis` of the weights and
    `data_axis` of the data.
    """
    parts: list[Array] = []
    rest = weight
    while rest.any() or not parts:
        parts.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - parts[-1]
    count = len(parts)
    if count == 1:
        return parts[0], data
    scale = data.tensor.scale
    copies = step(Concat(data_axis), *[data] * count, scale=scale)
    if groups == 1:
        return np.concatenate(parts, axis=axis), copies
    # The copies of a channel are adjacent, so that they stay in its group.
    shape = (*weight.shape[:axis], weight.shape[axis] * count, *weight.shape[axis + 1 :])
    beside = np.stack(parts, axis=axis + 1).reshape(shape)
    return beside, step(ChannelShuffle(count), copies, scale=scale)


def _check_layout(value: Value, kernel: str) -> None:
    layouts = (str(value.attrs.data_layout), str(value.attrs.kernel_layout))
    if layouts != ("NCHW", kernel):
        raise NotTranslated(f"layouts {' and '.join(layouts)}; translated are NCHW and {kernel}")


def _convolution(value: Value, operand: Operand) -> Sum:
    _check_layout(value, "OIHW")
    attrs = value.attrs
    weight, weight_scale = _weights(value.args[1], 0)
    data, data_scale = operand(value.args[0])
    groups = int(attrs.groups)
    weight, data = _narrow(weight, data, 1, groups=groups)
    product = partial(
        Convolution,
        weight,
        strides=pair(attrs.strides),
        padding=sides(attrs.padding),
        dilation=pair(attrs.dilation),
        groups=groups,
    )
    return _sum(product, data, data_scale * weight_scale, len(weight), 1)


def _transposed_convolution(value: Value, operand: Operand) -> Sum:
    _check_layout(value, "IOHW")
    attrs = value.attrs
    if int(attrs.groups) != 1 or pair(attrs.dilation) != (1, 1):
        raise NotTranslated("a transposed convolution with groups or dilation")
    weight, weight_scale = _weights(value.args[1], 1)
    data, data_scale = operand(value.args[0])
    weight, data = _narrow(weight, data, 0)
    product = partial(
        TransposedConvolution,
        weight,
        strides=pair(attrs.strides),
        padding=sides(attrs.padding),
        output_padding=pair(attrs.output_padding),
    )
    return _sum(product, data, data_scale * weight_scale, weight.shape[1], 1)


def _dense(value: Value, operand: Operand) -> Sum:
    if len(value.args[1].shape) != 2:
        raise NotTranslated(f"constant weights of shape {value.args[1].shape}")
    weight, weight_scale = _weights(value.args[1], 1)
    data, data_scale = operand(value.args[0])
    weight, data = _narrow(weight, data, 0, len(value.shape) - 1)
    product = partial(Dense, np.ascontiguousarray(weight.T))
    return _sum(product, data, data_scale * weight_scale, weight.shape[1], len(value.shape) - 1)


def _sum(product: partial[Any], data: Source, scale: Any, channels: int, axis: int) -> Sum:
    return Sum(product, data, np.asarray(scale), channels, axis, np.zeros(channels))


PRODUCTS: dict[str, Callable[[Value, Operand], Sum]] = {
    "nn.conv2d": _convolution,
    "nn.conv2d_transpose": _transposed_convolution,
    "matmul": _dense,
}


def scaled(
    data: Source,
    data_scale: float,
    factor: Value | None,
    channels: int,
    exact: Array | float = 1.0,
) -> Sum:
    """Return an image times a per-channel constant, as a depthwise 1x1 convolution.

    Without a quantised factor, the image is multiplied by `exact`, real numbers that become part of
    the scales; the steps are then finer, so that constants can be added.
    """
    if len(data.tensor.shape) != 4:
        raise NotTranslated("a constant for each channel with something that is not an image")
    if factor is None:
        signs = np.broadcast_to(np.sign(exact), (channels,))
        weight = (LEAST_FACTOR * signs).astype(np.int8)
        exact = np.asarray(exact, np.float64)
        scale = np.where(exact == 0, 1.0, np.abs(exact)) / LEAST_FACTOR  # the weight is zero
        scale = scale.reshape(()) if scale.size == 1 else scale
    else:
        found = integers(factor)
        if found is None:
            raise NotTranslated("a constant factor that is not quantised")
        parts = (_per_channel(np.asarray(part), 4, 1, channels) for part in found)
        values, scale = parts
        if np.abs(values).max() > 127:
            raise NotTranslated("a factor that does not fit int8 once its zero point is taken off")
        weight = values.astype(np.int8)
        scale = scale[0] if (scale == scale[0]).all() else scale
    product = partial(Convolution, weight.reshape(-1, 1, 1, 1), groups=channels)
    return _sum(product, data, data_scale * scale, channels, 1)
