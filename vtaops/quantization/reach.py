"""The part of a tensor's range that matters to what reads it.

A function may be flat at an end of its argument's range: h-swish below -3, GELU, a sigmoid, a leaky
ReLU before a bound. Where nothing else reads the argument, values there saturate without a loss,
and all steps of the grid are for the others. The same holds for what a maximum leaves out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.grid import Range
from vtaops.graph.onnx_files import Connections, ModelProto, NodeProto, require
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
    found = dict(ranges)
    chosen = [
        function
        for those in only_arguments(model).values()
        if all({each.root, each.end} <= ranges.keys() for each in those)
        for function in those
    ]
    points = {f.root: np.linspace(*ranges[f.root], POINTS, dtype=np.float32) for f in chosen}
    needed: dict[str, list[Range]] = defaultdict(list)
    for function, results in zip(chosen, _results(model, chosen, points), strict=True):
        low, high = found[function.end]
        room = FLAT * (high - low) / 255
        needed[function.root].append(_between_flat(points[function.root], results, room))
        found[function.root] = _hull(needed[function.root])
    _pass_back(model, found)
    return found


def _pass_back(model: ModelProto, ranges: dict[str, Range]) -> None:
    """Let tensors that are only moved lose what their images lose."""
    tensors = Connections(model)
    for node in reversed(model.graph.node):
        read = [ranges[name] for name in node.output if name in ranges]
        if node.op_type in _COMMUTING and len(read) == len(node.output):
            name, (least, greatest) = node.input[0], _hull(read)
            if name in ranges and tensors.only_reader(name) is not None:
                ranges[name] = max(ranges[name][0], least), min(ranges[name][1], greatest)


def only_arguments(model: ModelProto) -> dict[str, list[Function]]:
    """Return the tensors that only functions of them read, a bound being one, with these."""
    tensors, found = Connections(model), defaultdict[str, list[Function]](list)
    for function in elementwise(model):
        found[function.root].append(function)
    return {
        root: those
        for root, those in found.items()
        if root not in tensors.outputs
        and {n.name for n in tensors.readers.get(root, ())} <= {n for f in those for n in f.nodes}
    }


def _hull(ranges: Iterable[Range]) -> Range:
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


def _results(
    model: ModelProto, chosen: Sequence[Function], points: Mapping[str, Array]
) -> list[Array]:
    """Return what functions make of the points of their arguments, a row for each point."""
    if not chosen:
        return []
    given = {_argument(root): each.reshape(-1, 1, 1, 1) for root, each in points.items()}
    part = _part(model, {name: each.root for each in chosen for name in each.nodes}, given)
    values = Probe(part, [function.end for function in chosen]).run(given)
    return [np.asarray(values[function.end]).reshape(POINTS, -1) for function in chosen]


def _argument(root: str) -> str:
    """Return the name of the points, which no function writes."""
    return f"argument/{root}"


def _part(model: ModelProto, roots: Mapping[str, str], given: Mapping[str, Array]) -> ModelProto:
    """Return a model of some nodes, each of a function of a root, which take given inputs."""
    onnx = require("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [_of_points(n, roots[n.name]) for n in model.graph.node if n.name in roots]
    read = {name for node in nodes for name in node.input}
    constants = [tensor for tensor in model.graph.initializer if tensor.name in read]
    inputs = [helper.make_tensor_value_info(n, kind, value.shape) for n, value in given.items()]
    graph = helper.make_graph(nodes, "functions", inputs, [], constants)
    made: ModelProto = helper.make_model(graph, opset_imports=model.opset_import)
    made.ir_version = model.ir_version
    return made


def _of_points(node: NodeProto, root: str) -> NodeProto:
    """Return a node that reads the points instead of a root."""
    found = deepcopy(node)
    found.input[:] = [_argument(root) if name == root else name for name in node.input]
    return found


def _between_flat(points: Array, results: Array, room: float) -> Range:
    """Return the range between the ends where results change by no more than `room`."""
    low, high = points[_flat(results, room)], points[-1 - _flat(results[::-1], room)]
    return min(float(low), 0.0), max(float(high), 0.0)


def _flat(results: Array, room: float) -> int:
    """Return the number of the last row up to which results are the same; 0 without such."""
    with np.errstate(invalid="ignore"):
        spread = np.maximum.accumulate(results) - np.minimum.accumulate(results)
    return max(0, int((spread <= room).all(axis=1).sum()) - 1)
