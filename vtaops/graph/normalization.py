"""Layer normalisation and softmax on integers: statistics of each row, then each value."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.row_norm import (
    FURTHEST,
    LARGEST,
    MEAN_BITS,
    MIDDLE,
    MOST_EXPONENTIAL,
    PLACES,
    UNCOUNTED,
    Arithmetic,
    shares,
    spread_bits,
    statistics,
)
from vtaops.base.shapes import Array
from vtaops.graph.floats import LayerNorm
from vtaops.graph.operator import (
    GraphOperator,
    Pattern,
    Tensors,
    axis_of,
    check_accumulator,
    graph_operator,
)
from vtaops.graph.requantization import Requantization, check_array, integers
from vtaops.graph.tensor import Tensor

MOST_CHANNELS, MOST_SHARES = 1 << 14, 2048
"""Values of a row at most, of a norm and of a softmax."""
MOST_EPSILON = 1 << 22
"""With it, the largest sum of squares about any center stays below 2**30."""


def normalized(a: Arithmetic, x: Any, op: RowNorm) -> tuple[Any, int]:
    """Return int32 sums, and what multiplies them exactly: then `op.shift` bits are no more."""
    offset, root, shift = statistics(a, x, len(op.weight), op.epsilon, op.center)
    places = a.shr(a.mul(a.add(a.mul(x, 1 << MEAN_BITS), offset), root), shift)
    if op.multiplier is not None:
        return places, op.multiplier
    sums = a.add(a.mul(places, op.weight.astype(np.int64)), op.bias.astype(np.int64))
    return sums, 1


@graph_operator
class RowNorm(GraphOperator):
    """A layer norm or an RMS norm (`LayerNorm`) along the last axis, on integers.

    Parameters
    ----------
    weight : ndarray of int32, shape (C,)
        Results of the largest possible value, in steps, with `shift` bits less 15 behind the point.
    bias : ndarray of int32, shape (C,)
        In steps, with `shift` bits behind the point.
    epsilon : int
        ``C * epsilon`` in squares of steps of the input, with `spread_bits` of C behind the point:
        0..4194304.
    shift : int
        1..30.
    zero_point : int
        Of the result.
    center : int, optional
        What takes the place of the mean: the zero point of the input, for an RMS norm.
    """

    pattern = Pattern.ROWS

    weight: npt.NDArray[np.int32]
    bias: npt.NDArray[np.int32]
    epsilon: int = 1
    shift: int = 15
    zero_point: int = 0
    center: int | None = None

    def __post_init__(self) -> None:
        integers("epsilon", self.epsilon, 0, MOST_EPSILON)
        integers("shift", self.shift, 1, 30)
        integers("zero_point", self.zero_point, -128, 127)
        if self.center is not None:
            integers("center", self.center, -128, 127)

    @property
    def multiplier(self) -> int | None:
        """The weight, if all are one number of 16 bits, and there are no biases."""
        first = int(self.weight[0])
        alike = (self.weight == first).all() and not self.bias.any()
        return first if alike and 0 <= first < 1 << 16 else None

    @staticmethod
    def of(norm: LayerNorm, given: Tensor, result: Tensor) -> RowNorm | None:
        """Return the operator for a norm of real numbers and the grids of input and result.

        None if its numbers are out of range.
        """
        weight, bias, epsilon = norm.weight, norm.bias, norm.epsilon
        count = len(weight)
        own = round(epsilon * count * 2.0 ** spread_bits(count) / given.scale**2)
        steps = np.abs(weight.astype(np.float64)) * math.sqrt(count) / result.scale
        offsets = np.abs(bias.astype(np.float64)) / result.scale
        if not 2 <= count <= MOST_CHANNELS or own > MOST_EPSILON or not np.isfinite(steps).all():
            return None
        most = max(np.max(steps) / LARGEST, np.max(steps + offsets) / 2**30 * 2**PLACES, 2**-15)
        shift = PLACES - math.ceil(math.log2(most))
        if not 1 <= shift <= 30:
            return None
        scale = 2.0 ** (shift - PLACES) * math.sqrt(count) / result.scale
        factors: npt.NDArray[np.int32] = np.rint(weight * scale).astype(np.int32)
        half = factors.astype(np.float64) / 2  # the shift of products rounds down
        if count > MOST_SHARES and not bias.any() and (factors == factors[0]).all():
            half = np.zeros_like(half)  # much less than a step, and faster without (`multiplier`)
        biases = np.rint(bias / result.scale * 2.0**shift + half).astype(np.int32)
        center = None if norm.centered else given.zero_point
        return RowNorm(factors, biases, own, shift, result.zero_point, center)

    def infer(self, data: Tensor) -> Tensor:
        columns = data.shape[axis_of(-1, data)]
        for name in ("weight", "bias"):
            check_array(name, getattr(self, name), "int32", (columns,))
        if columns > MOST_CHANNELS:
            raise ShapeError(f"rows of {columns} channels; there are at most {MOST_CHANNELS}")
        reach = np.abs(self.weight.astype(np.int64)) << PLACES
        check_accumulator(self.kind, reach + np.abs(self.bias.astype(np.int64)))
        return Tensor("-", data.shape, zero_point=self.zero_point)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        sums, multiplier = normalized(_Int32(), data.astype(np.int64), self)
        rounded = (sums * multiplier + (1 << self.shift - 1) >> self.shift) + self.zero_point
        return np.clip(rounded, -128, 127).astype(np.int8)


@graph_operator
class RowSoftmax(GraphOperator):
    """``exp(x - max) / sum of exp(x - max)`` along the last axis, on integers.

    Parameters
    ----------
    tables : ndarray of int8, shape (2, 256)
        Both digits of the exponentials of -255, -254, ..., 0 steps of the input, times 65279 and
        less 32640: 256 times the first, plus the second.
    requantization : Requantization
        Of 2**22 times the result.
    mask : ndarray of bool, shape (R, C), optional
        Which values of rows count, of R rows in turn; those 255 steps below the maximum are taken
        as 254, because the exponentials of -255 steps are those of the others, 0. A mask that is
        known only when the network runs is a second input of the shape of the first, 0 or -128:
        4 times its steps are added. All of a row counts equally where nothing does.
    """

    pattern = Pattern.ROWS
    arity = None
    tables: npt.NDArray[np.int8]
    requantization: Requantization = field(default_factory=Requantization)
    mask: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        tables = self.tables
        if tables.dtype != np.int8 or tables.shape != (2, 256) or (tables[:, -1] != 127).any():
            raise ShapeError("the tables of a softmax are int8[2, 256], whose last values are 127")
        if self.requantization.channels > 1 or type(self.requantization) is not Requantization:
            raise ShapeError("a softmax has one scale for all channels, which rounds half up")
        if self.mask is not None:
            self._check_mask(self.mask)

    def _check_mask(self, mask: npt.NDArray[np.bool_]) -> None:
        if mask.dtype != np.bool_ or mask.ndim != 2 or mask.all() or not mask.any(-1).all():
            raise ShapeError("the mask of a softmax is bool[R, C]: not all, and some of each row")
        self._check_tables()

    def _check_tables(self) -> None:
        if (self.tables[:, 0] != (-127, -128)).any():
            raise ShapeError("the tables of a masked softmax begin with -127 and -128, which are 0")

    @staticmethod
    def of(
        given: Tensor,
        result: Tensor,
        mask: npt.NDArray[np.bool_] | None = None,
        *,
        masked: bool = False,
    ) -> RowSoftmax:
        """Return the operator for the grids of input and result; raises ShapeError if none is.

        `masked`: a second input will be the mask.
        """
        exponentials = np.exp(np.arange(-255, 1) * float(given.scale))
        if masked or mask is not None:
            exponentials[0] = 0
        numbers = np.rint(MOST_EXPONENTIAL * exponentials).astype(np.int64) - MIDDLE
        low = (numbers + 128) % 256 - 128
        tables = np.stack([(numbers - low) // 256, low]).astype(np.int8)
        scaling = Requantization.from_ratio(2.0**-22 / result.scale, result.zero_point)
        return RowSoftmax(tables, scaling, mask)

    def infer(self, data: Tensor, *masks: Tensor) -> Tensor:
        columns = data.shape[axis_of(-1, data)]
        mask, rows = self.mask, math.prod(data.shape[:-1])
        if masks:
            self._check_given(data, masks)
        if mask is not None and (mask.shape[1] != columns or rows % len(mask)):
            raise ShapeError(f"a mask of {mask.shape} rows and columns for {rows} x {columns}")
        if columns > MOST_SHARES:
            raise ShapeError(f"a softmax of {columns} values; there are at most {MOST_SHARES}")
        return Tensor("-", data.shape, zero_point=self.requantization.zero_point)

    def reference(self, inputs: Tensors, data: Array, *masks: Array) -> Any:
        data = data.astype(np.int64)
        offsets = 4 * masks[0].astype(np.int64) if masks else self.offsets(data.shape)
        most = (data + offsets).max(axis=-1, keepdims=True)
        masked = self.mask is not None or masks
        below = np.maximum(data - most, FURTHEST) + offsets if masked else data - most
        if masks:
            below -= 2 * np.minimum(most + 128, 0)
        below = np.clip(255 + below, 0, 255)
        high, low = (table[below].astype(np.int64) for table in self.tables)
        sums = shares(_Int32(), high, low, data.shape[-1])
        return self.requantization.apply(sums, 0)

    def _check_given(self, first: Tensor, masks: Tensors) -> None:
        """Check that a second input is a mask of the first; raises ShapeError."""
        if len(masks) > 1 or self.mask is not None:
            raise ShapeError("a softmax has one mask: a constant, or a second input")
        if masks[0].shape != first.shape or masks[0].zero_point:
            raise ShapeError(
                f"{masks[0].name} has shape {masks[0].shape} and zero point {masks[0].zero_point}; "
                f"the mask of a softmax has the shape of its input, {first.shape}, and 0"
            )
        self._check_tables()

    def offsets(self, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Return what brings values that do not count below all others, for rows of a shape."""
        if self.mask is None:
            return np.zeros(shape, np.int64)
        offsets = np.where(self.mask, 0, UNCOUNTED)
        return np.tile(offsets, (math.prod(shape[:-1]) // len(offsets), 1)).reshape(shape)


class _Int32:
    """The arithmetic of the definition on NumPy's integers."""

    def add(self, x: Any, y: Any) -> Any:
        return _wrapped(x + y)

    def mul(self, x: Any, y: Any) -> Any:
        return _wrapped(x * y)

    def shr(self, x: Any, y: Any) -> Any:
        shifted = _wrapped(x << np.maximum(0, np.negative(y)))
        return np.where(np.less(y, 0), shifted, x >> np.maximum(0, y))

    def clip(self, x: Any, low: float, high: float) -> Any:
        return np.clip(x, max(low, -(2**31)), min(high, 2**31 - 1)).astype(np.int64)

    def total(self, x: Any) -> Any:
        return _wrapped(x.sum(axis=-1, keepdims=True))


def _wrapped(x: Any) -> Any:
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)
