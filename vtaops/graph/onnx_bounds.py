"""Bounds of a part of an ONNX model, checked before ONNX Runtime sees it.

There are no loops, and tensors of static shape fit in memory. Tensors whose shape only the data
say are not bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from vtaops.base.errors import ProgramError, UnsupportedError, raising
from vtaops.graph.onnx_files import ModelProto, require, subgraphs

TENSOR = 1 << 30
"""Largest tensor of static shape, in bytes."""

FOLDED = 2 << 30
"""Largest sum of the tensors that do not depend on inputs, in bytes: a runtime keeps them all."""


def require_bounded(model: ModelProto) -> None:
    """Refuse a part that may run without end or take more memory than it needs.

    Raises
    ------
    UnsupportedError
        If it has a Loop or a Scan, or tensors larger than `TENSOR` or `FOLDED`.
    ProgramError
        If it is malformed.
    """
    with raising(ProgramError, "a part of the model is malformed", Exception):
        _require_bounded(model)


def _require_bounded(model: ModelProto) -> None:
    shape_inference = require("onnx").shape_inference
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    _refuse_loops(graph)
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
    from onnx.helper import tensor_dtype_to_np_dtype

    for value in (*graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type and kind.HasField("shape"):
            itemsize = tensor_dtype_to_np_dtype(kind.elem_type).itemsize
            yield value.name, itemsize * prod(dim.dim_value for dim in kind.shape.dim)
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _sizes(inner)


def _refuse_loops(graph: Any) -> None:
    """Refuse loops, at any depth, which might run without end."""
    for node in graph.node:
        if node.op_type in ("Loop", "Scan"):
            raise UnsupportedError(
                f"the model has the {node.op_type} {node.name or node.output[0]!r}; vtaops runs "
                "none: write its body as often as it runs"
            )
        for inner in subgraphs(node):
            _refuse_loops(inner)
