"""Operators that stand for several simple ones, as those: RMS norms and rotary positions.

Transformers are exported either way. Written as simple operators, both have one meaning to what
follows: the readers and quantisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    OPSET,
    ModelProto,
    NodeProto,
    attributes,
    first_line,
    make_node,
    refill,
    require,
    tensor_shapes,
)

Shape = tuple[int, ...]

_MOST_TOKENS = 1 << 20
"""Maximum number of tokens whose positions are listed."""

_AXES_AS_INPUT = 18
"""The opset from which ReduceMean reads its axes."""


def expand(model: ModelProto) -> None:
    """Replace the norms and rotations of a model in place, those of ONNX and of ONNX Runtime.

    Those that are not of float32, or ask for what cannot be said so, stay.

    Raises
    ------
    ModelError
        If one is malformed.
    """
    own = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not own or min(own) < OPSET or not any(map(_rule, model.graph.node)):
        return
    shapes, floats = _shapes(model)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        rule, expansion = _rule(node), _Expansion(model, node, shapes, min(own))
        with raising(ModelError, f"{node.op_type} {node.name!r} is malformed", *_MALFORMED):
            replaced = rule is not None and node.input[0] in floats and rule(expansion)
        nodes += expansion.named() if replaced else [node]
    refill(model.graph.node, nodes)


_MALFORMED = (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)


def _shapes(model: ModelProto) -> tuple[dict[str, Shape], set[str]]:
    """Return the shapes of all tensors, behind unknown operators too, and those of float32."""
    onnx = require("onnx")
    outline = onnx.ModelProto()
    outline.CopyFrom(model)
    refill(outline.graph.node, (new for node in model.graph.node for new in _outline(node)))
    with raising(ModelError, "not a valid ONNX model", Exception, told=first_line):
        graph = onnx.shape_inference.infer_shapes(outline, data_prop=True).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    found = {
        name: shape for name, shape in tensor_shapes(values).items() if min(shape, default=0) > 0
    }
    floats = {v.name for v in values if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    return found | constants, floats & found.keys()


def _outline(node: NodeProto) -> Iterable[NodeProto]:
    """Return what has results of the same shapes as a node: those of its first input."""
    if _rule(node) is None or not node.input:
        return [node]
    return [make_node("Identity", node.input[:1], [name]) for name in node.output if name]


@dataclass
class _Expansion:
    """The nodes that replace one."""

    model: ModelProto
    node: NodeProto
    shapes: dict[str, Shape]
    opset: int
    nodes: list[NodeProto] = field(default_factory=list)

    @property
    def attrs(self) -> dict[str, Any]:
        return attributes(self.node)

    @property
    def shape(self) -> Shape:
        """The shape of the first input."""
        return self.shapes[self.node.input[0]]

    def named(self) -> list[NodeProto]:
        """Return the nodes, the last of which has the name and the result of the one replaced."""
        self.nodes[-1].name, self.nodes[-1].output[:] = self.node.name, self.node.output[:1]
        return self.nodes

    def input(self, number: int) -> str:
        """Return the name of an input; none if it is left out."""
        return str([*self.node.input, *[""] * number][number])

    def output(self, number: int) -> str:
        """Return the name of an output; none if it is left out."""
        return str([*self.node.output, *[""] * number][number])

    def add(self, kind: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        """Add a node and return its result, which has a name of its own unless one is given."""
        result = name or f"{self.node.output[0]}/{len(self.nodes)}_{kind}"
        self.nodes.append(make_node(kind, inputs, [result], **attrs))
        return result

    def constant(self, value: Array) -> str:
        stored = self.model.graph.initializer
        name = f"{self.node.output[0]}/{len(stored)}_constant"
        stored.append(require("onnx").numpy_helper.from_array(value, name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def part(self, data: str, first: int, end: int) -> str:
        """Return a range of the last axis."""
        return self.add("Slice", data, self.ints(first), self.ints(end), self.ints(-1))


# ---------------------------------------------------------------------------------- norms


def _rms_norm(to: _Expansion) -> bool:
    axis, rank = to.attrs.get("axis", -1), len(to.shape)
    if any(to.node.output[1:]) or not -rank <= axis < rank:
        return False
    data, weight = to.node.input[:2]
    _normalize(to, data, weight, axis)
    return True


def _skip_rms_norm(to: _Expansion) -> bool:
    """Write the RMS norm of a sum, which is the last result; statistics are not written."""
    if to.output(1) or to.output(2):
        return False
    data, skip, weight = to.node.input[:3]
    bias, last = to.input(3), to.output(3)
    total = to.add("Add", data, skip, name="" if bias else last)
    if bias:
        total = to.add("Add", total, bias, name=last)
    _normalize(to, total, weight, -1)
    return True


def _normalize(to: _Expansion, data: str, weight: str, axis: int) -> None:
    rank = len(to.shape)
    axes = [*range(axis - rank if axis >= 0 else axis, 0)]
    square = to.add("Mul", data, data)
    if to.opset < _AXES_AS_INPUT:
        mean = to.add("ReduceMean", square, axes=axes)
    else:
        mean = to.add("ReduceMean", square, to.ints(*axes))
    epsilon = to.constant(np.array(to.attrs.get("epsilon", 1e-5), np.float32))
    root = to.add("Sqrt", to.add("Add", mean, epsilon))
    to.add("Mul", to.add("Div", data, root), weight)


# ----------------------------------------------------------------------- rotary positions


def _rotary(to: _Expansion) -> bool:
    """Write a rotation of heads, (n, heads, tokens, each) or (n, tokens, heads x each)."""
    data, *caches, positions = (to.input(number) for number in range(4))
    return _rotate(to, data, caches, positions)


def _runtime_rotary(to: _Expansion) -> bool:
    """Write ONNX Runtime's rotation, whose positions may be given by the first."""
    data, positions, *caches = to.node.input[:4]
    plain = to.attrs.get("scale", 1.0) == 1 and not to.attrs.get("is_packed_batching")
    at, tokens = to.shapes.get(positions), to.shape[-2]
    if not plain or at is None or tokens > _MOST_TOKENS:
        return False
    if len(at) < 2:
        rows = to.add("Reshape", positions, to.ints(1, 1))
        positions = to.add("Add", rows, to.constant(np.arange(tokens)[None]))
    return _rotate(to, data, caches, positions)


