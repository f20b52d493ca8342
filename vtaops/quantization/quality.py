"""Compare a quantised model with its float model, layer by layer and at the outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import ModelProto, float_tensors, producers
from vtaops.graph.probe import Probe
from vtaops.quantization.activations import elementwise
from vtaops.quantization.pairs import images
from vtaops.quantization.samples import Sample

Item = TypeVar("Item")

LOW_DB = 15.0
"""SQNR of an output under which it is of little use."""

GOOD_DB = 2 * LOW_DB
"""SQNR of the worst output from which nothing more is tried."""

FEW = 16
"""Number of values under which an output is of little use, where float takes four times as many."""

MOST_RATIO = 8
"""Ratio of the ranges of parts on one grid from which it is told."""


@dataclass(frozen=True)
class LayerQuality:
    """One tensor of the float model and its quantised image.

    `sqnr_db` is the signal-to-quantisation-noise ratio 10 log10(sum x^2 / sum (x - q)^2), which
    includes the errors of all previous layers.
    """

    tensor: str
    operator: str
    sqnr_db: float


@dataclass(frozen=True)
class Coarse:
    """An output that takes few values."""

    values: int
    float_values: int

    def __str__(self) -> str:
        return f"takes {self.values} values where float takes {self.float_values:,}"


@dataclass(frozen=True)
class OutputQuality:
    """An output of the model: SQNR in dB, and how often the maximum agrees.

    `top1` is None if the output is not a vector of scores per image, `coarse` if it takes at least
    16 values, or as many as float.
    """

    output: str
    sqnr_db: float
    top1: float | None
    coarse: Coarse | None = None

    def __str__(self) -> str:
        agree = "" if self.top1 is None else f", same maximum {self.top1:.1%}"
        return f"{self.output} {self.sqnr_db:.1f} dB{agree}"


@dataclass(frozen=True)
class Uneven:
    """A concatenation on one grid of parts whose ranges differ more than eightfold."""

    tensor: str
    smallest: str
    ratio: float

    def __str__(self) -> str:
        return (
            f"{self.smallest} has 1/{self.ratio:.0f} of the range of {self.tensor}, with which it "
            "shares a grid"
        )


@dataclass(frozen=True)
class Quality:
    """Layers, worst first, outputs, and concatenations of parts whose ranges differ much."""

    layers: tuple[LayerQuality, ...]
    outputs: tuple[OutputQuality, ...]
    uneven: tuple[Uneven, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may make an output useless: under 15 dB, few values, one grid for uneven parts."""
        low = [f"{o.output} keeps {o.sqnr_db:.1f} dB" for o in self.outputs if o.sqnr_db < LOW_DB]
        coarse = [f"{o.output} {o.coarse}" for o in self.outputs if o.coarse]
        return (*low, *coarse, *map(str, self.uneven))

    def __str__(self) -> str:
        """Return the outputs and the worst layer in one line."""
        worst = [f"worst: {w.tensor} ({w.operator}) {w.sqnr_db:.1f} dB" for w in self.layers[:1]]
        return "; ".join((*map(str, self.outputs), *worst))

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain lists and dictionaries, for JSON."""
        return {"schema": 1, **asdict(self), "warnings": [*self.warnings]}


def compare(model: ModelProto, quantized: ModelProto, samples: Sequence[Sample]) -> Quality:
    """Run both models on the samples and compare every tensor that has a quantised image."""
    image_of, writers = images(model, quantized), producers(model)
    outputs = [value.name for value in model.graph.output]
    shown = {name: image_of[name] for name in _inner(model, outputs) if name in image_of}
    ours = Probe(model, [*shown, *outputs], exact=False)
    theirs = Probe(quantized, [*shown.values(), *outputs])
    sums = {name: np.zeros(2) for name in shown}
    largest = dict.fromkeys(shown, 0.0)
    rows: dict[str, list[Sequence[Array]]] = defaultdict(list)
    for sample in tracked("compare image", samples):
        exact, rounded = ours.run(sample), theirs.run(sample)
        for name, image in shown.items():
            sums[name] += powers(exact[name], rounded[image])
            largest[name] = max(largest[name], float(np.abs(exact[name]).max(initial=0.0)))
        for name in outputs:
            rows[name].append(np.atleast_1d(exact[name], rounded[name]))
    layers = [LayerQuality(name, writers[name].op_type, decibels(*sums[name])) for name in shown]
    return Quality(
        tuple(sorted(layers, key=lambda layer: layer.sqnr_db)),
        tuple(_output(name, pairs) for name, pairs in rows.items()),
        tuple(_uneven(model, image_of, largest)),
    )


def _inner(model: ModelProto, outputs: Collection[str]) -> list[str]:
    """Return the tensors but outputs, and arguments of functions, whose saturation is no error."""
    left_out = {*outputs, *(function.root for function in elementwise(model))}
    return [name for name in float_tensors(model) if name not in left_out]


def _uneven(
    model: ModelProto, rounded: Collection[str], largest: dict[str, float]
) -> Iterator[Uneven]:
    """Yield the concatenations on one grid whose parts differ much, by their largest values."""
    for node in model.graph.node:
        parts = sorted(filter(largest.get, node.input), key=largest.__getitem__)
        if node.op_type == "Concat" and node.output[0] in rounded and parts:
            ratio = largest[parts[-1]] / largest[parts[0]]
            if ratio > MOST_RATIO:
                yield Uneven(node.output[0], parts[0], ratio)


def powers(exact: Array, rounded: Array) -> Array:
    """Return the sums of squares of a tensor and of its error."""
    signal = np.square(exact, dtype=np.float64).sum()
    with np.errstate(invalid="ignore"):  # equal infinities have no difference
        error = np.where(exact == rounded, 0.0, exact.astype(np.float64) - rounded)
    return np.array([signal, np.square(error).sum()])


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most so many of some items, evenly spaced."""
    return [*items[:: max(1, -(-len(items) // most))]]


def outputs(model: ModelProto, samples: Sequence[Sample], *, exact: bool = True) -> list[Sample]:
    """Return the outputs of a model for each sample (`vtaops.graph.probe.Probe`)."""
    return [*map(Probe(model, exact=exact).run, samples)]


def sqnrs(exact: Iterable[Sample], found: Iterable[Sample]) -> list[float]:
    """Return the SQNR of each output on some samples."""
    sums: dict[str, Array] = defaultdict(lambda: np.zeros(2))
    for wanted, got in zip(exact, found, strict=True):
        for name in wanted:
            sums[name] += powers(wanted[name], got[name])
    return [decibels(*both) for both in sums.values()]


def decibels(signal: float, noise: float) -> float:
    """Return a signal-to-noise ratio in dB."""
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(max(signal, 1e-300) / noise))


def _output(name: str, pairs: Sequence[Sequence[Array]]) -> OutputQuality:
    exact, rounded = map(np.concatenate, zip(*pairs, strict=True))
    scores = exact.reshape(len(exact), -1)
    top1 = None
    if exact.ndim > 1 and scores.shape[1] == exact.shape[1] > 1:
        same = scores.argmax(axis=1) == rounded.reshape(scores.shape).argmax(axis=1)
        top1 = float(same.mean())
    counts = Coarse(np.unique(rounded).size, np.unique(exact).size)
    coarse = counts if counts.values < FEW <= counts.float_values // 4 else None
    return OutputQuality(name, decibels(*powers(exact, rounded)), top1, coarse)
