"""SoftmaxOp: exp(x - max) / sum of exp(x - max) along the last axis."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te

from vtaops.kernels.ops.activations import exponential
from vtaops.kernels.ops.common import Tensor, TensorOp, TensorSpec, specs


@dataclass(frozen=True)
class SoftmaxOp(TensorOp):
    """Softmax of each row of (rows, columns) data, float32."""

    rows: int
    columns: int

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return specs(data=(self.rows, self.columns), result=(self.rows, self.columns))

    @property
    def flops(self) -> int:
        return 5 * self.rows * self.columns

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        data, shape = given["data"], self.output.shape
        k = te.reduce_axis((0, self.columns), name="k")
        j = te.reduce_axis((0, self.columns), name="j")
        top = te.compute((self.rows,), lambda r: te.max(data[r, k], axis=k), name="top")
        power = te.compute(shape, lambda r, c: exponential(data[r, c] - top[r]), name="power")
        total = te.compute((self.rows,), lambda r: te.sum(power[r, j], axis=j), name="total")
        return te.compute(shape, lambda r, c: power[r, c] / total[r], name="result")
