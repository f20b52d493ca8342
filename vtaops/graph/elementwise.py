"""Functions of the values of one tensor or two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.base.shapes import Array
from vtaops.graph.operator import (
    MAX_FACTOR,
    GraphOperator,
    Pair,
    Pattern,
    Requantized,
    Shape,
    Tensors,
    check_accumulator,
    check_integers,
    graph_operator,
    require_one_zero_point,
)
from vtaops.graph.requantization import (
    Integers,
    Requantization,
    TfliteRequantization,
    along,
    quantized_multiplier,
)
from vtaops.graph.tensor import Tensor

FAR = 1 << 14
"""Largest power of two that every device takes as a factor."""


class Pairwise(Requantized):
    """Base class of functions of two tensors, with one scale for all channels."""

    pattern = Pattern.ELEMENTWISE
    channels_axis = None
    arity = 2

    def infer(self, *inputs: Tensor) -> Tensor:
        return self.result(_broadcast(self.kind, inputs))


@graph_operator
class Add(Pairwise):
    """``y = requantize((a - a.zero_point) * factors[0] + (b - b.zero_point) * factors[1])``.

    Inputs: two tensors of one shape, or ``b`` (N, C, 1, 1) beside an image.

    Parameters
    ----------
    factors : (int, int)
        -32768..32768, not 0; a negative one subtracts.
    requantization : Requantization
        One for all channels.
    """

    factors: Pair = (1, 1)
    requantization: Requantization = field(default_factory=Requantization)

    def __post_init__(self) -> None:
        check_integers(self, "factors", 2, -MAX_FACTOR, MAX_FACTOR)
        if 0 in self.factors:
            raise ShapeError(f"factors is {self.factors}; give 2 integers other than 0")

    @staticmethod
    def from_ratios(
        first: float, second: float, zero_point: int = 0, clip: tuple[int, int] = (-128, 127)
    ) -> Add:
        """Return the sum with ``a.scale / y.scale == first`` and ``b.scale / y.scale == second``.

        Powers of two (or their negatives) that lie within 2**14 of each other are exact; other
        ratios are within 2**-14 of the greater one. A ratio is lowered where its operand saturates
        the result, unless it is 0.0.

        Raises
        ------
        ShapeError
            If a ratio is 0 or not finite, the results too fine for both, or the rounding of a
            factor moves results by more than half a step.
        """
        sizes = [abs(first), abs(second)]
        if not all(0 < size < math.inf for size in sizes):
            raise ShapeError(f"the ratios are {first} and {second}; they must be finite, and not 0")
        enough = 2.0 ** math.ceil(math.log2(255 * (1 + min(sizes))))
        sizes = [min(size, enough) for size in sizes]
        exact = all(math.frexp(size)[0] == 0.5 for size in sizes)
        unit = max(min(sizes), max(sizes) / FAR) if exact else max(sizes) / TWO_DIGITS
        factors = [max(1, round(size / unit)) for size in sizes]
        moved = max(abs(f * unit - size) for f, size in zip(factors, sizes, strict=True))
        if 255 * moved > 0.5:
            raise ShapeError(
                f"the operands of a sum have steps of {first} and {second} steps of its result; "
                f"factors of the sums hold the smaller one to {moved:.2g}"
            )
        a, b = (int(math.copysign(f, r)) for f, r in zip(factors, (first, second), strict=True))
        return Add((a, b), Requantization.from_ratio(unit, zero_point, clip))

    def infer(self, *inputs: Tensor) -> Tensor:
        result = super().infer(*inputs)
        reach = (abs(f) * t.reach for f, t in zip(self.factors, inputs, strict=True))
        check_accumulator(self.kind, np.array(sum(reach)))
        return result

    def sums(self, *real: Integers) -> Integers:
        return real[0] * self.factors[0] + real[1] * self.factors[1]


@graph_operator
class RescaledAdd(Pairwise):
    """``y = requantize(rescale(a - a.zero_point) + rescale(b - b.zero_point))``: TFLite's addition.

    Each operand is shifted left by 20 bits, then multiplied and rounded twice to the unit of the
    sums (`vtaops.graph.requantization.Rounding`). Inputs: as `Add`.

    Parameters
    ----------
    multipliers, shifts : (int, int)
        Per operand: 31 bits, 0..62; a negative multiplier subtracts.
    requantization : Requantization
        One for all channels.
    """

    multipliers: Pair
    shifts: Pair
    requantization: Requantization = field(default_factory=Requantization)

    def __post_init__(self) -> None:
        most = (1 << 31) - 1
        check_integers(self, "multipliers", 2, -most, most)
        check_integers(self, "shifts", 2, 0, 62)

    @staticmethod
    def from_scales(
        scales: Sequence[float], result: float, zero_point: int, clip: tuple[int, int], *, sign: int
    ) -> RescaledAdd:
        """Return the sum of tensors of two scales; their difference if `sign` is -1.

        Raises
        ------
        ShapeError
            If a ratio of the scales is out of range.
        """
        unit = 2 * max(scales)
        (first, s), (second, t) = (quantized_multiplier(scale / unit) for scale in scales)
        scaling = TfliteRequantization.from_ratio(unit / (result * (1 << 20)), zero_point, clip)
        return RescaledAdd((first, sign * second), (s, t), scaling)

    def sums(self, *real: Integers) -> Integers:
        return self._rescaled(0, real[0]) + self._rescaled(1, real[1])

    def _rescaled(self, index: int, real: Integers) -> Integers:
        """Rescale an operand to the unit of the sums."""
        multiplier = self.multipliers[index]
        scaling = TfliteRequantization(abs(multiplier), self.shifts[index])
        return scaling.rounded((real << 20) * np.sign(multiplier))


@graph_operator
class Multiply(Pairwise):
    """``y = requantize((a - a.zero_point) * (b - b.zero_point))``.

    Inputs: two tensors of one shape, or ``b`` (N, C, 1, 1) beside an image.
    """

    requantization: Requantization = field(default_factory=Requantization)

    def sums(self, *real: Integers) -> Integers:
        return real[0] * real[1]


ExtremumFunction = Literal["maximum", "minimum"]


@graph_operator
class Extremum(GraphOperator):
    """``y = maximum(a, b)``, or ``minimum(a, b)``, of tensors of one scale and zero point.

    Inputs: two tensors of one shape, or ``b`` (N, C, 1, 1) beside an image.

    Parameters
    ----------
    function : str
        ``"maximum"`` or ``"minimum"``.
    """

    pattern = Pattern.ELEMENTWISE
    arity = 2

    function: ExtremumFunction = "maximum"

    def __post_init__(self) -> None:
        functions = get_args(ExtremumFunction)
        if self.function not in functions:
            raise ShapeError(f"function is {self.function!r}; give one of {', '.join(functions)}")

    @property
    def kind(self) -> str:
        return self.function

    def infer(self, *inputs: Tensor) -> Tensor:
        require_one_zero_point(inputs, "compared")
        return replace(inputs[0], shape=_broadcast(self.kind, inputs))

    def reference(self, inputs: Tensors, *arrays: Array) -> Any:
        return getattr(np, self.function)(*arrays)


@graph_operator
class Requantize(Requantized):
    """``y = requantize(x - x.zero_point)``: a change of scale, a clip, or a standalone ReLU."""

    pattern = Pattern.ELEMENTWISE

    requantization: Requantization = field(default_factory=Requantization)

    def infer(self, data: Tensor) -> Tensor:
        return self.result(data.shape)

    def sums(self, *real: Integers) -> Integers:
        return real[0]


@graph_operator
class LookupTable(GraphOperator):
    """``y = table[x + 128]``: any function of one int8 value (sigmoid, hard-swish, GELU).

    Parameters
    ----------
    table : ndarray of int8, shape (256,) or (C, 256)
        Results for -128..127: one table for all values, or one for each channel (axis 1).
    zero_point : int
        Zero point of the result.
    function : str
        Display name of the function.
    """

    pattern = Pattern.ELEMENTWISE

    table: npt.NDArray[np.int8]
    zero_point: int = 0
    function: str = "table"

    def __post_init__(self) -> None:
        shape = self.table.shape
        if self.table.dtype != np.int8 or len(shape) not in (1, 2) or shape[-1] != 256:
            raise ShapeError(
                f"the table is {self.table.dtype}{list(shape)}; it must be int8[256], or "
                "int8[C, 256]"
            )

    @property
    def kind(self) -> str:
        return self.function

    def infer(self, data: Tensor) -> Tensor:
        shape = data.shape
        if self.table.ndim == 2 and (len(shape) < 2 or shape[1] != len(self.table)):
            raise ShapeError(f"{len(self.table)} tables for a tensor of shape {shape}")
        return Tensor("-", shape, zero_point=self.zero_point)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        index = data.astype(np.int64) + 128
        if self.table.ndim == 1:
            return self.table[index]
        return self.table[along(1, index.ndim, np.arange(len(self.table))), index]


def _broadcast(kind: str, inputs: Tensors) -> Shape:
    a, b = inputs[0].shape, inputs[1].shape
    if a == b or (len(a) == 4 and b == (*a[:2], 1, 1)):
        return a
    raise ShapeError(f"{kind} of {a} and {b}: they must be equal, or the second (N, C, 1, 1)")
