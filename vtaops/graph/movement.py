"""Operators that move scalars, and constants."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, Sides, ceil_div, grows_to
from vtaops.graph.operator import (
    GraphOperator,
    Pair,
    Pattern,
    Shape,
    Tensors,
    axis_of,
    graph_operator,
    image_of,
    require_one_zero_point,
)
from vtaops.graph.tensor import DTYPES, Tensor


@graph_operator
class Concat(GraphOperator):
    """Concatenate tensors of one scale and zero point along `axis`."""

    pattern = Pattern.MOVEMENT

    axis: int = 1
    arity = None
    takes = DTYPES

    def infer(self, first: Tensor, *others: Tensor) -> Tensor:
        axis = axis_of(self.axis, first)
        around = (*first.shape[:axis], *first.shape[axis + 1 :])
        for other in others:
            if (*other.shape[:axis], *other.shape[axis + 1 :]) != around:
                raise ShapeError(f"{first.shape} and {other.shape} do not join on axis {axis}")
            if other.dtype != first.dtype:
                raise ShapeError(
                    f"{first.name} is {first.dtype} and {other.name} {other.dtype}; tensors that "
                    "are joined have one type"
                )
        require_one_zero_point((first, *others), "joined")
        shape = list(first.shape)
        shape[axis] += sum(other.shape[axis] for other in others)
        return replace(first, shape=tuple(shape))

    def reference(self, inputs: Tensors, *arrays: Array) -> Any:
        return np.concatenate(arrays, axis=self.axis)


@graph_operator
class Upsample(GraphOperator):
    """Nearest-neighbour upsampling: repeat every pixel `factors` (height, width) times."""

    pattern = Pattern.WINDOWS

    factors: Pair = (2, 2)
    takes = DTYPES

    def infer(self, data: Tensor) -> Tensor:
        n, c, h, w = image_of(data)
        return replace(data, shape=(n, c, h * self.factors[0], w * self.factors[1]))

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return data.repeat(self.factors[0], axis=2).repeat(self.factors[1], axis=3)


@graph_operator
class Pad(GraphOperator):
    """Pad an image: (top, left, bottom, right).

    Parameters
    ----------
    padding : (int, int, int, int)
        Rows and columns to add.
    mode : "constant", "edge" or "reflect"
        What they hold: 0.0, the nearest pixel, or the image mirrored at its outermost pixels.
    """

    pattern = Pattern.WINDOWS

    padding: Sides
    mode: Literal["constant", "edge", "reflect"] = "constant"

    def infer(self, data: Tensor) -> Tensor:
        n, c, h, w = image_of(data)
        top, left, bottom, right = self.padding
        if self.mode not in ("constant", "edge", "reflect"):
            raise ShapeError(f"mode is {self.mode!r}; it must be constant, edge or reflect")
        if self.mode == "reflect" and not (max(top, bottom) < h and max(left, right) < w):
            raise ShapeError(
                f"an image of {h} x {w} pixels cannot be mirrored by the padding {self.padding}"
            )
        return replace(data, shape=(n, c, h + top + bottom, w + left + right))

    def sources(self, axis: int, extent: int) -> tuple[list[int], list[int]]:
        """Return which of `extent` pixels are repeated before and behind an axis (0 or 1)."""
        before, behind = self.padding[axis], self.padding[axis + 2]
        if self.mode == "edge":
            return [0] * before, [extent - 1] * behind
        return [*range(before, 0, -1)], [*range(extent - 2, extent - 2 - behind, -1)]

    def reference(self, inputs: Tensors, data: Array) -> Any:
        top, left, bottom, right = self.padding
        sides = (0, 0), (0, 0), (top, bottom), (left, right)
        if self.mode == "constant":
            return np.pad(data, sides, constant_values=inputs[0].zero_point)
        return np.pad(data, sides, self.mode)


@graph_operator
class Slice(GraphOperator):
    """``x[..., start:stop:step, ...]`` on one axis; a split is several slices."""

    pattern = Pattern.MOVEMENT

    axis: int
    start: int
    stop: int
    step: int = 1
    takes = DTYPES

    def infer(self, data: Tensor) -> Tensor:
        axis = axis_of(self.axis, data)
        extent = data.shape[axis]
        if not (0 <= self.start < self.stop <= extent and self.step >= 1):
            raise ShapeError(
                f"slice {self.start}:{self.stop}:{self.step} of {extent} elements; "
                f"0 <= start < stop <= {extent} and a positive step are needed"
            )
        shape = list(data.shape)
        shape[axis] = ceil_div(self.stop - self.start, self.step)
        return replace(data, shape=tuple(shape))

    def reference(self, inputs: Tensors, data: Array) -> Any:
        index = [slice(None)] * data.ndim
        index[self.axis] = slice(self.start, self.stop, self.step)
        return data[tuple(index)]


@graph_operator
class Reshape(GraphOperator):
    """Reshape in C order."""

    pattern = Pattern.MOVEMENT

    shape: Shape
    takes = DTYPES

    def infer(self, data: Tensor) -> Tensor:
        if math.prod(self.shape) != data.elements:
            raise ShapeError(f"{data.shape} cannot take the shape {self.shape}")
        return replace(data, shape=tuple(self.shape))

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return data.reshape(self.shape)


@graph_operator
class Transpose(GraphOperator):
    """Permute the axes, as ``numpy.transpose``."""

    pattern = Pattern.MOVEMENT

    axes: Shape
    takes = DTYPES

    def infer(self, data: Tensor) -> Tensor:
        if sorted(self.axes) != list(range(len(data.shape))):
            raise ShapeError(f"axes is {self.axes}; it must permute those of {data.shape}")
        return replace(data, shape=tuple(data.shape[a] for a in self.axes))

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return data.transpose(self.axes)


@graph_operator
class Expand(GraphOperator):
    """Repeat axes of one element, as ``numpy.broadcast_to``."""

    pattern = Pattern.MOVEMENT

    shape: Shape
    takes = DTYPES

    def infer(self, data: Tensor) -> Tensor:
        shape, wanted = data.shape, tuple(self.shape)
        if not grows_to(shape, wanted):
            raise ShapeError(f"{data.name} has shape {shape}, which cannot become {wanted}")
        return replace(data, shape=wanted)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return np.broadcast_to(data, self.shape)


@graph_operator
class Constant(GraphOperator):
    """An array of the file, for operators that take it like a tensor.

    Parameters
    ----------
    value : ndarray
        Of one of `vtaops.graph.tensor.DTYPES`.
    zero_point : int
        Of int8 values.
    """

    value: Array
    zero_point: int = 0
    arity = 0

    def __post_init__(self) -> None:
        if not isinstance(self.value, np.ndarray) or self.value.dtype.name not in DTYPES:
            kind = getattr(self.value, "dtype", type(self.value))
            raise ShapeError(f"the constant is {kind}; it must be an array of {DTYPES}")

    def infer(self) -> Tensor:
        value = self.value
        return Tensor("-", value.shape, value.dtype.name, zero_point=self.zero_point)

    def reference(self, inputs: Tensors) -> Any:
        return self.value