def _rotate(to: _Expansion, data: str, caches: Sequence[str], positions: str) -> bool:
    if caches[0] not in to.shapes:
        return False
    half, each, joined = to.shapes[caches[0]][-1], to.shape[-1], len(to.shape) == 3
    if positions:
        caches = [to.add("Gather", cache, positions) for cache in caches]
    caches = [to.add("Unsqueeze", cache, to.ints(2 if joined else 1)) for cache in caches]
    if joined:
        each //= to.attrs.get("num_heads", 0) or each // (2 * half)
        data = to.add("Reshape", data, to.ints(*to.shape[:2], -1, each))
    result = _turn(to, data, caches, half, each)
    if joined:
        to.add("Reshape", result, to.ints(*to.shape))
    return True


def _turn(to: _Expansion, data: str, caches: Sequence[str], half: int, each: int) -> str:
    """Rotate the first channels of heads, and pass the others."""
    turn = _turn_pairs if to.attrs.get("interleaved") else _turn_halves
    if each == 2 * half:
        return turn(to, data, caches, half)
    result = turn(to, to.part(data, 0, 2 * half), caches, half)
    return to.add("Concat", result, to.part(data, 2 * half, each), axis=-1)


def _turn_halves(to: _Expansion, data: str, caches: Sequence[str], half: int) -> str:
    cosine, sine = (to.add("Concat", cache, cache, axis=-1) for cache in caches)
    back = to.add("Neg", to.part(data, half, 2 * half))
    turned = to.add("Concat", back, to.part(data, 0, half), axis=-1)
    return to.add("Add", to.add("Mul", data, cosine), to.add("Mul", turned, sine))


def _turn_pairs(to: _Expansion, data: str, caches: Sequence[str], half: int) -> str:
    """Rotate adjacent channels."""
    last, pairs = to.ints(-1), to.add("Reshape", data, to.ints(0, 0, 0, half, 2))
    even, odd = (to.add("Squeeze", to.part(pairs, at, at + 1), last) for at in (0, 1))
    (a, b), (c, d) = ([to.add("Mul", part, turn) for turn in caches] for part in (even, odd))
    found = to.add("Sub", a, d), to.add("Add", b, c)
    joined = to.add("Concat", *(to.add("Unsqueeze", each, last) for each in found), axis=-1)
    return to.add("Reshape", joined, to.ints(0, 0, 0, 2 * half))


Rule = Callable[[_Expansion], bool]
"""Adds the nodes that replace one, its result last; returns whether it could."""


def _rule(node: NodeProto) -> Rule | None:
    return _RULES.get((node.domain.replace("ai.onnx", ""), node.op_type))


_RUNTIME = "com.microsoft"
_RULES: dict[tuple[str, str], Rule] = {
    ("", "RMSNormalization"): _rms_norm,
    ("", "SimplifiedLayerNormalization"): _rms_norm,  # where ONNX Runtime registers it
    ("", "RotaryEmbedding"): _rotary,
    (_RUNTIME, "SkipSimplifiedLayerNormalization"): _skip_rms_norm,
    (_RUNTIME, "RotaryEmbedding"): _runtime_rotary,
}
