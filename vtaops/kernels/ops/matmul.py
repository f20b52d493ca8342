"""Matrix products, also of stacks; the right operand is (K, N) or, as in dense layers, (N, K)."""

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
        B is (N, K).
    epilogue : Epilogue
        What follows the sum.
    panel : int
        B was packed: (N / panel, K, panel), or bytes (N / panel, K / 4, panel, 4) for uint8 A;
        zeros fill up the last ones. 0: it was not.
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
    def inputs(self) -> tuple[TensorSpec, ...]:
        shape_b: tuple[int, ...] = (self.n, self.k) if self.transposed_b else (self.k, self.n)
        if self.panel:
            panels, groups = ceil_div(self.n, self.panel), ceil_div(self.k, 4)
            shape_b = (panels, self.k, self.panel)
            shape_b = shape_b if self.dtype_b != "int8" else (panels, groups, self.panel, 4)
        end = self.epilogue.inputs(self.n, (self.m, self.n), self.accumulator)
        left = self.specs(self.dtype_a, A=(self.m, self.k))
        return left + self.specs(self.dtype_b, B=shape_b) + end

    @property
    def output(self) -> TensorSpec:
        return TensorSpec("C", (self.m, self.n), self.epilogue.result_dtype(self.accumulator))

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def declare(self) -> list[Tensor]:
        tensors = self.placeholders()
        return self._declared(tensors, self.sums(tensors))

    def sums(self, tensors: dict[str, Tensor]) -> Callable[..., Expr]:
        """Return ``f(i, j, *stack)``, the sums of products; `stack` is the matrix of stacks."""
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
    """C[s] = A[s] * B[s] for stacks of matrices, each product as `op` has it.

    Attributes
    ----------
    count : int
        Matrices of a stack.
    op : MatmulOp
        One product, without a residual: the vectors of its epilogue serve all of them.
    """

    count: int
    op: MatmulOp

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        a, b, *vectors = self.op.inputs
        return (self._stack(a), self._stack(b), *vectors)

    @property
    def output(self) -> TensorSpec:
        return self._stack(self.op.output)

    @property
    def flops(self) -> int:
        return self.count * self.op.flops

    def declare(self) -> list[Tensor]:
        op, tensors = self.op, self.placeholders()
        sums = op.sums(tensors)
        total = te.compute(self.output.shape, lambda s, i, j: sums(i, j, s), name="total")
        epilogue = op.epilogue.bind(tensors, op.accumulator)
        result = te.compute(
            self.output.shape, lambda s, i, j: epilogue(total[s, i, j], j, s, i, j), name="C"
        )
        return [*tensors.values(), result]

    def _stack(self, spec: TensorSpec) -> TensorSpec:
        return replace(spec, shape=(self.count, *spec.shape))
