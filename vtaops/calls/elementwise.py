"""Elementwise operators; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from vtaops.calls.arguments import FLOAT, check_shapes, tail
from vtaops.calls.backend import Backend, interned
from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array, as_output, dtype_name, empty
from vtaops.ops.tensor import NormalizeOp, UnaryOp
from vtaops.ops.tensor.elementwise import BroadcastOp, broadcast_op

ARITHMETIC = ("float32", "float64", "int8", "uint8", "int32")
"""dtypes of elementwise arithmetic. Integers wrap, as NumPy's do."""


class Elementwise(Backend):
    """Broadcast arithmetic, activations, per-channel normalisation."""

    def vector_add(self, a: Any, b: Any, *, out: Any = None) -> Array:
        """Return a + b of two vectors of equal length; see `add`."""
        x, y = as_array(a, "a", ARITHMETIC, rank=1), as_array(b, "b", ARITHMETIC, rank=1)
        if x.shape != y.shape:
            raise ShapeError(f"a has {x.shape[0]} elements, b {y.shape[0]}; they must be equal")
        return self._binary("add", x, y, out)

    def add(self, a: Any, b: Any, *, out: Any = None) -> Array:
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
        return self._binary("add", a, b, out)

    def subtract(self, a: Any, b: Any, *, out: Any = None) -> Array:
        """Return a - b under NumPy's broadcasting; see `add`."""
        return self._binary("subtract", a, b, out)

    def multiply(self, a: Any, b: Any, *, out: Any = None) -> Array:
        """Return a * b under NumPy's broadcasting; see `add`."""
        return self._binary("multiply", a, b, out)

    def minimum(self, a: Any, b: Any, *, out: Any = None) -> Array:
        """Return the lesser of each pair under NumPy's broadcasting; see `add`."""
        return self._binary("minimum", a, b, out)

    def maximum(self, a: Any, b: Any, *, out: Any = None) -> Array:
        """Return the greater of each pair under NumPy's broadcasting; see `add`."""
        return self._binary("maximum", a, b, out)

    def _binary(self, name: str, a: Any, b: Any, out: Any) -> Array:
        x, y = as_array(a, "a", ARITHMETIC), as_array(b, "b", ARITHMETIC)
        op, shape, merged = _binary_op(name, x.shape, y.shape, x.dtype, y.dtype)
        result = empty(shape, op.dtype) if out is None else as_output(out, shape, op.dtype)
        run = self.prepared(op).run
        if merged is None:
            run(x, y, result)
        else:
            run(x.reshape(op.shape_a), y.reshape(op.shape_b), result.reshape(merged))
        return result

    def relu(self, data: Any, *, out: Any = None) -> Array:
        """Return the elements of an array, negative ones as 0.

        Parameters
        ----------
        data : array_like
            Of any shape; float32, float64, int8 or int32.
        out : array, optional
            Where to write.
        """
        x = as_array(data, "data", ("float32", "float64", "int8", "int32"))
        dtype = dtype_name(x)
        found = self.prepared(interned(UnaryOp, "relu", x.size, dtype))
        result = empty(x.shape, dtype) if out is None else as_output(out, x.shape, dtype)
        found.run(x.reshape(-1), result.reshape(-1))
        return result

    def scale_shift(
        self, data: Any, scale: Any, shift: Any, *, activation: str | None = None, out: Any = None
    ) -> Array:
        """Return data * scale + shift, per channel (axis 1).

        Parameters
        ----------
        data : array_like
            (N, C, ...), float32.
        scale, shift : array_like
            (C,).
        activation : str, optional
            "relu" or "relu6".
        out : array, optional
            Where to write.
        """
        return self._normalize(data, out, scale_shift=(scale, shift), activation=activation)

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
    ) -> Array:
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
            "relu" or "relu6".
        out : array, optional
            Where to write.
        """
        return self._normalize(
            data,
            out,
            batch_norm=(gamma, beta, mean, variance),
            epsilon=epsilon,
            activation=activation,
        )

    def _normalize(self, data: Any, out: Any, **fused: Any) -> Array:
        x = as_array(data, "data", FLOAT)
        if x.ndim < 2:
            raise ShapeError(f"data has shape {x.shape}; it needs at least the axes (N, C)")
        end = tail(**fused)
        n, c = x.shape[:2]
        op = interned(NormalizeOp, n, c, x.size // (n * c), end.epilogue)
        flat = x.reshape(op.output.shape)
        check_shapes(op, (flat, *end.arrays))
        result = empty(x.shape, "float32") if out is None else as_output(out, x.shape, "float32")
        self.prepared(op).run(flat, *end.arrays, result.reshape(op.output.shape))
        return result


@lru_cache(maxsize=4096)
def _binary_op(
    name: str, a: tuple[int, ...], b: tuple[int, ...], dtype: Any, other: Any
) -> tuple[BroadcastOp, tuple[int, ...], tuple[int, ...] | None]:
    """Return the operator, the shape of the result, and that of the kernel if it is another."""
    if dtype != other:
        raise ShapeError(f"a has dtype {dtype} and b {other}; they must be equal")
    op = broadcast_op(name, a, b, dtype.name)
    same = (op.shape_a, op.shape_b) == (a, b)
    return op, np.broadcast_shapes(a, b), None if same else op.output.shape
