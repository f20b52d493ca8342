"""Steps: integer operators found in a network, before they are added to a `Graph`.

A translation only describes what it found, so a failed translation has no effect. Steps are nested
if several operators lie between two quantised tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vtaops.base.window import Size
from vtaops.frontends.constants import whole_numbers
from vtaops.frontends.values import NotTranslated, Value
from vtaops.graph import (
    GraphOperator,
    Requantization,
    Requantize,
    Reshape,
    Slice,
    Tensor,
    TfliteRequantization,
    Transpose,
)
from vtaops.graph.grid import Grid
from vtaops.graph.requantization import Rounds


@dataclass(frozen=True)
class ResultRange:
    """Grid of a result, and the bounds to which it is clipped.

    Attributes
    ----------
    grid : Grid
        Scale and zero point.
    clip : (int, int)
        The bounds as integers.
    tflite : bool
        Whether its source rounds like TFLite (`vtaops.graph.requantization.Rounding`).
    """

    grid: Grid
    clip: tuple[int, int] = (-128, 127)
    tflite: bool = False

    @property
    def scale(self) -> float:
        """Real value of one step of the result."""
        return self.grid.scale

    @property
    def zero_point(self) -> int:
        """The integer of 0.0."""
        return self.grid.zero_point

    def clipped(self, low: float = -math.inf, high: float = math.inf) -> ResultRange:
        """Return the range for what is clipped to real bounds before; a higher `low` is `high`.

        Because rounding is monotone, clipping before it is the same as clipping the integers to the
        rounded bounds.
        """
        steps = np.rint(np.array([min(low, high), high]) / self.scale) + self.zero_point
        lower, upper = np.clip(steps, *self.clip).astype(int).tolist()
        return replace(self, clip=(lower, upper))

    def ratio(self, source: Source) -> float:
        """Return the real value of one step of a tensor in steps of the result."""
        return source.tensor.scale / self.scale

    def requantization(self, ratio: Any, rounds: Rounds = "twice") -> Requantization:
        """Return the requantisation by a ratio of scales to this range; TFLite's by `rounds`."""
        bounds = self.zero_point, self.clip
        if self.tflite:
            return TfliteRequantization.from_ratio(ratio, *bounds, rounds)
        return Requantization.from_ratio(ratio, *bounds)

    def result(self, op: GraphOperator, *inputs: Source) -> Step:
        """Return an operator whose result has this range."""
        return step(op, *inputs, scale=self.scale)

    def rescaled(self, source: Source, ratio: float) -> Step:
        """Return values of a grid `ratio` times as coarse in this range."""
        return self.result(Requantize(self.requantization(ratio)), source)


@dataclass(frozen=True, eq=False)
class Leaf:
    """An int8 (or uint8) value of the network."""

    value: Value
    grid: Grid

    @property
    def tensor(self) -> Tensor:
        """The tensor that operators read."""
        grid = self.grid
        return Tensor(self.value.name, self.value.static_shape, "int8", grid.scale, grid.zero_point)

    def leaves(self) -> Iterator[Leaf]:
        """Yield itself."""
        yield self


@dataclass(frozen=True, eq=False)
class Step:
    """An operator on steps and leaves, and its result."""

    op: GraphOperator
    inputs: tuple[Step | Leaf, ...]
    tensor: Tensor

    def leaves(self) -> Iterator[Leaf]:
        """Yield the quantised values that it reads."""
        for source in self.inputs:
            yield from source.leaves()


Source = Step | Leaf


def reduced_axes(value: Value) -> list[int]:
    """Return the axes over which a reduction goes, counted from the front, in order.

    Raises
    ------
    NotTranslated
        If they depend on data.
    """
    rank, stated = len(value.first.static_shape), value.argument(1)
    if value.op.startswith("Global"):
        return list(range(2, rank))
    axes = value.attrs.get("axes") if stated is None else whole_numbers(stated)
    if stated is not None and axes is None:
        raise NotTranslated(f"{value.label} reduces axes that are computed when it runs")
    if not axes:
        return [] if value.attrs.get("noop_with_empty_axes") else list(range(rank))
    return sorted(int(axis) % rank for axis in axes)


def reduced_image(value: Value, source: Source) -> tuple[Source, Size]:
    """Return the first argument of a reduction as an image, and the window that is reduced.

    The pixels of the image are the reduced axes, or it is one already.
    """
    shape, axes = value.first.static_shape, reduced_axes(value)
    if len(shape) == 4 and {*axes} <= {2, 3}:
        return source, (shape[2] if 2 in axes else 1, shape[3] if 3 in axes else 1)
    kept = sorted({*range(len(shape))} - {*axes})
    if kept + axes != sorted(kept + axes):
        source = step(Transpose((*kept, *axes)), source)
    parts = kept[:1], kept[1:], axes[:-1], axes[-1:]
    n, c, h, w = (math.prod(shape[axis] for axis in part) for part in parts)
    return reshaped(source, (n, c, h, w)), (h, w)


def step(op: GraphOperator, *inputs: Source, scale: float | None = None) -> Step:
    """Return an operator applied to its inputs; raises ShapeError if it refuses them.

    The result has the scale of the first input, unless another is given.
    """
    scale = inputs[0].tensor.scale if scale is None else scale
    tensor = op.infer(*(source.tensor for source in inputs))
    return Step(op, inputs, replace(tensor, name="-", scale=scale))


def cut(source: Source, axis: int, start: int, stop: int, stride: int = 1) -> Source:
    """Return a part of a tensor; the tensor itself if it is the whole."""
    if len(range(start, stop, stride)) == source.tensor.shape[axis]:
        return source
    return step(Slice(axis, start, stop, stride), source)


def reshaped(source: Source, shape: Sequence[int]) -> Source:
    """Return a source in another shape; a reshape of a reshape is one."""
    while source.tensor.shape != tuple(shape):
        if not (isinstance(source, Step) and isinstance(source.op, Reshape)):
            return step(Reshape(tuple(shape)), source)
        (source,) = source.inputs
    return source
