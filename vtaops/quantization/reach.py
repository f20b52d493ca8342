"""The part of a tensor's range that matters to what reads it.

A function may be flat at an end of its argument's range: h-swish below -3, GELU, a sigmoid, a leaky
ReLU before a bound. Where nothing else reads the argument, values there saturate without a loss,
and all steps of the grid are for the others. The same holds for what a maximum leaves out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.grid import Range
from vtaops.graph.onnx_files import Connections, ModelProto, require
from vtaops.graph.probe import Probe
from vtaops.quantization.activations import Function, elementwise

POINTS = 1024
"""Number of arguments for which a function is computed."""

FLAT = 1 / 8
"""Part of a step of the result within which a function is flat."""

_COMMUTING = ("MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split")
"""Operators that move values, where it is the same to saturate these before or after."""


def reached(model: ModelProto, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return ranges without the ends that what reads a tensor does not tell apart.

    Parameters
    ----------
    model
        A float model.
    ranges
        The least and the greatest value of its tensors, with 0.0 in each range.
    """
    reach, tensors = dict(ranges), Connections(model)
    by_root: dict[str, list[Function]] = defaultdict(list)
    for function in elementwise(model):
        by_root[function.root].append(function)
    for root, those in by_root.items():
        readers = {node.name for node in tensors.readers.get(root, ())}
        alone = readers <= {*chain.from_iterable(function.nodes for function in those)}
        known = {root, *(function.end for function in those)} <= ranges.keys()
        if alone and known and root not in tensors.outputs:
            points = np.linspace(*ranges[root], POINTS, dtype=np.float32)
            reach[root] = _hull(_between_flat(model, each, points, reach) for each in those)
    _pass_back(model, reach)
    return reach


def _pass_back(model: ModelProto, ranges: dict[str, Range]) -> None:
    """Let tensors that are only moved lose what their images lose."""
    tensors = Connections(model)
    for node in reversed(model.graph.node):
        read = [ranges[name] for name in node.output if name in ranges]
        if node.op_type in _COMMUTING and len(read) == len(node.output):
            name, (least, greatest) = node.input[0], _hull(read)
            if name in ranges and tensors.only_reader(name) is not None:
                ranges[name] = max(ranges[name][0], least), min(ranges[name][1], greatest)


def _hull(ranges: Iterable[Range]) -> Range:
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


def _results(model: ModelProto, function: Function, points: Array) -> Array:
    """Return what a function makes of points of its argument, a row for each."""
    part = require("onnx.utils").Extractor(model).extract_model([function.root], [function.end])
    for value in (*part.graph.input, *part.graph.output):
        value.type.tensor_type.ClearField("shape")
    del part.graph.value_info[:]
    values = Probe(part).run({function.root: points.reshape(-1, 1, 1, 1)})[function.end]
    return np.asarray(values).reshape(POINTS, -1)


def _between_flat(
    model: ModelProto, function: Function, points: Array, reach: Mapping[str, Range]
) -> Range:
    """Return the range of the points without those that a function does not tell from its ends."""
    low, high = reach[function.end]
    room, results = FLAT * (high - low) / 255, _results(model, function, points)
    low, high = points[_flat(results, room)], points[-1 - _flat(results[::-1], room)]
    return min(float(low), 0.0), max(float(high), 0.0)


def _flat(results: Array, room: float) -> int:
    """Return the number of the last row up to which results are the same; 0 without such."""
    with np.errstate(invalid="ignore"):
        spread = np.maximum.accumulate(results) - np.minimum.accumulate(results)
    return max(0, int((spread <= room).all(axis=1).sum()) - 1)
