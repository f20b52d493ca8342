"""Matrix products; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array, as_given, as_output, dtype_name
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
            NumPy's do, and matrix after matrix is multiplied.
        out : array, optional
            Where to write.
        **fused
            bias (N,), scale_shift (two of (N,)), batch_norm (gamma, beta, mean, variance of (N,)),
            epsilon, residual (M, N), activation (see `activation`); for int8: bias, residual,
            activation, shift (arithmetic right shift), clip (low, high), which gives int8.

        Returns
        -------
        numpy.ndarray
            (M, N), or (..., M, N).

        Raises
        ------
        ShapeError
            If shapes or dtypes do not fit.
        """
        if np.ndim(a) > 2 or np.ndim(b) > 2:
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
        parameters = (True, self.product_dtypes)
        if np.ndim(data) == 2:
            return self.call(_product, (data, weight), out, parameters, fused)
        x = as_array(data, "data", ANY)
        if x.ndim == 0:
            raise ShapeError("data is a scalar; dense needs at least one axis")
        if fused.get("residual") is not None:
            residual = as_array(fused["residual"], "residual", (*ANY, "int32"))
            fused = {**fused, "residual": residual.reshape(-1, residual.shape[-1])}
        rows = self.call(_product, (x.reshape(-1, x.shape[-1]), weight), None, parameters, fused)
        result = np.asarray(rows).reshape(*x.shape[:-1], rows.shape[-1])
        if out is not None:
            as_output(out, result.shape, result.dtype.name)[...] = result
        return as_given(result, data, out)

    def _stacked(self, a: Any, b: Any, out: Any, fused: dict[str, Any]) -> Array:
        """Multiply stacks of matrices."""
        left, right = as_array(a, "a", ANY), as_array(b, "b", ANY)
        if min(left.ndim, right.ndim) < 2:
            raise ShapeError(f"a has shape {left.shape} and b {right.shape}; each needs two axes")
        if fused.get("residual") is not None:
            raise ShapeError("stacks of matrices take no residual; add it to the result")
        try:
            stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        except ValueError as error:
            raise ShapeError(f"stacks {left.shape} and {right.shape} do not broadcast") from error
        if right.ndim == 2:  # one product with all rows
            rows = self.matmul(left.reshape(-1, left.shape[-1]), right, **fused)
            result = rows.reshape(*stack, left.shape[-2], right.shape[-1])
        else:
            lefts = np.broadcast_to(left, stack + left.shape[-2:]).reshape(-1, *left.shape[-2:])
            rights = np.broadcast_to(right, stack + right.shape[-2:]).reshape(-1, *right.shape[-2:])
            parts = [self.matmul(x, y, **fused) for x, y in zip(lefts, rights, strict=True)]
            shape = (*stack, left.shape[-2], right.shape[-1])
            if not parts:
                none, some = np.empty((0, left.shape[-1]), left.dtype), right.shape[-2:]
                parts = [self.matmul(none, np.empty(some, right.dtype), **fused)]
            result = np.stack(parts).reshape(shape)
        if out is not None:
            as_output(out, result.shape, result.dtype.name)[...] = result
        return as_given(result, a, out)


def _product(a: Any, b: Any, transposed: bool, dtypes: tuple[str, ...], **fused: Any) -> KernelCall:
    names = ("data", "weight") if transposed else ("a", "b")
    left = as_array(a, names[0], dtypes, rank=2)
    dtype = dtype_name(left)
    kinds = (dtype, dtype if dtype.startswith("float") else "int8")
    right = as_array(b, names[1], kinds[1:], rank=2)
    n, k = right.shape if transposed else right.shape[::-1]
    if left.shape[1] != k:
        raise ShapeError(
            f"{names[0]} has shape {left.shape} and {names[1]} {right.shape}; the sums run "
            f"over {left.shape[1]} and {k} elements, which must be equal"
        )
    end = tail(accumulator=ACCUMULATOR[dtype], **fused)
    op = MatmulOp(left.shape[0], n, k, *kinds, transposed, end.epilogue)
    arrays = (left, right, *end.arrays)
    check_shapes(op, arrays)
    return KernelCall(op, arrays)
