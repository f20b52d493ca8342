"""Functions of one value: any chain of elementwise operators, as a table of 256 results.

If constants differ between channels, each channel has its own table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.relax.values import ARITHMETIC, Value, real

_erf = np.vectorize(math.erf, otypes=[np.float32])


def _sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


ELEMENTWISE: dict[str, Callable[..., Any]] = ARITHMETIC | {
    "sigmoid": lambda _, x: _sigmoid(x),
    "tanh": lambda _, x: np.tanh(x),
    "exp": lambda _, x: np.exp(x),
    "log": lambda _, x: np.log(x),
    "erf": lambda _, x: _erf(x),
    "abs": lambda _, x: np.abs(x),
    "negative": lambda _, x: -x,
    "floor": lambda _, x: np.floor(x),
    "nn.relu": lambda _, x: np.maximum(x, 0),
    "nn.leakyrelu": lambda v, x: np.where(x >= 0, x, x * np.float32(v.attrs.alpha)),
    "nn.gelu": lambda _, x: x * (1 + _erf(x / np.float32(math.sqrt(2)))) / 2,
    "nn.silu": lambda _, x: x * _sigmoid(x),
    "clip": lambda v, x: np.clip(x, *(np.float32(bound) for bound in v.extra)),
    "power": lambda _, x, y: np.power(x, y),
    "minimum": lambda _, x, y: np.minimum(x, y),
    "maximum": lambda _, x, y: np.maximum(x, y),
}
"""Elementwise operators of Relax in float32 NumPy; they take their value and the arguments."""


LONGEST_CHAIN = 12
"""Maximum length of a chain of operators; no common activation function is longer."""


def argument_of(value: Value) -> Value | None:
    """Return the dequantised tensor of which a value is an elementwise function, else None."""
    found = _arguments(value, value.shape, LONGEST_CHAIN)
    return found.pop() if found is not None and len(found) == 1 else None


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
    arguments = [apply(operand, argument, x) for operand in value.args]
    with np.errstate(all="ignore"):
        return np.asarray(ELEMENTWISE[value.op](value, *arguments), np.float32)


def affine_of(value: Value) -> tuple[Value, Array, Array] | None:
    """Return tensor, factor and term if a value is `factor * tensor + term`, else None.

    Factor and term are one number, or one per channel. A batch norm between quantised tensors is
    such a chain.
    """
    factor, term = np.ones(1), np.zeros(1)
    for _ in range(LONGEST_CHAIN):
        if value.op == "dequantize":
            return value, factor, term
        if value.op not in ("add", "subtract", "multiply", "divide"):
            return None
        left, right = (_constant(operand, value.shape) for operand in value.args)
        constant, tensor = (right, value.args[0]) if left is None else (left, value.args[1])
        if constant is None or tensor.shape != value.shape:
            return None
        if value.op == "add":
            term = term + factor * constant
        elif value.op == "subtract":
            term = term + factor * (constant if right is None else -constant)
            factor = -factor if right is None else factor
        elif value.op == "multiply":
            factor = factor * constant
        elif right is None or not constant.all():
            return None
        else:
            factor = factor / constant
        value = tensor
    return None


def _constant(value: Value, shape: tuple[int, ...]) -> Array | None:
    """Return a constant as one number, or one per channel of a tensor; None if it is neither."""
    found = real(value)
    if found is None or not (found.size == 1 or _is_per_channel(found, shape)):
        return None
    return found.astype(np.float64).reshape(-1)


def names(value: Value, argument: Value) -> list[str]:
    """Return the operators of the function, in the order of their application."""
    if value is argument or real(value) is not None:
        return []
    return [name for operand in value.args for name in names(operand, argument)] + [value.op]


def _arguments(value: Value, shape: tuple[int, ...], depth: int) -> set[Value] | None:
    constant = real(value)
    if constant is not None:
        return set() if constant.size == 1 or _is_per_channel(constant, shape) else None
    if value.shape != shape:
        return None
    if value.op == "dequantize":
        return {value}
    if value.op not in ELEMENTWISE or not depth:
        return None
    found: set[Value] = set()
    for operand in value.args:
        inner = _arguments(operand, shape, depth - 1)
        if inner is None:
            return None
        found |= inner
    return found


def _is_per_channel(constant: Array, shape: tuple[int, ...]) -> bool:
    """Return whether a constant has one value per channel (axis 1) of a tensor."""
    padded = (1,) * (len(shape) - constant.ndim) + constant.shape
    return len(shape) > 1 and padded == (1, shape[1], *(1,) * (len(shape) - 2))
