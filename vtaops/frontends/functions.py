"""Functions of one value: any chain of elementwise operators, as a table of 256 results.

If constants differ between channels, each channel has its own table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.constants import computed_with, real
from vtaops.frontends.values import NotTranslated, Value

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


LONGEST_CHAIN = 12
"""Maximum length of a chain of operators; no common activation function is longer."""


def argument_of(value: Value) -> Value | None:
    """Return the dequantised tensor of which a value is an elementwise function, else None."""
    (argument, *others) = _arguments(value, value.shape, LONGEST_CHAIN) or {value}
    if others or argument is value or argument.fixed or argument.shape != value.shape:
        return None
    return argument if argument.op == "DequantizeLinear" else None


def _arguments(value: Value, shape: tuple[int, ...] | None, depth: int) -> set[Value]:
    """Return the values of which a value is an elementwise function, but for constants."""
    constant = real(value)
    if constant is not None and varying_axes(constant, shape or ()) <= {1}:  # one for each channel
        return set()
    if not depth or constant is not None or value.shape != shape or value.op not in _ELEMENTWISE:
        return {value}
    return set().union(*(_arguments(read, shape, depth - 1) for read in value.reads))


def apply(value: Value, known: dict[Value, Array]) -> Array:
    """Return the function's results, where those of its argument are known; adds all between.

    What is known of the argument has one axis. The results have the same axis, preceded by one for
    channels if they differ.
    """
    if value not in known:
        known[value] = _applied(value, known)
    return known[value]


def _applied(value: Value, known: dict[Value, Array]) -> Array:
    constant = real(value)
    if constant is not None:
        shape = () if constant.size == 1 else (-1, 1)
        return constant.reshape(shape).astype(np.float32)
    arguments = [apply(operand, known) for operand in value.reads]
    if value.op == "Gelu":
        return _gelu(value, *arguments)
    results = computed_with(value, arguments)
    if results is None:
        raise NotTranslated(f"{value.label} cannot be computed on 256 values")
    return results


@dataclass(frozen=True)
class Affine:
    """A value as `factor * tensor + term`.

    Factor and term are one number, or one for each index of an axis; `axes` holds that one.
    """

    tensor: Value
    factor: Array
    term: Array
    axes: Set[int] = frozenset()


def affine_of(value: Value) -> Affine | None:
    """Return a value as a function of a dequantised tensor, if it is an affine one, else None.

    A batch norm between quantised tensors is such a function.
    """
    affine = Affine(value, _ONE, _ZERO)
    while (inner := affine_step(affine.tensor)) is not None:
        axes = affine.axes | inner.axes
        if len(axes) > 1:
            return None
        term = affine.term + affine.factor * inner.term
        affine = Affine(inner.tensor, affine.factor * inner.factor, term, axes)
    return affine if affine.tensor.op == "DequantizeLinear" else None


def affine_step(value: Value) -> Affine | None:
    """Return the value of one operator as an affine function of its argument, else None."""
    if value.op == "BatchNormalization":
        return _batch_norm(value)
    for (tensor, other), rule in zip(value.orders, AFFINE.get(value.op, ()), strict=False):
        constant = real(other)
        if constant is None or rule is None or tensor.shape != value.shape:
            continue
        axes = varying_axes(constant, value.static_shape)
        factor, term = rule(constant.astype(np.float64).reshape(-1))
        return (
            Affine(tensor, factor, term, axes)
            if len(axes) < 2 and np.isfinite(factor).all()
            else None
        )
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
    if len(numbers) != 4:
        return None
    scale, bias, mean, variance = numbers
    factor = scale / np.sqrt(variance + np.float32(value.attrs.get("epsilon", 1e-5)))
    return Affine(data, factor, bias - factor * mean, {1})


def varying_axes(constant: Array, shape: tuple[int, ...]) -> set[int]:
    """Return the axes of a shape along which a constant that broadcasts to it varies."""
    missing = len(shape) - constant.ndim
    return {missing + axis for axis, extent in enumerate(constant.shape) if extent != 1}
