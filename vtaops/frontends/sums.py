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
from vtaops.frontends.constants import are_integers, integers, real
from vtaops.frontends.functions import Affine, affine_step, varying_axis
from vtaops.frontends.steps import ResultRange, Source, moved, reshaped, step
from vtaops.frontends.values import NotTranslated, Value
from vtaops.frontends.windows import channel_image, image_shape, window
from vtaops.graph import Concat, Convolution, Dense, Expand, TransposedConvolution
from vtaops.graph.operator import MAX_FACTOR
from vtaops.graph.requantization import Rounds

LEAST_FACTOR = 64
"""Least factor of a residual that is not a power of two; its rounding error is below 1 in 128."""

Product = Convolution | TransposedConvolution | Dense
Operand = Callable[[Value, Value], tuple[Source, float]]
"""Returns a quantised argument of a value, and its scale."""


@dataclass(frozen=True, eq=False)
class Sum:
    """An exact sum before rounding.

    Attributes
    ----------
    shape
        Shape of the result.
    product
        Function that makes the operator from bias, requantisation and residual factor.
    data
        The tensor that the weights multiply.
    scale
        Scale of the sums: one number, or one per output channel.
    axis
        The axis of output channels.
    bias
        Real values to add, one per channel.
    residual, factor
        A tensor to add, and its scale relative to that of the sums.
    """

    shape: tuple[int, ...]
    product: partial[Product]
    data: Source
    scale: Array
    axis: int
    bias: Array
    residual: Source | None = None
    factor: Array | None = None

    def rounded(self, target: ResultRange) -> Source:
        """Return the operator that rounds the sum to a grid."""
        return self._with_room_for_biases(target)._rounded(target)

    def _rounded(self, target: ResultRange) -> Source:
        scale = self.scale
        rounds: Rounds = "twice"
        if target.tflite and self.product.func is Dense:
            rounds = "once"
            if np.ndim(scale) == 0:  # there TFLite multiplies in float32
                scale = np.asarray(np.float32(scale), np.float64)
        requantization = target.requantization(scale / target.scale, rounds)
        steps = np.rint(self.bias / self.scale)
        if np.abs(steps).max(initial=0) >= 1 << 31:
            channel = int(np.abs(steps).argmax())
            raise NotTranslated(
                f"the bias of channel {channel} has {steps[channel]:.3g} steps of its sums, more "
                "than 32 bits hold: the scale of its weights is too fine"
            )
        moved = np.abs(steps * self.scale - self.bias) / target.scale
        if moved.max(initial=0) > 0.5:
            raise NotTranslated("a bias between two steps of the sums, which are too coarse for it")
        bias = steps.astype(np.int32) if steps.any() else None
        inputs = [self.data] if self.residual is None else [self.data, self.residual]
        factors = {} if self.factor is None else {"residual_factor": self.factor}
        op = self.product(bias=bias, requantization=requantization, **factors)
        return reshaped(target.result(op, *inputs), self.shape)

    def _with_room_for_biases(self, target: ResultRange) -> Sum:
        """Return the sum with coarser weights in channels whose bias would leave int32.

        These are so small, for one because a batch norm left none of them, that next to nothing of
        a step of the result is lost.
        """
        weight, far = np.asarray(self.product.args[0]), np.abs(self.bias / self.scale) >= 1 << 30
        if self.residual is not None or target.tflite or len(weight) != len(far) or not far.any():
            return self
        own, rows = np.broadcast_to(self.scale, far.shape), weight.reshape(len(far), -1)
        live = own[~far].max(initial=0.0) or target.scale / 256
        scale = np.where(far, np.maximum(live, np.abs(self.bias) / (1 << 24)), own)
        kept = np.rint(rows * (own / scale)[:, None])
        lost = np.abs(rows * own[:, None] - kept * scale[:, None]).sum(axis=1)
        if (255 * lost > target.scale / 512).any():
            return self
        kept = kept.reshape(weight.shape).astype(weight.dtype)
        product = partial(self.product.func, kept, **self.product.keywords)
        return replace(self, product=product, scale=scale)

    def affine(self, value: Value, function: Affine) -> Sum:
        """Return an affine function of the sum."""
        if function.axis not in (None, self.axis):
            raise NotTranslated(f"{value.label} has constants along another axis than the channels")
        if not (function.factor > 0).all():
            least = function.factor.min()
            raise NotTranslated(f"{value.label} multiplies sums by {least:g}, which must be over 0")
        scale = self.scale * (function.factor if function.factor.size > 1 else function.factor[0])
        return replace(self, scale=scale, bias=self.bias * function.factor + function.term)

    def plus(self, term: Array) -> Sum:
        """Return the sum with real numbers added, one or one for each channel."""
        return replace(self, bias=self.bias + term)


