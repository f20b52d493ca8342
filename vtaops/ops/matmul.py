"""Matrix products of int8: Gemm, a dense layer, and BatchMatmul, whose operands are both data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_init
from vtaops.base.shapes import require_at_least
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout, matrix_layout, weight_layout
from vtaops.ops.arguments import Arguments, int8_array, present, vectors
from vtaops.ops.epilogue import AluStage, Epilogue, Stage, check_within
from vtaops.ops.families import SumOfProducts, UniformlyScaled
from vtaops.program import Buffer, Role

LONGEST_SUM = 1 << 14
"""Greatest k of a product with zero points: a constant and all sums fit int32."""


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class Gemm(SumOfProducts):
    """``out = int8(clip((data @ weight.T + bias) >> shift))``.

    Parameters
    ----------
    m, n, k : int
        ``data`` is (m, k), ``weight`` (n, k), the result (m, n). Any sizes; zero-padded to whole
        tiles.
    bias : bool
        Whether an int32 bias (n,) is added before the shift.
    shift : int
        Arithmetic right shift of the accumulators, 0..31.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        Rounding of the shift: towards minus infinity, or to nearest with halves upwards.
    scales : bool
        Whether an int32 vector (n,) of fixed-point scales requantizes the sums instead of
        `shift`: ``clip(((sum * multiplier + half) >> shift) + zero_point)`` with an exact product.
        A channel's scale is ``multiplier | shift << 16``: multiplier 16 bits, unsigned; shift
        0..47. Needs the extension ``post``.
    zero_point : int
        With scales: added after the shift.
    weight_bits : int
        8, or 4 for weights of -8..7, which the extension ``nibbles`` loads from half as many bytes.

    Raises
    ------
    ShapeError
        If a parameter is out of range.

    Notes
    -----
    Accumulators are int32 and wrap; with ``k <= 131071`` they cannot overflow.
    """

    m: int
    n: int
    k: int
    weight_bits: int = 8

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
        per_channel = {"bias": bias, "scales": scales}
        op = cls(m=m, n=n, k=k, **present(per_channel), **parameters)
        return op, (left, right, *vectors(n, per_channel))

    @property
    def summary(self) -> str:
        return f"gemm {self.m}x{self.k} . {self.k}x{self.n}"

    @property
    def macs(self) -> int:
        return self.m * self.n * self.k

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        return (
            Buffer("data", Role.INPUT, (self.m, self.k), "int8", matrix_layout(config)),
            self.weight_buffer("weight", (self.n, self.k), weight_layout(config), config),
            *self.epilogue.buffers(self.n, config),
            Buffer("res", Role.OUTPUT, (self.m, self.n), "int8", matrix_layout(config)),
        )


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class BatchMatmul(UniformlyScaled):
    """``out[b] = int8(clip((data[b] @ other[b].T) >> shift))``; both operands are data.

    With zero points, `data` less its zero point is multiplied by `other` less its own.

    Parameters
    ----------
    batch, m, n, k : int
        ``data`` is (batch, m, k), ``other`` (batch, n, k), the result (batch, m, n).
    shift : int
        Arithmetic right shift of the accumulators, 0..31.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        Rounding of the shift.
    multiplier, shift, zero_point : int
        A fixed-point scale instead: ``clip(((sum * multiplier + half) >> shift) + zero_point)``, as
        for `Elementwise`; multiplier 0: none.
    data_zero_point, other_zero_point : int
        int8; with a multiplier.

    Raises
    ------
    ShapeError
        If a parameter is out of range.

    Notes
    -----
    The contribution of a zero point is a number for each row of the other operand: the product of
    that operand with a constant tile, which is added to all sums of the row.
    """

    batch: int
    m: int
    n: int
    k: int
    data_zero_point: int = 0
    other_zero_point: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, batch=self.batch, m=self.m, n=self.n, k=self.k)
        for name in ("data_zero_point", "other_zero_point"):
            self._check_zero_point(name)

    def _check_zero_point(self, name: str) -> None:
        value = getattr(self, name)
        check_within(name, value, range(-128, 128))
        if value and (not self.multiplier or self.k > LONGEST_SUM):
            raise ShapeError(
                f"{name} is {value}; it needs a multiplier, and k of at most {LONGEST_SUM}"
            )

    @classmethod
    def of(
        cls,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        **parameters: Any,
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

    @property
    def stages(self) -> Sequence[Stage]:
        return [*map(AluStage.adding, self.zero_terms), *super().stages]

    @property
    def zero_terms(self) -> dict[str, int]:
        """What each operand is multiplied by for the zero point of the other one, by name.

        ``"column"`` is a number for each row of `other`, ``"row"`` one for each row of `data`.
        """
        terms = {"column": -self.data_zero_point, "row": -self.other_zero_point}
        return {name: value for name, value in terms.items() if value}

    @cached_property
    def epilogue(self) -> Epilogue:
        """The product of both zero points is in each sum."""
        constant = self.k * self.data_zero_point * self.other_zero_point
        return replace(super().epilogue, constant=constant)

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        rows = Layout(f"BMC{config.batch}m{config.block_in}c")
        weights = Layout(f"BOI{config.block_out}o{config.block_in}i")
        b, m, n = self.batch, self.m, self.n
        operands = [
            Buffer(name, Role.INPUT, (b, extent, self.k), "int8", layout)
            for name, extent, layout in (("data", m, rows), ("other", n, weights))
        ]
        result = Buffer("res", Role.OUTPUT, (b, m, n), "int8", rows)
        return (*operands, *self._zero_buffers(config), *self.epilogue.buffers(0, config), result)

    def _zero_buffers(self, config: HardwareConfig) -> list[Buffer]:
        """Return the constants that the terms of zero points multiply; behind k they are 0."""
        shapes = {
            "column": ((config.batch, self.k), matrix_layout(config)),
            "row": ((config.block_out, self.k), weight_layout(config)),
        }
        return [
            Buffer(name, Role.CONSTANT, shape, "int8", layout, (one_of(value),) * prod(shape))
            for name, value in self.zero_terms.items()
            for shape, layout in [shapes[name]]
        ]


def one_of(value: int) -> int:
    """Return a number as int8, or half of 128: the term is then doubled."""
    return value if value < 128 else value // 2
