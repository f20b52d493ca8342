"""Matrix products; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError, raising
from vtaops.base.shapes import Array
from vtaops.kernels.arrays import as_array, as_given, as_rows, deliver, dtype_name
from vtaops.kernels.calls.arguments import ANY, check_shapes, fused_epilogue
from vtaops.kernels.calls.backend import Backend, KernelCall
from vtaops.kernels.ops import MatmulOp, StackedMatmulOp
from vtaops.kernels.ops.common import ACCUMULATOR

_OPERANDS = {"matmul": ("a", "b"), "dense": ("data", "weight")}
"""Names of the operands of the calls."""


class ProductCalls(Backend):
    """Matrix products and dense layers."""

    def matmul(self, a: Any, b: Any, *, out: Any = None, **fused: Any) -> Array:
        """Return the matrix product of (M, K) and (K, N) matrices, or of stacks of them.

        Parameters
        ----------
        a, b : array_like
            Both float32, giving float32; or int8 or uint8 `a` and int8 `b`, giving int32. On a GPU
            also both float16, giving float32. Leading axes broadcast as in NumPy. A transposed view
            `b` of row-major matrices (``k.swapaxes(-1, -2)``) is read without a copy.
        out : array, optional
            Where to write.
        **fused
            bias (N,), scale_shift (two of (N,)), batch_norm (gamma, beta, mean, variance of (N,)),
            epsilon, residual (..., M, N), not for stacked `b`, activation (see `activation`); for
            int8: bias, residual, activation, shift (arithmetic right shift), clip (low, high),
            which gives int8.

        Returns
        -------
        numpy.ndarray
            (M, N), or (..., M, N).

        Raises
        ------
        ShapeError
            If shapes or dtypes do not fit.
        """
        first = a
        if (b.ndim if type(b) is np.ndarray else _rank(b)) > 2:
            a, b = _stacks(a, b, fused)
            if not self.multiplies_stacks:
                return deliver(self._one_by_one(a, b, fused), first, out)
        b, transposed = as_rows(b)
        product = self.call(_product, (a, b), out, (transposed, "matmul"), fused)
        return product if a is first else as_given(product, first, out)

    def dense(self, data: Any, weight: Any, *, out: Any = None, **fused: Any) -> Array:
        """Return data @ weight.T, a fully connected layer; see `matmul` for the keywords.

        Parameters
        ----------
        data : array_like
            (..., K).
        weight : array_like
            (N, K).
        out : array, optional
            Where to write.
        **fused
            As `matmul`.
        """
        return self.call(_product, (data, weight), out, (True, "dense"), fused)

    def _one_by_one(self, a: Any, b: Any, fused: dict[str, Any]) -> Array:
        """Multiply two stacks of equal length, one matrix at a time."""
        left, right = as_array(a, "a", ANY), as_array(b, "b", ANY)
        matrices = (x.reshape(-1, *x.shape[-2:]) for x in (left, right))
        parts = [self.matmul(x, y, **fused) for x, y in zip(*matrices, strict=True)]
        if not parts:
            none = np.empty((0, left.shape[-1]), left.dtype)
            parts = [self.matmul(none, np.empty(right.shape[-2:], right.dtype), **fused)]
        return np.stack(parts).reshape(*left.shape[:-1], right.shape[-1])


def _rank(b: Any) -> int:
    with raising(ShapeError, "b is not an array", ValueError):
        return np.ndim(b)


def _stacks(a: Any, b: Any, fused: dict[str, Any]) -> tuple[Any, Any]:
    """Broadcast two stacks of matrices to equal length; return the arguments if they match."""
    if np.ndim(a) < 2:
        raise ShapeError(f"a has shape {np.shape(a)} and b {np.shape(b)}; each needs two axes")
    if fused.get("residual") is not None:
        raise ShapeError("stacks of matrices take no residual; add it to the result")
    if np.shape(a)[:-2] == np.shape(b)[:-2]:
        return a, b
    left, right = as_array(a, "a", ANY), as_array(b, "b", ANY)
    try:
        stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError as error:
        raise ShapeError(f"stacks {left.shape} and {right.shape} do not broadcast") from error
    left, right = (np.broadcast_to(x, stack + x.shape[-2:]) for x in (left, right))
    return np.ascontiguousarray(left), np.ascontiguousarray(right)


def _product(
    backend: ProductCalls, a: Any, b: Any, transposed: bool, call: str, **fused: Any
) -> KernelCall:
    names, dense = _OPERANDS[call], call == "dense"
    left = as_array(a, names[0], backend.product_dtypes)
    dtype = dtype_name(left)
    kinds = (dtype, dtype if dtype.startswith("float") else "int8")
    right = as_array(b, names[1], kinds[1:], rank=2 if dense else max(2, np.ndim(b)))
    *stack, k, n = (*right.shape[:-2], *right.shape[:-3:-1]) if transposed else right.shape
    least = 1 if dense else 2
    if left.ndim < least:
        raise ShapeError(f"{names[0]} has shape {left.shape}; it needs {least} axes or more")
    if left.shape[-1] != k:
        shape_right = right.shape if dense else (*stack, k, n)
        raise ShapeError(
            f"{names[0]} has shape {left.shape} and {names[1]} {shape_right}; the sums run "
            f"over {left.shape[-1]} and {k} elements, which must be equal"
        )
    epilogue, added = fused_epilogue(accumulator=ACCUMULATOR[dtype], **fused)
    shape = (*left.shape[:-1], n)
    count = prod(stack)
    rows = left.shape[-2] if stack else prod(shape[:-1])
    one = MatmulOp(rows, n, k, *kinds, transposed, epilogue)
    check_shapes(epilogue.inputs(n, shape, one.accumulator), added)
    op = one if count == 1 else StackedMatmulOp(count, one)
    return KernelCall(op, (left, right, *added), shape)
