"""Bounds of a part of an ONNX model, checked before ONNX Runtime sees it.

Loops must state how often they run, and tensors of static shape must fit in memory. Tensors whose
shape only the data say are not bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from vtaops.base.errors import ProgramError, UnsupportedError, raising
from vtaops.graph.onnx_files import ModelProto, attributes, onnx, subgraphs, tensor_shapes

TRIPS = 1 << 16
"""Largest number of trips of a loop, those of the loops around it included."""

TENSOR = 1 << 30
"""Largest tensor of static shape, in bytes."""

FOLDED = 2 << 30
"""Largest sum of the tensors that do not depend on inputs, in bytes: a runtime keeps them all."""


def require_bounded(model: ModelProto) -> None:
    """Refuse a part that may run without end or take more memory than it needs.

    Raises
    ------
    UnsupportedError
        If a Loop or a Scan has no known number of trips or more than `TRIPS`, or if tensors are
        larger than `TENSOR` or `FOLDED`.
    ProgramError
        If it is malformed.
    """
    with raising(ProgramError, "a part of the model is malformed", Exception):
        _require_bounded(model)


def _require_bounded(model: ModelProto) -> None:
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    _require_few_trips(graph, {}, {}, 1)
    sizes = dict(_sizes(graph))
    for name, nbytes in sizes.items():
        if nbytes > TENSOR:
            reason = f"the tensor {name!r} has {nbytes:,} bytes, more than {TENSOR:,}"
            raise UnsupportedError(reason)
    folded = _folded(graph, {tensor.name for tensor in model.graph.initializer}, sizes)
    if folded > FOLDED:
        raise UnsupportedError(f"constants are computed of {folded:,} bytes, more than {FOLDED:,}")


def _folded(graph: Any, constants: set[str], sizes: Mapping[str, int]) -> int:
    """Return the bytes of what a graph computes of constants alone."""
    folded, constants = 0, {*constants, ""}
    for node in graph.node:
        if {*node.input} <= constants and not subgraphs(node):
            constants |= {*node.output}
            folded += sum(sizes.get(name, 0) for name in node.output)
    return folded


def _sizes(graph: Any) -> Iterator[tuple[str, int]]:
    """Yield the tensors of static shape of a graph and its subgraphs, with their bytes."""
    for value in (*graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type and kind.HasField("shape"):
            itemsize = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
            yield value.name, itemsize * prod(dim.dim_value for dim in kind.shape.dim)
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _sizes(inner)


def _require_few_trips(
    graph: Any, constants: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], trips: int
) -> None:
    """Refuse the loops of a graph whose trips are unknown or too many, times those around it."""
    constants = _constants(graph, constants)
    known = {name: (*tensor.dims,) for name, tensor in constants.items()}
    shapes = {**shapes, **known, **tensor_shapes((*graph.input, *graph.value_info))}
    for node in graph.node:
        own = trips * _trips(node, constants, shapes)
        if not 0 <= own <= TRIPS:
            raise UnsupportedError(
                f"the {node.op_type} {node.name or node.output[0]!r} must state how often it "
                f"runs, at most {TRIPS:,} times with the loops around it"
            )
        for inner in subgraphs(node):
            _require_few_trips(inner, constants, shapes, own)


def _constants(graph: Any, outer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that the nodes of a graph may read, by name: its own hide others."""
    constants = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for value in graph.input:
        constants.pop(value.name, None)
    for node in graph.node:
        constants |= dict.fromkeys(node.output)
        if node.op_type == "Constant":
            constants[node.output[0]] = attributes(node).get("value")
    return {name: tensor for name, tensor in constants.items() if tensor is not None}


def _trips(node: Any, constants: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> int:
    """Return how often the subgraphs of a node run, -1 if it is unknown."""
    if node.op_type == "Loop":
        count = constants.get(node.input[0])
        return -1 if count is None else int(onnx.numpy_helper.to_array(count).item())
    if node.op_type != "Scan":
        return 1
    attrs = attributes(node)
    shape = shapes.get(node.input[-attrs.get("num_scan_inputs", 1)], ())
    axis = attrs.get("scan_input_axes", [0])[0]
    return shape[axis] or -1 if -len(shape) <= axis < len(shape) else -1
