"""Operators that stand for several simple ones, read as those: RMS norms.

Transformers are exported either way. Read as simple operators, both have one meaning to what
follows: the rules and quantisation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.frontends.values import Parts, Value
from vtaops.graph.onnx_files import ModelProto, NodeProto

_AXES_AS_INPUT = 18
"""The opset from which ReduceMean reads its axes."""


def _rms_norm(to: Parts, data: Value, weight: Value) -> list[Value]:
    if data.shape is None:
        raise UnsupportedError(f"{to.whole.label} reads {data.name!r} of unknown shape")
    axis, rank = int(to.whole.attrs.get("axis", -1)), len(data.shape)
    axes = np.arange(axis - rank if axis >= 0 else axis, 0)
    square = to.add("Mul", data, data)
    if to.builder.opset < _AXES_AS_INPUT:
        mean = to.add("ReduceMean", square, axes=axes.tolist())
    else:
        mean = to.add("ReduceMean", square, to.constant(axes))
    epsilon = to.constant(np.array(to.whole.attrs.get("epsilon", 1e-5), data.dtype))
    root = to.add("Sqrt", to.add("Add", mean, epsilon))
    return [to.add("Mul", to.add("Div", data, root), weight)]


def _skip_rms_norm(
    to: Parts, data: Value, skip: Value, weight: Value, bias: Value | None = None
) -> list[Value]:
    """Return the RMS norm of a sum, statistics that nobody reads, and the sum."""
    if any(to.whole.names[1:3]):
        raise UnsupportedError(f"{to.whole.label} gives statistics, which vtaops does not compute")
    total = to.add("Add", data, skip)
    if bias is not None:
        total = to.add("Add", total, bias)
    return [*_rms_norm(to, total, weight), total, total, total]


Rule = Callable[..., list[Value]]
"""Adds an operator by its arguments; returns its results."""

_RULES: dict[str, Rule] = {
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
}
_RUNTIME = "com.microsoft"


def place_in_domains(model: ModelProto) -> None:
    """Move a norm that ONNX Runtime has among ONNX's operators to its own, for ONNX's checker."""
    moved = [n for n in model.graph.node if n.op_type == "SimplifiedLayerNormalization"]
    for node in moved:
        node.domain = _RUNTIME
    if moved and all(entry.domain != _RUNTIME for entry in model.opset_import):
        model.opset_import.add(domain=_RUNTIME, version=1)


def is_composite(node: NodeProto) -> bool:
    """Return whether a node is read as several operators."""
    return node.domain in ("", "ai.onnx", _RUNTIME) and node.op_type in _RULES


def add_composite(to: Parts) -> list[Value]:
    """Add the operators of a composite one; return its results."""
    results = _RULES[to.whole.op](to, *to.whole.args)
    for value, name in zip(results, to.whole.names, strict=False):
        if name:
            to.builder.rename(value, name)
    return results
