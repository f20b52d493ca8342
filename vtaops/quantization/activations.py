"""Functions of one tensor, such as hard-swish, that files spell out in several nodes.

Quantised as a whole: rounded once on the way in and once on the way out, with no pair between the
nodes. The importer makes a table of 256 values of them. What VTA computes itself (ReLU, clip,
factors and terms behind convolutions) is none of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtaops.quantization.onnx_files import consumers, initializers

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, NodeProto

    Array = np.ndarray[Any, Any]

LINEAR = frozenset({"Add", "Sub", "Mul", "Div", "Relu", "Clip", "LeakyRelu"})
"""Elementwise operators that alone make no function of this kind."""

CURVED = frozenset({"HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Exp", "Erf", "Softplus"})


@dataclass(frozen=True)
class Function:
    """A function of one tensor: what it reads, what it makes, and its nodes in order, by name."""

    root: str
    end: str
    nodes: tuple[str, ...]


def functions(model: ModelProto) -> list[Function]:
    """Return such functions.

    A function ends where something else reads its result. It begins at the farthest tensor of
    which that is a function, as long as nobody else reads what lies between.
    """
    constants, readers = initializers(model), consumers(model)
    outputs = {value.name for value in model.graph.output}
    scalars = {name for name, value in constants.items() if _is_factor(value)}
    writers: dict[str, NodeProto] = {}
    cuts: dict[str, list[str]] = {}
    for node in model.graph.node:
        if node.op_type not in LINEAR | CURVED:
            continue
        tensors = [name for name in dict.fromkeys(node.input) if name and name not in scalars]
        before = _common([cuts.get(name, [name]) for name in tensors])
        if before and not any(name in constants for name in tensors):
            writers[node.output[0]] = node
            cuts[node.output[0]] = [node.output[0], *before]
    order = {node.name: index for index, node in enumerate(model.graph.node)}
    found: list[Function] = []
    taken: set[str] = set()
    for node in reversed(model.graph.node):
        name = node.output[0] if node.output else ""
        if name not in cuts or node.name in taken:
            continue
        best: list[NodeProto] = []
        begin = name
        for root in cuts[name][1:]:
            nodes = _between(root, name, writers, scalars)
            inside = {each.name for each in nodes}
            hidden = [each.output[0] for each in nodes if each is not node]
            if all(
                each not in outputs and all(r.name in inside for r in readers[each])
                for each in hidden
            ):
                best, begin = nodes, root
        if _is_curved(best, scalars):
            names = sorted((each.name for each in best), key=order.__getitem__)
            found.append(Function(begin, name, tuple(names)))
            taken.update(names)
    return found


def _is_factor(value: Array) -> bool:
    """Whether a constant is one number, or one for each channel of images."""
    return value.size == 1 or (value.ndim in (3, 4) and value.size == value.shape[-3])


def _common(lists: list[list[str]]) -> list[str]:
    """Return the tensors of which all are functions, the nearest first."""
    if not lists:
        return []
    first, *others = lists
    for index, name in enumerate(first):
        if all(name in other for other in others):
            return first[index:]
    return []


def _between(
    root: str, end: str, writers: dict[str, NodeProto], scalars: set[str]
) -> list[NodeProto]:
    """Return the nodes that make `end` of `root`."""
    found: dict[str, NodeProto] = {}
    stack = [end]
    while stack:
        name = stack.pop()
        if name != root and name not in found and name not in scalars and name:
            found[name] = writers[name]
            stack.extend(writers[name].input)
    return list(found.values())


def _is_curved(nodes: list[NodeProto], scalars: set[str]) -> bool:
    """Whether something in it is neither linear nor a bound: also a product with itself."""
    return any(
        node.op_type in CURVED
        or (node.op_type in ("Mul", "Div") and not scalars.intersection(node.input))
        for node in nodes
    )