def is_sum(value: Value) -> bool:
    """Return whether a value is a product with weights, or an affine function or sum of one."""
    seen, pending = set[Value](), [value]
    while pending:  # each value once: doubling a value ten times reaches it over a thousand ways
        term = pending.pop()
        if term not in seen:
            seen.add(term)
            if _is_product(term):
                return True
            pending += _terms(term)
    return False


def _is_product(value: Value) -> bool:
    """Return whether a value is a product with weights."""
    if value.op in ("MatMul", "Gemm"):
        weights = value.argument(1)
        return weights is not None and len(weights.shape or ()) < 3 and are_integers(weights)
    return value.op in PRODUCTS


def _terms(value: Value) -> list[Value]:
    """Return the arguments of a value that make it a sum, if one of them is."""
    if value.op in ("Add", "Sub"):
        return value.reads
    data = [read for read in value.reads if not read.fixed]
    return data if value.op in ("Mul", "Div", "BatchNormalization") and len(data) == 1 else []


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
        return _with_bias(PRODUCTS[value.op](value, operand), value)
    affine = affine_step(value)
    if affine is not None:
        return read_sum(affine.tensor, operand).affine(value, affine)
    if value.op != "Add" or len(value.reads) != 2:
        raise NotTranslated(f"{value.label} combines a sum of products in a way that VTA lacks")
    left, right = value.reads
    inner, other = (left, right) if is_sum(left) else (right, left)
    return _with_residual(read_sum(inner, operand), value, other, operand)


def _with_bias(total: Sum, value: Value) -> Sum:
    """Return the sum with the bias of its product."""
    bias = value.argument(2)
    if bias is None:
        return total
    constant = real(bias)
    if constant is None:
        raise NotTranslated(f"the bias of {value.label} is no constant")
    if value.op == "Gemm":
        constant = constant * value.attrs.get("beta", 1.0)
        return total.plus(per_channel(constant, value, total.axis))
    return total.plus(constant.reshape(-1))


def _with_residual(total: Sum, value: Value, other: Value, operand: Operand) -> Sum:
    if total.residual is not None:
        raise NotTranslated("a second tensor is added to one sum")
    residual, scale = operand(other, value)
    if residual.tensor.shape != value.shape:
        residual = moved(Expand(value.static_shape), residual)
    if total.product.func is not Convolution:
        raise NotTranslated(f"a residual on the product {total.product.func.__name__}")
    total = _spread(total, value.static_shape)
    exact = scale / total.scale
    factor = np.rint(exact)
    coarse = (exact != factor) & (factor < LEAST_FACTOR)
    if coarse.any() or (factor < 1).any() or (factor > MAX_FACTOR).any():
        raise NotTranslated("a residual whose step is too fine for the sums that it joins")
    residual = reshaped(residual, image_shape(value))
    return replace(total, residual=residual, factor=factor.astype(np.int64))


def _spread(total: Sum, shape: tuple[int, ...]) -> Sum:
    """Return a sum for one pixel, or for one channel, as one for all that it is added to."""
    weight = total.product.args[0]
    if total.shape[2:] == (1, 1) != shape[2:] and weight.shape[2:] == (1, 1):
        n, channels, _, _ = total.data.tensor.shape
        data = moved(Expand((n, channels, *shape[2:])), total.data)
        total = replace(total, data=data, shape=(*total.shape[:2], *shape[2:]))
    if total.shape[1] == 1 != shape[1]:
        repeated, bias = (np.repeat(part, shape[1], axis=0) for part in (weight, total.bias))
        product = partial(total.product.func, repeated, **total.product.keywords)
        return replace(total, shape=shape, product=product, bias=bias)
    return total


def per_channel(constant: Array, value: Value, axis: int) -> Array:
    """Return a constant that broadcasts to a value as one real number per channel of an axis."""
    shape = value.static_shape
    if varying_axis(constant, shape) not in (None, axis):
        raise NotTranslated(f"a constant of shape {constant.shape} is added to {shape}")
    return np.broadcast_to(constant.reshape(-1).astype(np.float64), (shape[axis],))


def _weights(value: Value | None, axis: int) -> tuple[Array, Array]:
    """Return weights and their scale: one number, or one per index of `axis`.

    Weights are 8-bit integers less their zero point, so they have up to 9 bits.
    """
    constant = integers(value, narrow=True)
    if constant is None:
        raise NotTranslated(f"the weights {value and value.name!r} are not quantised constants")
    data, scale = constant
    if data.min() < -255 or data.max() > 255:
        raise NotTranslated("weights of more than 8 bits")
    scales = np.broadcast_to(scale, data.shape)
    varying = scales[tuple(slice(None if stride else 1) for stride in scales.strides)]
    scales = np.moveaxis(varying, axis, 0).reshape(varying.shape[axis], -1)
    if (scales != scales[:, :1]).any():
        raise NotTranslated("weights with scales along another axis than output channels")
    each = np.broadcast_to(scales[:, 0].astype(np.float64), data.shape[axis])
    return data, each[0] if (each == each[0]).all() else each


