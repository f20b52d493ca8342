"""RMS norms of one node, read as the simple operators that they stand for.

Transformers are exported either way. Read as simple operators, both have one meaning to what
follows: the rules and quantisation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import Array
from vtaops.frontends.values import NetworkBuilder, OnnxNode, Value
from vtaops.graph.onnx_files import ModelProto, NodeProto

_AXES_AS_INPUT = 18
"""The opset from which ReduceMean reads its axes."""

_RUNTIME = "com.microsoft"
_SKIPS = "SkipSimplifiedLayerNormalization"
_NORMS = {"RMSNormalization": "", "SimplifiedLayerNormalization": _RUNTIME, _SKIPS: _RUNTIME}
"""The norms, with their domains."""


def place_in_domains(model: ModelProto) -> None:
    """Move a norm that ONNX Runtime has among ONNX's operators to its own, for ONNX's checker."""
    moved = [n for n in model.graph.node if n.op_type == "SimplifiedLayerNormalization"]
    for node in moved:
        node.domain = _RUNTIME
    if moved and all(entry.domain != _RUNTIME for entry in model.opset_import):
        model.opset_import.add(domain=_RUNTIME, version=1)


def is_composite(node: NodeProto) -> bool:
    """Return whether a node is read as several operators."""
    domain = node.domain.removeprefix("ai.onnx")
    return node.op_type in _NORMS and domain in ("", _NORMS[node.op_type])


def add_composite(builder: NetworkBuilder, node: OnnxNode) -> list[Value]:
    """Add the operators of a norm, maybe of a sum with a second tensor and a bias.

    Returns
    -------
    list of Value
        The norm; of a sum also its statistics, which nobody may read, and the sum.
    """

    def add(kind: str, *args: Value | None, **attrs: Any) -> Value:
        name = f"{node.name}:{kind}"
        return builder.add(kind, *args, name=name, label=node.label, **attrs)

    def constant(array: Array) -> Value:
        return builder.constant(array, f"{node.name}:constant")

    data, terms, weight = node.args[0], list[Value | None](), node.args[1]
    if node.op == _SKIPS:
        terms, weight = [node.args[1], *node.args[3:]], node.args[2]
        if any(node.names[1:3]):
            raise UnsupportedError(f"{node.label} gives statistics, which vtaops does not compute")
    for term in filter(None, terms):
        data = add("Add", data, term)
    if data is None or data.shape is None:
        raise UnsupportedError(f"{node.label} reads a tensor of unknown shape")
    first = range(len(data.shape))[node.attrs.get("axis", -1)]
    axes = [*range(first - len(data.shape), 0)]
    square = add("Mul", data, data)
    if builder.opset < _AXES_AS_INPUT:
        mean = add("ReduceMean", square, axes=axes)
    else:
        mean = add("ReduceMean", square, constant(np.array(axes, np.int64)))
    epsilon = constant(np.array(node.attrs.get("epsilon", 1e-5), data.dtype))
    root = add("Sqrt", add("Add", mean, epsilon))
    results = [add("Mul", add("Div", data, root), weight), data, data, data]
    for value, name in zip(results, node.names, strict=False):
        if name:
            builder.rename(value, name)
    return results
