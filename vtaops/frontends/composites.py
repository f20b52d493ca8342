"""Operators that stand for several simple ones, read as those: RMS norms.

Transformers are exported either way. Read as simple operators, both have one meaning to what
follows: the rules and quantisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import Array
from vtaops.frontends.values import NetworkBuilder, OnnxNode, Value
from vtaops.graph.onnx_files import NodeProto


@dataclass(frozen=True)
class _Composite:
    """An operator whose parts are added to a network."""

    builder: NetworkBuilder
    node: OnnxNode

    def add(self, kind: str, *args: Value | None, **attrs: Any) -> Value:
        name = f"{self.node.name}:{kind}"
        return self.builder.add(kind, *args, name=name, label=self.node.label, **attrs)

    def constant(self, array: Array) -> Value:
        return self.builder.constant(array, f"{self.node.name}:constant")


# ---------------------------------------------------------------------------------- norms


def _rms_norm(to: _Composite, data: Value, weight: Value) -> Value:
    if data.shape is None:
        raise UnsupportedError(f"{to.node.label} reads {data.name!r} of unknown shape")
    axis, rank = int(to.node.attrs.get("axis", -1)), len(data.shape)
    axes = to.constant(np.arange(axis - rank if axis >= 0 else axis, 0))
    mean = to.add("ReduceMean", to.add("Mul", data, data), axes)
    epsilon = to.constant(np.array(to.node.attrs.get("epsilon", 1e-5), data.dtype))
    root = to.add("Sqrt", to.add("Add", mean, epsilon))
    return to.add("Mul", to.add("Div", data, root), weight)


Rule = Callable[..., Value]
"""Adds an operator by its arguments; returns its result."""

_RULES: dict[str, Rule] = {"RMSNormalization": _rms_norm}


def is_composite(node: NodeProto) -> bool:
    """Return whether a node is read as several operators."""
    return node.domain in ("", "ai.onnx") and node.op_type in _RULES


def add_composite(builder: NetworkBuilder, node: OnnxNode) -> Value:
    """Add the operators of a composite one; return its result."""
    result = _RULES[node.op](_Composite(builder, node), *node.args)
    builder.rename(result, node.name)
    return result
