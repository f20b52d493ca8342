"""Matrix products and stacks of them; the right operand is (K, N) or, for dense layers, (N, K)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm import te

from vtaops.kernels.ops.common import ACCUMULATOR, Expr, Tensor, TensorOp, TensorSpec, ceil_div
from vtaops.kernels.ops.epilogue import NOTHING, Epilogue, FusedOp


@dataclass(frozen=True)
class MatmulOp(FusedOp):
    """C[i, j] = sum_k A[i, k] * B[k, j] (or B[j, k]), then an epilogue over the channels j.

    Attributes
    ----------
    m, n, k : int
        Rows of A, columns of C, length of the sum.
    dtype_a, dtype_b : str
        float32 (both), float16 (both, on a GPU) with float32 sums, or int8/uint8 for A and int8
        for B, with int32 sums.
    transposed_b : bool
        Whether B is (N, K).
    epilogue : Epilogue
        Fused operations after the sum.
    panel : int
        Panel width of a packed, zero-padded B: (N / panel, K, panel), or bytes
        (N / panel, K / 4, panel, 4) for uint8 A. 0: not packed.
    """

    m: int
    n: int
    k: int
    dtype_a: str = "float32"
    dtype_b: str = "float32"
    transposed_b: bool = False
    epilogue: Epilogue = NOTHING
    panel: int = 0

    @property
    def accumulator(self) -> str:
        return ACCUMULATOR[self.dtype_a]

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        shape_b: tuple[int, ...] = (self.n, self.k) if self.transposed_b else (self.k, self.n)
        if self.panel:
            panels, groups = ceil_div(self.n, self.panel), ceil_div(self.k, 4)
            shape_b = (panels, self.k, self.panel)
            shape_b = shape_b if self.dtype_b != "int8" else (panels, groups, self.panel, 4)
        left = TensorSpec("A", (self.m, self.k), self.dtype_a)
        right = TensorSpec("B", shape_b, self.dtype_b)
        end = self.epilogue.arguments("C", self.n, (self.m, self.n), self.accumulator)
        return (left, right, *end)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        return self.finished(self.sums(given), given)

    def sums(self, tensors: dict[str, Tensor]) -> Callable[..., Expr]:
        """Return ``f(i, j, *stack)``, the sums of products; `stack` is the stack index."""
        a, b, kind = tensors["A"], tensors["B"], self.accumulator
        k = te.reduce_axis((0, self.k), name="k")

        def product(i: Expr, j: Expr, *stack: Expr) -> Expr:
            if self.panel and self.dtype_b == "int8":
                right = b[j // self.panel, k // 4, j % self.panel, k % 4]
            elif self.panel:
                right = b[j // self.panel, k, j % self.panel]
            else:
                right = b(*stack, j, k) if self.transposed_b else b(*stack, k, j)
            return te.sum(a(*stack, i, k).astype(kind) * right.astype(kind), axis=k)

        return product


@dataclass(frozen=True)
class StackedMatmulOp(TensorOp):
    """C[s] = A[s] * B[s] for stacks of matrices, each product as described by `op`.

    Attributes
    ----------
    count : int
        Matrices in a stack.
    op : MatmulOp
        One product, without a residual; all share the vectors of its epilogue.
    """

    count: int
    op: MatmulOp

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        a, b, *vectors, c = self.op.arguments
        return (self._stack(a), self._stack(b), *vectors, self._stack(c))

    @property
    def flops(self) -> int:
        return self.count * self.op.flops

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        shape, sums = self.output.shape, self.op.sums(given)
        total = te.compute(shape, lambda s, i, j: sums(i, j, s), name="total")
        epilogue = self.op.epilogue.bind(given, self.op.accumulator)
        return te.compute(shape, lambda s, i, j: epilogue(total[s, i, j], j, s, i, j), name="C")

    def _stack(self, spec: TensorSpec) -> TensorSpec:
        return replace(spec, shape=(self.count, *spec.shape))
