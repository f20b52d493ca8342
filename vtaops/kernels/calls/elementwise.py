"""Elementwise operators; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.kernels.arrays import as_array, dtype_name
from vtaops.kernels.calls.arguments import FLOAT, check_shapes, fused_epilogue
from vtaops.kernels.calls.backend import Backend, KernelCall, operator
from vtaops.kernels.ops import NormalizeOp, UnaryOp
from vtaops.kernels.ops.activations import ACTIVATIONS
from vtaops.kernels.ops.elementwise import broadcast_op
from vtaops.kernels.ops.epilogue import INTEGER_ACTIVATIONS

ARITHMETIC = ("float32", "float64", "int8", "uint8", "int32")
"""dtypes of elementwise arithmetic. Integers wrap, as NumPy's do."""


class ElementwiseCalls(Backend):
    """Broadcast arithmetic, activations, per-channel normalization."""

    @operator(2)
    def vector_add(self, a: Any, b: Any, *, out: Any = None) -> KernelCall:
        """Return a + b of two vectors of equal length; see `add`."""
        x, y = as_array(a, "a", ARITHMETIC, rank=1), as_array(b, "b", ARITHMETIC, rank=1)
        if x.shape != y.shape:
            raise ShapeError(f"a has {x.shape[0]} elements, b {y.shape[0]}; they must be equal")
        return _binary("add", x, y)

    @operator(2)
    def add(self, a: Any, b: Any, *, out: Any = None) -> KernelCall:
        """Return a + b under NumPy's broadcasting.

        Parameters
        ----------
        a, b : array_like
            Both float32, float64, int8, uint8 or int32.
        out : array, optional
            Where to write.

        Raises
        ------
        ShapeError
            If the shapes do not broadcast, or the dtypes differ or are others.
        """
        return _binary("add", a, b)

    @operator(2)
    def subtract(self, a: Any, b: Any, *, out: Any = None) -> KernelCall:
        """Return a - b under NumPy's broadcasting; see `add`."""
        return _binary("subtract", a, b)

    @operator(2)
    def multiply(self, a: Any, b: Any, *, out: Any = None) -> KernelCall:
        """Return a * b under NumPy's broadcasting; see `add`."""
        return _binary("multiply", a, b)

    @operator(2)
    def minimum(self, a: Any, b: Any, *, out: Any = None) -> KernelCall:
        """Return the elementwise minimum under NumPy's broadcasting; see `add`."""
        return _binary("minimum", a, b)

    @operator(2)
    def maximum(self, a: Any, b: Any, *, out: Any = None) -> KernelCall:
        """Return the elementwise maximum under NumPy's broadcasting; see `add`."""
        return _binary("maximum", a, b)

    @operator(1)
    def relu(self, data: Any, *, out: Any = None) -> KernelCall:
        """Return max(data, 0), elementwise; see `activation`."""
        return _unary("relu", data)

    @operator(1)
    def activation(self, data: Any, name: str, *, out: Any = None) -> KernelCall:
        """Apply an activation function to each element of an array.

        Parameters
        ----------
        data : array_like
            Of any shape; float32. For "relu" and "relu6" also float64, int8 or int32.
        name : str
            "relu", "relu6", "sigmoid", "silu", "hard_sigmoid", "hard_swish", "gelu" (exact) or
            "tanh", as PyTorch defines them.
        out : array, optional
            Where to write.

        Raises
        ------
        ShapeError
            If the function is unknown or does not support the dtype.
        """
        return _unary(name, data)

    @operator(3)
    def scale_shift(
        self, data: Any, scale: Any, shift: Any, *, activation: str | None = None, out: Any = None
    ) -> KernelCall:
        """Return data * scale + shift, per channel (axis 1).

        Parameters
        ----------
        data : array_like
            (N, C, ...), float32.
        scale, shift : array_like
            (C,).
        activation : str, optional
            See `activation`.
        out : array, optional
            Where to write.
        """
        return _normalize(data, scale_shift=(scale, shift), activation=activation)

    @operator(5)
    def batch_norm(
        self,
        data: Any,
        gamma: Any,
        beta: Any,
        mean: Any,
        variance: Any,
        *,
        epsilon: float = 1e-5,
        activation: str | None = None,
        out: Any = None,
    ) -> KernelCall:
        """Return (data - mean) / sqrt(variance + epsilon) * gamma + beta, per channel (axis 1).

        Parameters
        ----------
        data : array_like
            (N, C, ...), float32.
        gamma, beta, mean, variance : array_like
            (C,).
        epsilon : float
            Added to the variance.
        activation : str, optional
            See `activation`.
        out : array, optional
            Where to write.
        """
        vectors = (gamma, beta, mean, variance)
        return _normalize(data, batch_norm=vectors, epsilon=epsilon, activation=activation)


def _binary(name: str, a: Any, b: Any) -> KernelCall:
    x, y = as_array(a, "a", ARITHMETIC), as_array(b, "b", ARITHMETIC)
    if x.dtype != y.dtype:
        raise ShapeError(f"a has dtype {x.dtype} and b {y.dtype}; they must be equal")
    op = broadcast_op(name, x.shape, y.shape, dtype_name(x))
    return KernelCall(op, (x, y), np.broadcast_shapes(x.shape, y.shape))


def _unary(name: str, data: Any) -> KernelCall:
    if name not in ACTIVATIONS:
        raise ShapeError(f"activation is {name!r}; give one of {', '.join(ACTIVATIONS)}")
    dtypes = ("float32", "float64", "int8", "int32") if name in INTEGER_ACTIVATIONS else FLOAT
    x = as_array(data, "data", dtypes)
    return KernelCall(UnaryOp(name, x.size, dtype_name(x)), (x,), x.shape)


def _normalize(data: Any, **fused: Any) -> KernelCall:
    x = as_array(data, "data", FLOAT)
    if x.ndim < 2:
        raise ShapeError(f"data has shape {x.shape}; it needs at least the axes (N, C)")
    epilogue, added = fused_epilogue(**fused)
    n, c = x.shape[:2]
    op = NormalizeOp(n, c, prod(x.shape[2:]), epilogue)
    check_shapes(op.inputs[1:], added)
    return KernelCall(op, (x, *added), x.shape)
