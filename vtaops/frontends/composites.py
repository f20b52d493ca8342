"""Operators that stand for several simple ones, read as those: RMS norms and rotary positions.

Transformers are exported either way. Read as simple operators, both have one meaning to what
follows: the rules and quantisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import Array
from vtaops.frontends.values import NetworkBuilder, OnnxNode, Value
from vtaops.graph.onnx_files import ModelProto, NodeProto

_MOST_TOKENS = 1 << 20
"""Maximum number of tokens whose positions are listed."""

_AXES_AS_INPUT = 18
"""The opset from which ReduceMean reads its axes."""


@dataclass(frozen=True)
class _Composite:
    """An operator whose parts are added to a network."""

    builder: NetworkBuilder
    node: OnnxNode

    def add(self, kind: str, *args: Value | None, **attrs: Any) -> Value:
        name = f"{self.node.name}:{kind}"
        return self.builder.add(kind, *args, name=name, label=self.node.label, **attrs)

    def shape(self, value: Value) -> tuple[int, ...]:
        if value.shape is None:
            raise UnsupportedError(f"{self.node.label} reads {value.name!r} of unknown shape")
        return value.shape

    def constant(self, array: Array) -> Value:
        return self.builder.constant(array, f"{self.node.name}:constant")

    def ints(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def reshape(self, data: Value, *shape: int) -> Value:
        return self.add("Reshape", data, self.ints(*shape))

    def part(self, data: Value, first: int, end: int) -> Value:
        """Return a range of the last axis."""
        return self.add("Slice", data, self.ints(first), self.ints(end), self.ints(-1))


# ---------------------------------------------------------------------------------- norms


def _rms_norm(to: _Composite, data: Value, weight: Value) -> list[Value]:
    axis, rank = int(to.node.attrs.get("axis", -1)), len(to.shape(data))
    axes = [*range(axis - rank if axis >= 0 else axis, 0)]
    square = to.add("Mul", data, data)
    if to.builder.opset < _AXES_AS_INPUT:
        mean = to.add("ReduceMean", square, axes=axes)
    else:
        mean = to.add("ReduceMean", square, to.ints(*axes))
    epsilon = to.constant(np.array(to.node.attrs.get("epsilon", 1e-5), data.dtype))
    root = to.add("Sqrt", to.add("Add", mean, epsilon))
    return [to.add("Mul", to.add("Div", data, root), weight)]


def _skip_rms_norm(
    to: _Composite, data: Value, skip: Value, weight: Value, bias: Value | None = None
) -> list[Value]:
    """Return the RMS norm of a sum, statistics that nobody reads, and the sum."""
    if any(to.node.names[1:3]):
        raise UnsupportedError(f"{to.node.label} gives statistics, which vtaops does not compute")
    total = to.add("Add", data, skip)
    if bias is not None:
        total = to.add("Add", total, bias)
    return [*_rms_norm(to, total, weight), total, total, total]


# ----------------------------------------------------------------------- rotary positions


def _rotary(
    to: _Composite, data: Value, cos: Value, sin: Value, positions: Value | None = None
) -> list[Value]:
    """Rotate heads, (n, heads, tokens, each) or (n, tokens, heads x each)."""
    shape, half, caches = to.shape(data), to.shape(cos)[-1], [cos, sin]
    joined = len(shape) == 3
    if positions is not None:
        caches = [to.add("Gather", cache, positions) for cache in caches]
    caches = [to.add("Unsqueeze", cache, to.ints(2 if joined else 1)) for cache in caches]
    each = shape[-1]
    if joined:
        each //= to.node.attrs.get("num_heads", 0) or each // (2 * half)
        data = to.reshape(data, *shape[:2], -1, each)
    turned = _turned(to, to.part(data, 0, 2 * half) if each > 2 * half else data, caches, half)
    if each > 2 * half:  # the other channels are passed
        turned = to.add("Concat", turned, to.part(data, 2 * half, each), axis=-1)
    return [to.reshape(turned, *shape) if joined else turned]


def _turned(to: _Composite, data: Value, caches: Sequence[Value], half: int) -> Value:
    """Rotate halves of heads; adjacent channels are put into halves first."""
    swapped = {"perm": [0, 1, 2, 4, 3]}
    if to.node.attrs.get("interleaved"):
        pairs = to.add("Transpose", to.reshape(data, 0, 0, 0, half, 2), **swapped)
        data = to.reshape(pairs, 0, 0, 0, 2 * half)
    cosine, sine = (to.add("Concat", cache, cache, axis=-1) for cache in caches)
    back = to.add("Neg", to.part(data, half, 2 * half))
    crossed = to.add("Concat", back, to.part(data, 0, half), axis=-1)
    turned = to.add("Add", to.add("Mul", data, cosine), to.add("Mul", crossed, sine))
    if not to.node.attrs.get("interleaved"):
        return turned
    pairs = to.add("Transpose", to.reshape(turned, 0, 0, 0, 2, half), **swapped)
    return to.reshape(pairs, 0, 0, 0, 2 * half)


def _runtime_rotary(
    to: _Composite, data: Value, positions: Value, cos: Value, sin: Value
) -> list[Value]:
    """Read ONNX Runtime's rotation, whose positions may be given by the first."""
    attrs, tokens = to.node.attrs, to.shape(data)[-2]
    if attrs.get("scale", 1.0) != 1 or attrs.get("is_packed_batching") or tokens > _MOST_TOKENS:
        raise UnsupportedError(f"{to.node.label} scales or packs what it rotates")
    if len(to.shape(positions)) < 2:
        places = to.constant(np.arange(tokens)[None])
        positions = to.add("Add", to.reshape(positions, 1, 1), places)
    return _rotary(to, data, cos, sin, positions)


Rule = Callable[..., list[Value]]
"""Adds an operator by its arguments; returns its results."""

_RUNTIME = "com.microsoft"
_RULES: dict[tuple[str, str], Rule] = {
    ("", "RMSNormalization"): _rms_norm,
    ("", "RotaryEmbedding"): _rotary,
    (_RUNTIME, "SimplifiedLayerNormalization"): _rms_norm,
    (_RUNTIME, "SkipSimplifiedLayerNormalization"): _skip_rms_norm,
    (_RUNTIME, "RotaryEmbedding"): _runtime_rotary,
}


def place_in_domains(model: ModelProto) -> None:
    """Move a norm that ONNX Runtime has among ONNX's operators to its own, for ONNX's checker."""
    moved = [n for n in model.graph.node if n.op_type == "SimplifiedLayerNormalization"]
    for node in moved:
        node.domain = _RUNTIME
    if moved and all(entry.domain != _RUNTIME for entry in model.opset_import):
        model.opset_import.add(domain=_RUNTIME, version=1)


def is_composite(node: NodeProto) -> bool:
    """Return whether a node is read as several operators."""
    domain = _RUNTIME if node.op_type == "SimplifiedLayerNormalization" else node.domain
    return (domain.removeprefix("ai.onnx"), node.op_type) in _RULES


def add_composite(builder: NetworkBuilder, proto: NodeProto, node: OnnxNode) -> list[Value]:
    """Add the operators of a composite one; return its results."""
    rule = _RULES[proto.domain.removeprefix("ai.onnx"), proto.op_type]
    results = rule(_Composite(builder, node), *node.args)
    for value, name in zip(results, node.names, strict=False):
        if name:
            builder.rename(value, name)
    return results
