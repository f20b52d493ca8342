"""Steps: integer operators found in a Relax graph, before they are added to a `Graph`.

A translation only describes what it found, so a failed translation has no effect. Steps are nested
if several operators lie between two quantised tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from vtaops.base.errors import ModelError, ShapeError
from vtaops.graph import GraphOperator, Requantization, Tensor
from vtaops.graph.grid import Grid
from vtaops.graph.requantization import Rounding
from vtaops.relax.values import Value, real


class NotTranslated(Exception):
    """Why a part of the graph has no integer operator; becomes the reason of a host function."""


@contextmanager
def shapes_translated() -> Iterator[None]:
    """Convert what a graph refuses to the reason why a value is not translated."""
    try:
        yield
    except ShapeError as error:
        raise NotTranslated(str(error)) from error


@dataclass(frozen=True)
class ResultRange:
    """Grid of a result, and the bounds to which it is clipped.

    Attributes
    ----------
    grid : Grid
        Scale and zero point.
    low, high : int
        The bounds as integers.
    tflite : bool
        Whether its source rounds like TFLite (`vtaops.graph.requantization.Rounding`).
    """

    grid: Grid
    low: int = -128
    high: int = 127
    tflite: bool = False

    def clipped(self, low: float = -float("inf"), high: float = float("inf")) -> ResultRange:
        """Return the range with additional bounds, given as real values.

        Because rounding is monotone, clipping before it is the same as clipping the integers to the
        rounded bounds.
        """
        bounds = [self._step(low), self._step(high)]
        lower = max(self.low, bounds[0])
        upper = max(lower, min(self.high, bounds[1]))
        return replace(self, low=min(lower, upper), high=upper)

    def requantization(self, ratio: Any, rounding: Rounding = "twice") -> Requantization:
        """Return the requantisation by a ratio of scales to this range; TFLite's by `rounding`."""
        zero, bounds = self.grid.zero_point, (self.low, self.high)
        with shapes_translated():
            if self.tflite:
                return Requantization.tflite(ratio, zero, bounds, rounding)
            return Requantization.from_ratio(ratio, zero, bounds)

    def _step(self, x: float) -> int:
        steps = min(max(x / self.grid.scale, -1e6), 1e6)
        return min(max(round(steps) + self.grid.zero_point, -128), 127)


@dataclass(frozen=True, eq=False)
class Leaf:
    """An int8 (or uint8) value of the Relax graph."""

    value: Value
    grid: Grid

    @property
    def tensor(self) -> Tensor:
        """The tensor that operators read."""
        shape, grid = self.value.shape, self.grid
        return Tensor(self.value.name, shape, "int8", grid.scale, grid.zero_point)

    def leaves(self) -> Iterator[Leaf]:
        """Yield itself."""
        yield self


@dataclass(frozen=True, eq=False)
class Step:
    """An operator on steps and leaves, with the scale of its result."""

    op: GraphOperator
    inputs: tuple[Step | Leaf, ...]
    scale: float
    tensor: Tensor

    def leaves(self) -> Iterator[Leaf]:
        """Yield the quantised values that it reads."""
        for source in self.inputs:
            yield from source.leaves()


Source = Step | Leaf


def step(op: GraphOperator, *inputs: Source, scale: float) -> Step:
    """Return an operator applied to its inputs.

    Raises
    ------
    NotTranslated
        If the operator refuses its inputs; the message is that of the operator.
    """
    with shapes_translated():
        (tensor,) = op.results([source.tensor for source in inputs])
    return Step(op, inputs, scale, replace(tensor, name="-", scale=scale))


def grid_of(value: Value) -> Grid:
    """Return the grid of a `quantize` or `dequantize`.

    Raises
    ------
    NotTranslated
        If it has per-channel scales or is not of 8 bits.
    ModelError
        If the scale is not a positive finite number.
    """
    kind = value.dtype if value.op == "quantize" else value.args[0].dtype
    scale, zero = real(value.args[1]), real(value.args[2])
    if kind not in ("int8", "uint8"):
        raise NotTranslated(f"a tensor of {kind}; VTA computes with 8 bits")
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        raise NotTranslated("an activation with a scale for each channel")
    step = float(scale.reshape(()))
    if not 0 < step < float("inf"):
        raise ModelError(
            f"the tensor {value.name!r} is quantised with the scale {step}; it must be positive "
            "and finite"
        )
    offset = 128 if kind == "uint8" else 0
    return Grid(step, int(zero.reshape(())) - offset)