def _narrow(
    weight: Array, data: Source, axis: int, data_axis: int = 1, groups: int = 1
) -> tuple[Array, Source]:
    """Return int8 weights and the data that they multiply.

    Weights that exceed int8 after subtraction of their zero point are split into a sum of two or
    three that do not. The input channels are repeated accordingly, on `axis` of the weights and
    `data_axis` of the data.
    """
    if weight.min(initial=0) >= -128 and weight.max(initial=0) <= 127:
        return weight.astype(np.int8), data
    parts: list[Array] = []
    rest = weight
    while rest.any() or not parts:
        parts.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - parts[-1]
    count = len(parts)
    scale, image = data.tensor.scale, data.tensor.shape
    if groups == 1:
        copies = step(Concat(data_axis), *[data] * count, scale=scale)
        return np.concatenate(parts, axis=axis), copies
    # The copies of a channel are adjacent, so that they stay in its group.
    shape = (*weight.shape[:axis], weight.shape[axis] * count, *weight.shape[axis + 1 :])
    beside = np.stack(parts, axis=axis + 1).reshape(shape)
    each = reshaped(data, (*image[:2], 1, *image[2:]))
    copies = step(Concat(2), *[each] * count, scale=scale)
    return beside, reshaped(copies, (image[0], image[1] * count, *image[2:]))


def _convolution(value: Value, operand: Operand) -> Sum:
    """Read a Conv or a ConvTranspose, whose weights count results on axis 1."""
    transposed, groups = value.op == "ConvTranspose", int(value.attrs.get("group", 1))
    weight, weight_scale = _weights(value.argument(1), int(transposed))
    if transposed and groups > 1 and weight_scale.ndim:
        weight_scale = np.tile(weight_scale, groups)
    geometry = window(value)
    source, data_scale = operand(value.first, value)
    data = reshaped(source, image_shape(value.first))
    weight = weight.reshape(*weight.shape[:2], *geometry.kernel)
    weight, data = _narrow(weight, data, int(not transposed), groups=groups)
    kind = (
        partial(TransposedConvolution, output_padding=geometry.more) if transposed else Convolution
    )
    product = partial(
        kind,
        weight,
        strides=geometry.strides,
        padding=geometry.padding,
        dilation=geometry.dilation,
        groups=groups,
    )
    channels = weight.shape[1] * groups if transposed else len(weight)
    return _sum(value, product, data, data_scale * weight_scale, channels, 1)


def _dense(value: Value, operand: Operand) -> Sum:
    weights, attrs = value.argument(1), value.attrs
    if weights is None or len(weights.static_shape) != 2:
        raise NotTranslated(
            f"{value.label} multiplies by {weights and weights.shape}, not a matrix"
        )
    if attrs.get("transA"):
        raise NotTranslated(f"{value.label} transposes its data")
    outputs = 0 if attrs.get("transB") else 1
    weight, weight_scale = _weights(weights, outputs)
    data, data_scale = operand(value.first, value)
    axis = len(value.static_shape) - 1
    weight, data = _narrow(weight, data, 1 - outputs, axis)
    matrix = np.ascontiguousarray(weight if outputs == 0 else weight.T)
    scale = data_scale * weight_scale * attrs.get("alpha", 1.0)
    return _sum(value, partial(Dense, matrix), data, scale, len(matrix), axis)


def _sum(
    value: Value, product: partial[Any], data: Source, scale: Any, channels: int, axis: int
) -> Sum:
    if not (np.asarray(scale) > 0).all():
        raise NotTranslated(f"{value.label} has the scale {np.min(scale):g}; it must be positive")
    return Sum(value.static_shape, product, data, np.asarray(scale), axis, np.zeros(channels))


PRODUCTS: dict[str, Callable[[Value, Operand], Sum]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MatMul": _dense,
    "Gemm": _dense,
}


def scaled(value: Value, data: Source, data_scale: float, function: Affine) -> Sum:
    """Return an affine function of a tensor.

    It is a depthwise 1x1 convolution; the numbers become part of the scales, and the steps are so
    fine that constants can be added.
    """
    image, exact = channel_image(value.static_shape, function.axis), function.factor
    signs = np.broadcast_to(np.sign(exact), (image[1],))
    scale = np.where(exact == 0, 1.0, np.abs(exact)) / LEAST_FACTOR  # the weight is zero
    scale = scale.reshape(()) if scale.size == 1 else scale
    weight = (LEAST_FACTOR * signs).astype(np.int8).reshape(-1, 1, 1, 1)
    product, data = partial(Convolution, weight, groups=image[1]), reshaped(data, image)
    return _sum(value, product, data, data_scale * scale, image[1], 1).plus(function.term)
