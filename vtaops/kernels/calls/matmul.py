"""Matrix products; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from typing import Any, ClassVar

from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array, dtype_name
from vtaops.kernels.calls.arguments import PRODUCT, check_shapes, tail
from vtaops.kernels.calls.backend import Backend, KernelCall
from vtaops.kernels.ops import MatmulOp
from vtaops.kernels.ops.common import ACCUMULATOR


class ProductCalls(Backend):
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
        return self.call(_product, (a, b), out, (False, self.product_dtypes), fused)

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
        parameters = (True, self.product_dtypes)
        return self.call(_product, (data, weight), out, parameters, fused)


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
