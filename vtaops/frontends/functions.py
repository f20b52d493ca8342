"""Functions of one value: any chain of elementwise operators, as a table of 256 results.

If constants differ between channels, each channel has its own table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.constants import number, real
from vtaops.frontends.inference import evaluated
from vtaops.frontends.values import NotTranslated, Value


def bounds(value: Value) -> tuple[float, float]:
    """Return the bounds of a Clip.

    Raises
    ------
    NotTranslated
        If they are no constants.
    """
    low, high = value.argument(1), value.argument(2)
    limits = (
        (-math.inf if low is None else number(low)),
        (math.inf if high is None else number(high)),
    )
    if limits[0] is None or limits[1] is None:
        raise NotTranslated(f"{value.label} clips to bounds that are computed when it runs")
    return limits[0], limits[1]


_ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "Pow", "Min", "Max", "Abs", "Neg", "Sign"}
    | {"Exp", "Log", "Erf", "Gelu", "Floor", "Ceil", "Round", "Identity", "Clip", "Relu"}
    | {"LeakyRelu", "HardSigmoid", "HardSwish", "Sigmoid", "Elu", "Selu", "Celu", "Softplus"}
    | {"Softsign", "Mish", "Swish", "ThresholdedRelu", "Shrink", "Sin", "Cos", "Tan", "Asin"}
    | {"Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"}
)
"""Elementwise operators of ONNX."""


def _gelu(value: Value, x: Array) -> Array:
    """Return what ONNX's reference implementation lacks."""
    if value.attrs.get("approximate", "none") == "tanh":
        inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
        return np.asarray(x * (1 + np.tanh(inner)) / 2)
    erf = np.vectorize(math.erf, otypes=[np.float32])
    return np.asarray(x * (1 + erf(x / np.float32(math.sqrt(2)))) / 2)


def is_elementwise(value: Value) -> bool:
    """Return whether each element of a value depends on those at its place alone."""
    return value.op in _ELEMENTWISE


LONGEST_CHAIN = 12
"""Maximum length of a chain of operators; no common activation function is longer."""


def argument_of(value: Value) -> Value | None:
    """Return the dequantised tensor of which a value is an elementwise function, else None."""
    try:
        arguments = _arguments(value, value.static_shape, LONGEST_CHAIN)
    except NotTranslated:
        return None
    return arguments.pop() if len(arguments) == 1 else None


def apply(value: Value, argument: Value, x: Array) -> Array:
    """Return the function's results for the values `x` of its argument.

    `x` has one axis. The result has the same axis, preceded by one for channels if they differ.
    """
    if value is argument:
        return x
    constant = real(value)
    if constant is not None:
        shape = () if constant.size == 1 else (-1, 1)
        return constant.reshape(shape).astype(np.float32)
    arguments = [apply(operand, argument, x) for operand in value.reads]
    if value.op == "Gelu":
        return _gelu(value, *arguments)
    results = evaluated(value.node, arguments) if value.node else None
    if results is None:
        raise NotTranslated(f"{value.label} cannot be computed on 256 values")
    return results[0]


@dataclass(frozen=True)
class Affine:
    """A value as `factor * tensor + term`.

    Factor and term are one number, or one for each index of an axis; `axis` is None if both are
    one number.
    """

    tensor: Value
    factor: Array
    term: Array
    axis: int | None


def affine_of(value: Value) -> Affine | None:
    """Return a value as a function of a dequantised tensor, if it is an affine one, else None.

    A batch norm between quantised tensors is such a function.
    """
    affine = Affine(value, _ONE, _ZERO, None)
    for _ in range(LONGEST_CHAIN):
        inner = affine_step(affine.tensor)
        if inner is None:
            return affine if affine.tensor.op == "DequantizeLinear" else None
        axes = {affine.axis, inner.axis} - {None}
        if len(axes) > 1:
            return None
        term = affine.term + affine.factor * inner.term
        affine = Affine(inner.tensor, affine.factor * inner.factor, term, next(iter(axes), None))
    return None


def affine_step(value: Value) -> Affine | None:
    """Return the value of one operator as an affine function of its argument, else None."""
    if value.op == "BatchNormalization":
        return _batch_norm(value)
    for (tensor, other), rule in zip(value.orders, AFFINE.get(value.op, ()), strict=False):
        constant = real(other)
        if constant is None or rule is None or tensor.shape != value.shape:
            continue
        try:
            axis = varying_axis(constant, value.static_shape)
        except NotTranslated:
            return None
        factor, term = rule(constant.astype(np.float64).reshape(-1))
        return Affine(tensor, factor, term, axis) if np.isfinite(factor).all() else None
    return None


AffineRule = Callable[[Array], tuple[Array, Array]]
"""Returns factor and term of an operator from its constant."""


def _reciprocal(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(1 / x)


_ONE, _ZERO = np.ones(1), np.zeros(1)
AFFINE: dict[str, tuple[AffineRule, AffineRule | None]] = {
    "Add": (lambda c: (_ONE, c), lambda c: (_ONE, c)),
    "Sub": (lambda c: (_ONE, -c), lambda c: (-_ONE, c)),
    "Mul": (lambda c: (c, _ZERO), lambda c: (c, _ZERO)),
    "Div": (lambda c: (_reciprocal(c), _ZERO), None),
}
"""The rules for a constant on the right and on the left."""


def _batch_norm(value: Value) -> Affine | None:
    data, *statistics = value.reads
    numbers = [array for one in statistics if (array := real(one)) is not None]
    if len(numbers) != 4 or data.shape is None:
        return None
    scale, bias, mean, variance = numbers
    factor = scale / np.sqrt(variance + np.float32(value.attrs.get("epsilon", 1e-5)))
    return Affine(data, factor, bias - factor * mean, 1)


def varying_axis(constant: Array, shape: tuple[int, ...]) -> int | None:
    """Return the only axis of a shape along which a constant varies; None for one number.

    Raises
    ------
    NotTranslated
        If it varies along several.
    """
    padded = (1,) * (len(shape) - constant.ndim) + constant.shape
    axes = [axis for axis, extent in enumerate(padded) if extent != 1]
    if not axes:
        return None
    if len(padded) > len(shape) or len(axes) > 1 or padded[axes[0]] != shape[axes[0]]:
        raise NotTranslated(f"a constant of shape {constant.shape} meets a tensor of {shape}")
    return axes[0]


def names(value: Value, argument: Value) -> list[str]:
    """Return the operators of the function, in the order of their application."""
    if value is argument or value.fixed:
        return []
    inner = [name for operand in value.reads for name in names(operand, argument)]
    return [*inner, value.op]


def _arguments(value: Value, shape: tuple[int, ...], depth: int) -> set[Value]:
    """Return the dequantised tensors of which a value is an elementwise function."""
    constant = real(value)
    if constant is not None and (constant.size == 1 or is_per_channel(constant, shape)):
        return set()
    if constant is not None or value.shape != shape:
        raise NotTranslated(f"{value.label} has another shape")
    if value.op == "DequantizeLinear":
        return {value}
    if not is_elementwise(value) or not depth:
        raise NotTranslated(f"{value.label} is not an elementwise function")
    return set().union(*(_arguments(operand, shape, depth - 1) for operand in value.reads))


def is_per_channel(constant: Array, shape: tuple[int, ...]) -> bool:
    """Return whether a constant has one value per channel (axis 1) of a tensor."""
    padded = (1,) * (len(shape) - constant.ndim) + constant.shape
    return len(shape) > 1 and padded == (1, shape[1], *(1,) * (len(shape) - 2))
