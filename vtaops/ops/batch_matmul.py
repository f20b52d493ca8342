"""BatchMatmul: products of pairs of int8 matrices, with shift and clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tvm import te

from vtaops.config import HardwareConfig
from vtaops.errors import ShapeError
from vtaops.layout import Layout
from vtaops.ops.arguments import Arguments, int8_array
from vtaops.ops.postprocess import INT8, Rounding
from vtaops.ops.products import SumOfProducts
from vtaops.program import Buffer, Role
from vtaops.shapes import require_at_least


@dataclass(frozen=True, kw_only=True, repr=False)
class BatchMatmul(SumOfProducts):
    """``out[b] = int8(clip((data[b] @ other[b].T) >> shift))``; both operands are data.

    Parameters
    ----------
    batch, m, n, k : int
        ``data`` is (batch, m, k), ``other`` (batch, n, k), the result (batch, m, n).
    shift : int
        Arithmetic right shift of the accumulators, 0..31.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        How the shift rounds.

    Raises
    ------
    ShapeError
        If a parameter is out of range.
    """

    batch: int
    m: int
    n: int
    k: int
    shift: int = 8
    clip: tuple[int, int] | None = INT8
    rounding: Rounding = "truncate"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, batch=self.batch, m=self.m, n=self.n, k=self.k)

    @classmethod
    def of(
        cls, data: npt.ArrayLike, other: npt.ArrayLike, **parameters: Any
    ) -> tuple[BatchMatmul, Arguments]:
        """Return the products of (B, M, K) and (B, N, K) int8 matrices, and the arrays.

        Raises
        ------
        ShapeError
            If ranks, dtypes, extents or parameters do not fit.
        """
        left, right = int8_array("data", data, "BMK"), int8_array("other", other, "BNK")
        if (left.shape[0], left.shape[2]) != (right.shape[0], right.shape[2]):
            raise ShapeError(
                f"data has shape {left.shape} and other {right.shape}; their first and last "
                f"extents must be equal"
            )
        (batch, m, k), n = left.shape, right.shape[1]
        return cls(batch=batch, m=m, n=n, k=k, **parameters), (left, right)

    @property
    def summary(self) -> str:
        return f"batch_matmul {self.batch}x {self.m}x{self.k} . {self.k}x{self.n}"

    @property
    def macs(self) -> int:
        return self.batch * self.m * self.n * self.k

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        rows = Layout(f"BMC{config.batch}m{config.block_in}c")
        weights = Layout(f"BOI{config.block_out}o{config.block_in}i")
        b, m, n, k = self.batch, self.m, self.n, self.k
        return (
            Buffer("data", Role.INPUT, (b, m, k), "int8", rows),
            Buffer("other", Role.INPUT, (b, n, k), "int8", weights),
            Buffer("res", Role.OUTPUT, (b, m, n), "int8", rows),
        )

    def tensors(self, config: HardwareConfig) -> list[te.Tensor]:
        shapes = {buffer.name: buffer.packed_shape for buffer in self.buffers(config)}
        data = te.placeholder(shapes["data"], "int8", name="data")
        other = te.placeholder(shapes["other"], "int8", name="other")
        data_buf = te.compute(data.shape, lambda *i: data(*i), name="data_buf")
        kernel_buf = te.compute(other.shape, lambda *i: other(*i), name="kernel_buf")
        ko = te.reduce_axis((0, shapes["data"][2]), name="ko")
        ki = te.reduce_axis((0, config.block_in), name="ki")
        acc = te.compute(
            shapes["res"],
            lambda b, mo, no, mi, ni: te.sum(
                data_buf[b, mo, ko, mi, ki].astype("int32")
                * kernel_buf[b, no, ko, ni, ki].astype("int32"),
                axis=[ko, ki],
            ),
            name="res_gem",
        )
        return self.declare_result([data, other], acc, config)
