"""Gemm: product of int8 matrices, with bias, shift and clip; a dense layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tvm import te

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import require_at_least
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import matrix_layout, weight_layout
from vtaops.ops.arguments import Arguments, int8_array, vectors
from vtaops.ops.declarations import Given, Shape, declare_copy, declare_sum
from vtaops.ops.epilogue import INT8, Rounding
from vtaops.ops.products import SumOfProducts
from vtaops.program import Buffer, Role


@dataclass(frozen=True, kw_only=True, repr=False)
class Gemm(SumOfProducts):
    """``out = int8(clip((data @ weight.T + bias) >> shift))``.

    Parameters
    ----------
    m, n, k : int
        ``data`` is (m, k), ``weight`` (n, k), the result (m, n). Any sizes; they are padded with
        zeros to whole tiles.
    bias : bool
        Whether an int32 bias (n,) is added before the shift.
    shift : int
        Arithmetic right shift of the accumulators, 0..31.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        How the shift rounds: towards minus infinity, or to the nearest, halves upwards.
    scales : bool
        Whether an int32 vector (n,) of fixed-point scales requantises the sums instead of
        `shift`: ``clip(((sum * multiplier + half) >> shift) + zero_point)``, the product exact,
        multiplier (16 bits, unsigned) and shift (0..47) being those of the channel's scale,
        ``multiplier | shift << 16``. Needs the extension ``post``.
    zero_point : int
        With scales: what is added after the shift.

    Raises
    ------
    ShapeError
        If a parameter is out of range.

    Notes
    -----
    Accumulators are int32 and wrap; with ``k <= 131071`` no input can overflow them.
    """

    m: int
    n: int
    k: int
    bias: bool = False
    shift: int = 8
    clip: tuple[int, int] | None = INT8
    rounding: Rounding = "truncate"
    scales: bool = False
    zero_point: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, m=self.m, n=self.n, k=self.k)

    @classmethod
    def of(
        cls,
        data: npt.ArrayLike,
        weight: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        scales: npt.ArrayLike | None = None,
        **parameters: Any,
    ) -> tuple[Gemm, Arguments]:
        """Return the product of (M, K) and (N, K) int8 matrices, and the arrays; as `Conv2d.of`.

        Raises
        ------
        ShapeError
            If ranks, dtypes, extents or parameters do not fit.
        """
        left, right = int8_array("data", data, "MK"), int8_array("weight", weight, "NK")
        if left.shape[1] != right.shape[1]:
            raise ShapeError(
                f"data has shape {left.shape} and weight {right.shape}; their last extents must "
                f"be equal"
            )
        (m, k), n = left.shape, right.shape[0]
        op = cls(m=m, n=n, k=k, bias=bias is not None, scales=scales is not None, **parameters)
        return op, (left, right, *vectors(op.n, bias=bias, scales=scales))

    @property
    def summary(self) -> str:
        return f"gemm {self.m}x{self.k} . {self.k}x{self.n}"

    @property
    def macs(self) -> int:
        return self.m * self.n * self.k

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        return (
            Buffer("data", Role.INPUT, (self.m, self.k), "int8", matrix_layout(config)),
            Buffer("weight", Role.PARAMETER, (self.n, self.k), "int8", weight_layout(config)),
            *self.vector_buffers(self.n, config),
            Buffer("res", Role.OUTPUT, (self.m, self.n), "int8", matrix_layout(config)),
        )

    def compute(self, given: Given, shape: Shape, config: HardwareConfig) -> te.Tensor:
        data, kernel = declare_copy(given["data"]), declare_copy(given["weight"], "kernel_buf")
        acc = declare_sum(
            "res_gem",
            shape,
            {"ko": data.shape[1], "ki": config.block_in},
            lambda mo, no, mi, ni, ko, ki: (data[mo, ko, mi, ki], kernel[no, ko, ni, ki]),
        )
        return self.declare_epilogue(acc, given, config)
