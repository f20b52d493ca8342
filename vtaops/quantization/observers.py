"""Observers: what one pass over the calibration data keeps of the tensors of a float model.

The model runs once for each sample, and every observer sees the tensors that it asks for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.base.window import Window
from vtaops.graph.grid import Grid, Range
from vtaops.graph.onnx_files import ModelProto, NodeProto, attributes, producers
from vtaops.graph.probe import Probe
from vtaops.quantization.samples import Sample

MEASURED = 1 << 16
"""Number of elements of a tensor that are sampled to choose a power of two."""

BOUNDLESS = 2.0**100
"""From here on, values stand for infinity, as in masks."""

COLUMNS = 8192
"""Maximum number of results of a layer whose inputs are sampled."""

SMALL = 1 / 20
"""Share of the rows of a tensor that count as small."""

FEWEST = 8
"""Steps that a grid leaves rows of the least size, so that their norms keep some 30 dB."""


class Observer(Protocol):
    """Keeps something of some tensors."""

    @property
    def names(self) -> Collection[str]:
        """The tensors to see."""

    def see(self, name: str, value: Array) -> None:
        """Take note of the value that a tensor has for one sample."""


def observe(
    model: ModelProto, samples: Sequence[Sample], observers: Iterable[Observer], what: str
) -> None:
    """Run a model on all samples and show each observer its tensors."""
    shown = [*observers]
    names = {name for observer in shown for name in observer.names}
    probe = Probe(model, [name for name in producers(model) if name in names], exact=False)
    for sample in tracked(what, samples if names else ()):
        values = {**sample, **probe.run(sample)}
        for observer in shown:
            for name in observer.names:
                observer.see(name, values[name])


class PerSample:
    """What a function tells of each value of each tensor."""

    def __init__(self, names: Collection[str], tell: Callable[[Array], Any]) -> None:
        self.names, self._tell = names, tell
        self.told: dict[str, list[Any]] = defaultdict(list)

    def see(self, name: str, value: Array) -> None:
        """Keep what is told of a value."""
        self.told[name].append(self._tell(value))


def ends(value: Array) -> Array:
    """Return the least and the greatest number, with 0.0 between them."""
    return np.array([value.min(initial=0), value.max(initial=0)])


def ranges(told: Mapping[str, Sequence[Array]]) -> dict[str, Range]:
    """Return the ranges of tensors, by their `ends`; none for values that stand for infinity.

    Raises
    ------
    ModelError
        If a tensor is no number.
    """
    found = {name: (float(np.min(seen)), float(np.max(seen))) for name, seen in told.items()}
    for name, both in found.items():
        if np.isnan(both).any():
            raise ModelError(f"tensor {name!r} takes values that are no numbers in calibration")
    return {name: both for name, both in found.items() if np.abs(both).max() < BOUNDLESS}


def peaks(value: Array) -> Array:
    """Return the largest magnitude in each channel, along axis 1."""
    return np.asarray(np.abs(value).max(axis=_but_channels(value)))


def means(value: Array) -> Array:
    """Return the mean of each channel, along axis 1."""
    with np.errstate(invalid="ignore"):  # what is infinite is refused by its range
        return np.asarray(value.mean(axis=_but_channels(value), dtype=np.float64))


def _but_channels(value: Array) -> tuple[int, ...]:
    return tuple(axis for axis in range(value.ndim) if axis != 1)


def row_sizes(value: Array) -> Array:
    """Return the root mean squares of rows, along the last axis, of those that are not 0."""
    sizes = np.sqrt(np.square(value.astype(np.float64)).mean(axis=-1))
    return np.asarray(sizes[sizes > 0])


def lost(told: Mapping[str, Sequence[Array]], grids: Mapping[str, Grid]) -> set[str]:
    """Return the tensors whose grids would leave small rows few steps, by their `row_sizes`."""
    sizes = {name: np.concatenate(seen) for name, seen in told.items() if name in grids}
    small = {name: np.quantile(each, SMALL) for name, each in sizes.items() if each.size}
    return {name for name, size in small.items() if size < FEWEST * grids[name].scale}


class SquaredErrors:
    """The values of each tensor in bins, from which the error of any power of two is computed."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self._histograms: dict[str, Histogram] = defaultdict(Histogram)

    def see(self, name: str, value: Array) -> None:
        """Add about `MEASURED` values of a tensor."""
        flat = value.reshape(-1)[:: max(1, value.size // MEASURED)]
        self._histograms[name].add(flat.astype(np.float64))

    def of(self, name: str, grids: Sequence[Grid], within: Range) -> Array:
        """Return the squared error of each grid on the values of a tensor within a range."""
        return np.array([self._histograms[name].squared_error(grid, within) for grid in grids])


class Histogram:
    """Values in bins whose width is a power of two: their number, their sum, and that of squares.

    Bins are narrower than half a step of the grids that are tried for the values, so that all
    values of a bin are rounded alike, and the squared error is exact. Where the range grows, bins
    are joined.
    """

    BINS = 4096
    """Enough for 255 steps to each side, in eighths of a step."""

    def __init__(self) -> None:
        self._exponent = -1100  # of the width, less than that of any value
        self._index = np.arange(-self.BINS // 2, self.BINS // 2)
        self._sums: Array = np.zeros((3, self.BINS))

    def add(self, values: Array) -> None:
        """Add finite values."""
        largest = np.abs(values).max(initial=0.0)
        if not 0 < largest < BOUNDLESS:
            return
        exponent = max(self._exponent, math.ceil(math.log2(largest / 255)) - 3)
        joined, sums = self._index >> min(exponent - self._exponent, 62), self._sums
        self._exponent, self._sums = exponent, np.zeros_like(sums)
        self._count(joined, sums)
        index = np.floor(np.ldexp(values, -self._exponent)).astype(np.int64)
        self._count(index, np.stack([np.ones_like(values), values, values**2]))

    def _count(self, index: Array, sums: Array) -> None:
        place = index + self.BINS // 2
        for row, values in zip(self._sums, sums, strict=True):
            row += np.bincount(place, values, self.BINS)

    def squared_error(self, grid: Grid, within: Range) -> float:
        """Return the squared error of a grid of powers of two on the bins within a range."""
        lows, highs = np.ldexp((self._index, self._index + 1), self._exponent)
        nearest = grid.rounded((lows + highs) / 2)
        count, total, squares = self._sums * ((highs >= within[0]) & (lows <= within[1]))
        return float((squares - 2 * nearest * total + nearest**2 * count).sum())


class Moments:
    """The second moments of the inputs of products, (groups, taps, taps), by their results."""

    def __init__(
        self, layers: Iterable[NodeProto], weights: Mapping[str, Array], samples: int
    ) -> None:
        self._layers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in layers:
            self._layers[node.input[0]].append(node)
        self.names = self._layers.keys()
        self._weights, self._most = weights, max(1, COLUMNS // samples)
        self.moments: dict[str, Array] = {}

    def see(self, name: str, value: Array) -> None:
        """Add the inputs of the products that read a tensor."""
        for node in self._layers[name]:
            rows = _inputs(node, self._weights[node.input[1]], value, self._most)
            moment = rows.transpose(0, 2, 1) @ rows / rows.shape[1]
            self.moments[node.output[0]] = self.moments.get(node.output[0], 0) + moment


def _inputs(node: NodeProto, weight: Array, value: Array, most: int) -> Array:
    """Return inputs of products, shape (groups, results, taps), for about `most` results."""
    value = value.astype(np.float64)
    if node.op_type == "Gemm":
        return value[None, :most]
    attrs, unit = attributes(node), (1, 1)
    strides, dilation = (tuple(attrs.get(name, unit)) for name in ("strides", "dilations"))
    window = Window(weight.shape[2:], strides, tuple(attrs.get("pads", 2 * (0, 0))), dilation)
    size = window.out_size(*value.shape[2:])
    step = max(1, round(math.sqrt(math.prod(size) / most)))
    sides = zip(window.padding[:2], window.padding[2:], strict=True)
    padded = np.pad(value, ((0, 0), (0, 0), *sides))
    seen = [padded[pixels][..., ::step, ::step] for *_, pixels in window.taps(*size)]
    batch, channels, height, width = seen[0].shape
    groups = attrs.get("group", 1)
    cut = np.stack(seen, axis=-1).reshape(batch, groups, channels // groups, -1, len(seen))
    return np.asarray(cut.transpose(1, 0, 3, 2, 4).reshape(groups, batch * height * width, -1))
