"""Equalisation: bring all channels of a tensor to one range without changing the network.

With one scale per tensor, as on VTA, the channel with the largest values costs all other channels
bits. A channel can be multiplied by a positive factor where it is written and divided by it where
it is read, if everything in between commutes with factors: convolutions fold them into their
weights (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
ICCV 2019). Functions of one tensor (`vtaops.quantization.activations`), which become one table for
all channels, take none.

The factors come from calibration data. The channel of a convolution is enlarged until either its
values or its weights are as large as those of the others, since both are rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    ModelProto,
    NodeProto,
    attributes,
    float_tensors,
    inferred_shapes,
    initializers,
    replace_initializer,
)
from vtaops.quantization.activations import functions
from vtaops.quantization.disjoint_sets import DisjointSets
from vtaops.quantization.observers import PerSample, observe, peaks
from vtaops.quantization.samples import Sample
from vtaops.quantization.scales import saturated

HOMOGENEOUS = frozenset(
    {"Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Identity"}
)
"""Operators f with f(s x) = s f(x) for s > 0, channel by channel."""

REACH = 127 / 128
"""Range of equalised channels: just below a power of two, so that no grid wastes a bit."""

LIMIT = 1 << 8
"""Maximum factor between channels, which keeps nearly zero channels small."""


def equalize(model: ModelProto, samples: Sequence[Sample]) -> int:
    """Equalise a prepared model in place; return the number of tensors with changed channels.

    Parameters
    ----------
    model
        The float model.
    samples
        Calibration data for the ranges of the channels.
    """
    network = _Network(model)
    if not network.free.any():
        return 0
    entering, channels = saturated(model), network.channels
    shown = [n for n in float_tensors(model) if len(channels.get(n, ())) and n not in entering]
    seen = PerSample(shown, peaks)
    observe(model, samples, [seen], "equalize, image")
    ranges = np.zeros(len(network.free))
    for name, told in seen.told.items():
        np.maximum.at(ranges, channels[name], np.max(told, axis=0))
    network.apply(network.factors(ranges))
    return sum(bool(network.free[ids].any()) for ids in channels.values())


class _Network:
    """Channels that must share a factor, and the places where factors are folded.

    Attributes
    ----------
    channels
        For each tensor, the classes of its channels.
    free
        For each class, whether it may have a factor.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model, self.constants = model, initializers(model)
        self._shapes, curves = inferred_shapes(model), functions(model)
        self._inside = {name for function in curves for name in function.nodes}
        self._ties, self._numbered = DisjointSets[int](), 0
        self._pinned: list[int] = []
        self.channels: dict[str, Array] = {}
        self._pin(value.name for value in (*model.graph.input, *model.graph.output))
        self._pin(name for function in curves for name in (function.root, function.end))
        for node in model.graph.node:
            if node.name not in self._inside:
                self._tie(node)
        classes = np.array([self._ties.root(index) for index in range(self._numbered)], np.int64)
        self.channels = {name: classes[ids] for name, ids in self.channels.items()}
        self.free = np.ones(len(classes), bool)
        self.free[classes[self._pinned]] = False

    # ------------------------------------------------------------------- ties

    def _of(self, name: str) -> Array:
        """Return the channels of a tensor; empty if it has none."""
        if name not in self.channels:
            shape = self._shapes.get(name, ())
            count = shape[1] if len(shape) in (2, 4) else 0
            first, self._numbered = self._numbered, self._numbered + count
            self.channels[name] = np.arange(first, self._numbered)
        return self.channels[name]

    def _join(self, first: Array, second: Array) -> None:
        for one, other in zip(first.tolist(), second.tolist(), strict=True):
            self._ties.join(other, one)

    def _pin(self, names: Iterable[str]) -> None:
        for name in names:
            self._pinned.extend(self._of(name).tolist())

    def _tie(self, node: NodeProto) -> None:
        """Join the channels that a node reads and writes if it passes factors on; else pin them."""
        data = [name for name in node.input if name and name not in self.constants]
        sizes = {len(self._of(name)) for name in (*data, *node.output)}
        if self.absorbs(node):
            return
        passed = self._passed(node, data, sizes)
        for channels in passed:
            self._join(channels, self._of(node.output[0]))
        if not passed:
            self._pin((*data, *node.output))

    def _passed(self, node: NodeProto, data: Sequence[str], sizes: set[int]) -> list[Array]:
        """Return the input channels that share their factors with the channels of the result.

        None, if a node does not compute each channel of one with the same number.
        """
        read, shapes = [*map(self._of, data)], [self._shapes.get(name, ()) for name in data]
        if node.op_type == "Concat" and attributes(node).get("axis") == 1 and 0 not in sizes:
            return [np.concatenate(read)]
        if node.op_type == "Flatten":
            commutes = shapes[0][2:] == (1, 1)
        elif node.op_type == "Add":
            commutes = len(data) == 2 and len({*shapes}) == len(sizes) == 1
        else:
            commutes = node.op_type in HOMOGENEOUS and len(data) == len(sizes) == 1
        return read if commutes else []

    def absorbs(self, node: NodeProto) -> bool:
        """Return whether a node's weights absorb factors before and after it."""
        attrs, constant = attributes(node), {*node.input[1:]} <= self.constants.keys()
        rows = attrs.get("transB", 0) and not attrs.get("transA", 0)  # prepared: no factors
        return constant and (node.op_type == "Conv" or bool(node.op_type == "Gemm" and rows))

    # ---------------------------------------------------------------- factors

    def factors(self, ranges: Array) -> Array:
        """Return the factor of each class."""
        typical = np.median(ranges[ranges > 0]) if (ranges > 0).any() else 1.0
        reach = np.maximum(ranges, max(typical, ranges.max() / LIMIT) / LIMIT)
        strength = reach.copy()
        for node, weight, inputs, outputs in self._products():
            if len(outputs):
                rows = np.abs(weight) * _along_inputs(node, weight, reach[inputs])
                sizes = rows.reshape(len(rows), -1).max(axis=1)
                if sizes.any():
                    sizes *= np.median(reach[outputs]) / np.median(sizes[sizes > 0])
                np.maximum.at(strength, outputs, sizes)
        return np.asarray(np.where(self.free, REACH / strength, 1.0))

    def _products(self) -> Iterator[tuple[NodeProto, Array, Array, Array]]:
        """Yield the nodes with weights, these as float64, and the classes of inputs and outputs."""
        for node in self.model.graph.node:
            if node.name not in self._inside and self.absorbs(node):
                weight = self.constants[node.input[1]].astype(np.float64)
                yield node, weight, self.channels[node.input[0]], self.channels[node.output[0]]

    def apply(self, factors: Array) -> None:
        """Multiply by factors where channels are written, and divide where they are read."""
        for node, weight, inputs, outputs in self._products():
            behind = factors[outputs] if len(outputs) else np.ones(len(weight))
            weight = weight / _along_inputs(node, weight, factors[inputs])
            values = [weight * np.expand_dims(behind, tuple(range(1, weight.ndim)))]
            values += [self.constants[name].astype(np.float64) * behind for name in node.input[2:]]
            for index, value in enumerate(values, 1):
                node.input[index] = f"{node.output[0]}:equalized_{index}"
                replace_initializer(self.model, node.input[index], value.astype(np.float32))


def _along_inputs(node: NodeProto, weight: Array, values: Array) -> Array:
    """Return values of input channels, if it has any, in a shape that broadcasts to weights."""
    groups = attributes(node).get("group", 1)
    values = values if len(values) else np.ones(groups)
    each = np.repeat(values.reshape(groups, -1), len(weight) // groups, axis=0)
    return np.expand_dims(each, tuple(range(2, weight.ndim)))
