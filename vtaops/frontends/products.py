"""Products with weights, and the sums that start with them, read as `Sum`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.constants import are_integers, integers, real
from vtaops.frontends.functions import affine_step, varying_axes
from vtaops.frontends.steps import Source, reshaped, step
from vtaops.frontends.sums import LEAST_FACTOR, Sum, exact_sum
from vtaops.frontends.translate import image_operand, operand
from vtaops.frontends.values import NotTranslated, Value, reached
from vtaops.frontends.windows import image_shape, window
from vtaops.graph import Concat, Convolution, Dense, Expand, TransposedConvolution
from vtaops.graph.operator import MAX_FACTOR


def is_sum(value: Value) -> bool:
    """Return whether a value is a product with weights, or an affine function or sum of one."""
    return any(map(_is_product, reached([value], _terms)))


def _is_product(value: Value) -> bool:
    """Return whether a value is a product with weights."""
    if value.op in ("MatMul", "Gemm"):
        return len(value.reads[1].shape or ()) < 3 and are_integers(value.reads[1])
    return value.op in PRODUCTS


def _terms(value: Value) -> list[Value]:
    """Return the arguments of a value that make it a sum, if one of them is."""
    if value.op in ("Add", "Sub"):
        return value.reads
    data = [read for read in value.reads if not read.fixed]
    return data if value.op in ("Mul", "Div", "BatchNormalization") and len(data) == 1 else []


def read_sum(value: Value) -> Sum:
    """Return a value for which `is_sum` holds as a sum.

    Raises
    ------
    NotTranslated
        If an operand is not quantised, or VTA has no such product.
    """
    if value.op in PRODUCTS:
        return _with_bias(PRODUCTS[value.op](value), value)
    affine = affine_step(value)
    if affine is not None:
        return read_sum(affine.tensor).affine(value, affine)
    if value.op != "Add" or len(value.reads) != 2:
        raise NotTranslated(f"{value.label} combines a sum of products in a way that VTA lacks")
    left, right = value.reads
    inner, other = (left, right) if is_sum(left) else (right, left)
    return _with_residual(read_sum(inner), value, other)


def _with_bias(total: Sum, value: Value) -> Sum:
    """Return the sum with the bias of its product."""
    stated = value.argument(2)
    if stated is None:
        return total
    bias = real(stated)
    if bias is None:
        raise NotTranslated(f"the bias of {value.label} is no constant")
    if value.op == "Gemm":
        if not varying_axes(bias, total.shape) <= {total.axis}:
            raise NotTranslated(f"a constant of shape {bias.shape} is added to {total.shape}")
        bias = bias * value.attrs.get("beta", 1.0)
    return replace(total, bias=total.bias + bias.reshape(-1))


def _with_residual(total: Sum, value: Value, other: Value) -> Sum:
    if total.inputs[1:]:
        raise NotTranslated("a second tensor is added to one sum")
    residual = operand(other, value)
    if residual.tensor.shape != value.shape:
        residual = step(Expand(value.static_shape), residual)
    if total.product.func is not Convolution:
        raise NotTranslated(f"a residual on the product {total.product.func.__name__}")
    total = _spread(total, value.static_shape)
    exact = residual.tensor.scale / total.scale
    factor = np.rint(exact)
    coarse = (exact != factor) & (factor < LEAST_FACTOR)
    if coarse.any() or (factor < 1).any() or (factor > MAX_FACTOR).any():
        raise NotTranslated("a residual whose step is too fine for the sums that it joins")
    inputs = *total.inputs, reshaped(residual, image_shape(value))
    product = partial(total.product, residual_factor=factor.astype(np.int64))
    return replace(total, inputs=inputs, product=product)


def _spread(total: Sum, shape: tuple[int, ...]) -> Sum:
    """Return a sum for one pixel, or for one channel, as one for all that it is added to."""
    if total.shape[2:] == (1, 1) != shape[2:] and total.weight.shape[2:] == (1, 1):
        (data,) = total.inputs
        data = step(Expand((*data.tensor.shape[:2], *shape[2:])), data)
        total = replace(total, inputs=(data,), shape=(*total.shape[:2], *shape[2:]))
    if total.shape[1] == 1 != shape[1]:
        weight, bias = (np.repeat(part, shape[1], axis=0) for part in (total.weight, total.bias))
        return replace(total, shape=shape, weight=weight, bias=bias)
    return total


def _weights(value: Value, axis: int) -> tuple[Array, Array]:
    """Return weights and their scale: one number, or one per index of `axis`.

    Weights are 8-bit integers less their zero point, so they have up to 9 bits.
    """
    constant = integers(value, narrow=True)
    if constant is None:
        raise NotTranslated(f"the weights {value.name!r} are not quantised constants")
    data, scale = constant
    if data.min() < -255 or data.max() > 255:
        raise NotTranslated("weights of more than 8 bits")
    scales = np.moveaxis(np.broadcast_to(scale, data.shape), axis, 0)
    others = tuple(range(1, data.ndim))
    each = scales.max(axis=others)
    if (scales.min(axis=others) != each).any():
        raise NotTranslated("weights with scales along another axis than output channels")
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
    if groups == 1:
        return np.concatenate(parts, axis=axis), step(Concat(data_axis), *[data] * count)
    # The copies of a channel are adjacent, so that they stay in its group.
    shape = (*weight.shape[:axis], weight.shape[axis] * count, *weight.shape[axis + 1 :])
    beside = np.stack(parts, axis=axis + 1).reshape(shape)
    n, channels, *size = data.tensor.shape
    copies = step(Concat(2), *[reshaped(data, (n, channels, 1, *size))] * count)
    return beside, reshaped(copies, (n, channels * count, *size))


def _convolution(value: Value) -> Sum:
    """Read a Conv or a ConvTranspose, whose weights count results on axis 1."""
    transposed, groups = value.op == "ConvTranspose", int(value.attrs.get("group", 1))
    weight, scale = _weights(value.reads[1], int(transposed))
    if transposed and groups > 1 and scale.ndim:
        scale = np.tile(scale, groups)
    geometry = window(value)
    weight = weight.reshape(*weight.shape[:2], *geometry.kernel)
    weight, data = _narrow(weight, image_operand(value), int(not transposed), groups=groups)
    product = partial(
        partial(TransposedConvolution, output_padding=geometry.more) if transposed else Convolution,
        strides=geometry.strides,
        padding=geometry.padding,
        dilation=geometry.dilation,
        groups=groups,
    )
    return exact_sum(value, value.static_shape, product, weight, data, scale)


def _dense(value: Value) -> Sum:
    weights, attrs, shape = value.reads[1], value.attrs, value.static_shape
    if len(weights.static_shape) != 2:
        raise NotTranslated(f"{value.label} multiplies by {weights.shape}, not a matrix")
    if attrs.get("transA"):
        raise NotTranslated(f"{value.label} transposes its data")
    outputs = 0 if attrs.get("transB") else 1
    weight, scale = _weights(weights, outputs)
    axis = len(shape) - 1
    weight, data = _narrow(weight, operand(value.first, value), 1 - outputs, axis)
    matrix = np.ascontiguousarray(weight if outputs == 0 else weight.T)
    scale = scale * attrs.get("alpha", 1.0)
    return exact_sum(value, shape, partial(Dense), matrix, data, scale, axis)


PRODUCTS: dict[str, Callable[[Value], Sum]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MatMul": _dense,
    "Gemm": _dense,
}
