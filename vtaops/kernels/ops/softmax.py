"""SoftmaxOp: exp(x - max) / sum of exp(x - max) along the last axis."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te

from vtaops.kernels.ops.activations import exponential
from vtaops.kernels.ops.common import Tensor, TensorOp, TensorSpec


@dataclass(frozen=True)
class SoftmaxOp(TensorOp):
    """Softmax of each row of (rows, columns) data, float32."""

    rows: int
    columns: int

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.specs(data=(self.rows, self.columns))

    @property
    def output(self) -> TensorSpec:
        return TensorSpec("result", (self.rows, self.columns), "float32")

    @property
    def flops(self) -> int:
        return 5 * self.rows * self.columns

    def declare(self) -> list[Tensor]:
        data = self.inputs[0].placeholder()
        shape = (self.rows, self.columns)
        k = te.reduce_axis((0, self.columns), name="k")
        j = te.reduce_axis((0, self.columns), name="j")
        top = te.compute((self.rows,), lambda r: te.max(data[r, k], axis=k), name="top")
        power = te.compute(shape, lambda r, c: exponential(data[r, c] - top[r]), name="power")
        total = te.compute((self.rows,), lambda r: te.sum(power[r, j], axis=j), name="total")
        result = te.compute(shape, lambda r, c: power[r, c] / total[r], name="result")
        return [data, result]
