"""SoftmaxOp: exp(x - max) / sum of exp(x - max) along the last axis."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tirx

from vtaops.kernels.ops.common import Expr, Tensor, TensorOp, TensorSpec


@dataclass(frozen=True)
class SoftmaxOp(TensorOp):
    """Softmax of each row of (rows, columns) data, float32."""

    rows: int
    columns: int

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec("data", (self.rows, self.columns), "float32"),)

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


def exponential(x: Expr) -> Expr:
    """Return exp(x) for float32 x <= 0 in arithmetic that every vector unit has.

    exp(x) = 2**n * exp(r) with n = round(x / ln 2) and |r| <= ln(2)/2 (Cody & Waite, 1980: ln 2 in
    two parts); exp(r) by its Taylor polynomial of degree 7, whose remainder is below half a unit
    in the last place. 2**n is built from its exponent bits. Below -87 the result is exp(-87).
    """

    def constant(value: float) -> Expr:
        return tirx.const(value, "float32")

    x = tirx.max(x, constant(-87.0))
    n = tirx.floor(x * constant(1.4426950408889634) + constant(0.5))
    r = x - n * constant(0.693359375) - n * constant(-2.12194440e-4)
    power = constant(1.0 / 5040.0)
    for factorial in (720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0):
        power = power * r + constant(1.0 / factorial)
    bits = (n.astype("int32") + tirx.const(127, "int32")) << tirx.const(23, "int32")
    return power * tirx.reinterpret("float32", bits)
