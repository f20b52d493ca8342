"""Matrix products; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from typing import Any, ClassVar

from vtaops.calls.arguments import PRODUCT, check_shapes, tail
from vtaops.calls.backend import Backend, interned
from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array, dtype_name
from vtaops.ops.tensor import MatmulOp
from vtaops.ops.tensor.common import ACCUMULATOR


class Products(Backend):
    """Matrix products and dense layers."""

    product_dtypes: ClassVar[tuple[str, ...]] = PRODUCT
    """What the left operand may be; a device may have more."""

    def matmul(self, a: Any, b: Any, *, out: Any = None, **fused: Any) -> Array:
        """Return the matrix product of (M, K) and (K, N) matrices.

        Parameters
        ----------
        a, b : array_like
            float32 both, giving float32; or int8 or uint8 `a` and int8 `b`, giving int32. On a GPU
            also float16 both, giving float32.
        out : array, optional
            Where to write.
        **fused
            bias (N,), scale_shift (two of (N,)), batch_norm (gamma, beta, mean, variance of (N,)),
            epsilon, residual (M, N), activation "relu" or "relu6"; for int8: bias, residual,
            activation, shift (arithmetic right shift), clip (low, high), which gives int8.

        Returns
        -------
        numpy.ndarray
            (M, N).

        Raises
        ------
        ShapeError
            If shapes or dtypes do not fit.
        """
        return self._product(a, b, False, out, fused)

    def dense(self, data: Any, weight: Any, *, out: Any = None, **fused: Any) -> Array:
        """Return data @ weight.T, a fully connected layer; see `matmul` for the keywords.

        Parameters
        ----------
        data : array_like
            (M, K).
        weight : array_like
            (N, K).
        out : array, optional
            Where to write.
        **fused
            As `matmul`.
        """
        return self._product(data, weight, True, out, fused)

    def _product(self, a: Any, b: Any, transposed: bool, out: Any, fused: dict[str, Any]) -> Array:
        names = ("data", "weight") if transposed else ("a", "b")
        left = as_array(a, names[0], self.product_dtypes, rank=2)
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
        op = interned(MatmulOp, left.shape[0], n, k, *kinds, transposed, end.epilogue)
        if end.arrays:
            check_shapes(op, (left, right, *end.arrays))
        return self.prepared(op)(left, right, *end.arrays, out=out)
