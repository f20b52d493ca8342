"""Matrix products; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array, deliver, dtype_name
from vtaops.kernels.calls.arguments import ANY, PRODUCT, check_shapes, tail
from vtaops.kernels.calls.backend import Backend, KernelCall
from vtaops.kernels.ops import MatmulOp
from vtaops.kernels.ops.common import ACCUMULATOR


class ProductCalls(Backend):
    """Matrix products and dense layers."""

    product_dtypes: ClassVar[tuple[str, ...]] = PRODUCT
    """What the left operand may be; a device may have more."""

    def matmul(self, a: Any, b: Any, *, out: Any = None, **fused: Any) -> Array:
        """Return the matrix product of (M, K) and (K, N) matrices, or of stacks of them.

        Parameters
        ----------
        a, b : array_like
            float32 both, giving float32; or int8 or uint8 `a` and int8 `b`, giving int32. On a GPU
            also float16 both, giving float32. With more axes, the leading ones broadcast, as
            NumPy's do; where `b` has more, matrix after matrix is multiplied.
        out : array, optional
            Where to write.
        **fused
            bias (N,), scale_shift (two of (N,)), batch_norm (gamma, beta, mean, variance of (N,)),
            epsilon, residual (..., M, N), not for a stack `b`, activation (see `activation`); for
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
        if np.ndim(b) > 2:
            return self._stacked(a, b, out, fused)
        return self.call(_product, (a, b), out, (False, self.product_dtypes), fused)

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
        return self.call(_product, (data, weight), out, (True, self.product_dtypes), fused)

    def _stacked(self, a: Any, b: Any, out: Any, fused: dict[str, Any]) -> Array:
        """Multiply matrix after matrix of two stacks."""
        left, right = as_array(a, "a", ANY), as_array(b, "b", ANY)
        if left.ndim < 2:
            raise ShapeError(f"a has shape {left.shape} and b {right.shape}; each needs two axes")
        if fused.get("residual") is not None:
            raise ShapeError("stacks of matrices take no residual; add it to the result")
        try:
            stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        except ValueError as error:
            raise ShapeError(f"stacks {left.shape} and {right.shape} do not broadcast") from error
        lefts = np.broadcast_to(left, stack + left.shape[-2:]).reshape(-1, *left.shape[-2:])
        rights = np.broadcast_to(right, stack + right.shape[-2:]).reshape(-1, *right.shape[-2:])
        parts = [self.matmul(x, y, **fused) for x, y in zip(lefts, rights, strict=True)]
        if not parts:
            none, some = np.empty((0, left.shape[-1]), left.dtype), right.shape[-2:]
            parts = [self.matmul(none, np.empty(some, right.dtype), **fused)]
        result = np.stack(parts).reshape(*stack, left.shape[-2], right.shape[-1])
        return deliver(result, a, out)


def _product(a: Any, b: Any, transposed: bool, dtypes: tuple[str, ...], **fused: Any) -> KernelCall:
    names = ("data", "weight") if transposed else ("a", "b")
    left = as_array(a, names[0], dtypes)
    least = 1 if transposed else 2
    if left.ndim < least:
        raise ShapeError(f"{names[0]} has shape {left.shape}; it needs {least} axes or more")
    dtype = dtype_name(left)
    kinds = (dtype, dtype if dtype.startswith("float") else "int8")
    right = as_array(b, names[1], kinds[1:], rank=2)
    n, k = right.shape if transposed else right.shape[::-1]
    if left.shape[-1] != k:
        raise ShapeError(
            f"{names[0]} has shape {left.shape} and {names[1]} {right.shape}; the sums run "
            f"over {left.shape[-1]} and {k} elements, which must be equal"
        )
    end = tail(accumulator=ACCUMULATOR[dtype], **fused)
    shape = (*left.shape[:-1], n)
    op = MatmulOp(prod(shape[:-1]), n, k, *kinds, transposed, end.epilogue)
    check_shapes(end.epilogue.inputs(n, shape, op.accumulator), end.arrays)
    return KernelCall(op, (left, right, *end.arrays), shape)
