"""Functions of one tensor, such as hard-swish, that files express as several nodes.

They are quantised as a whole: rounded once at the input and once at the output, without pairs
between the nodes. The importer converts them to a table of 256 values. Operators that VTA computes
itself (ReLU, clip, factors and terms after convolutions) are excluded.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import Connections, ModelProto, NodeProto

LINEAR = frozenset({"Add", "Sub", "Mul", "Div", "Relu", "Clip", "LeakyRelu"})
"""Elementwise operators that do not make such a function by themselves."""

CURVED = frozenset({"HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Exp", "Erf", "Softplus"})


@dataclass(frozen=True)
class Function:
    """A function of one tensor: its argument, its result, and its nodes in order, by name."""

    root: str
    end: str
    nodes: tuple[str, ...]


def functions(model: ModelProto) -> list[Function]:
    """Return the functions of one tensor in a model.

    A function ends where something else reads its result. It begins at the farthest tensor of which
    it is a function, provided that nothing else reads the tensors in between.
    """
    tensors = Connections(model)
    scalars = {name for name, value in tensors.constants.items() if _is_factor(value)}
    arguments = _arguments(model, tensors, scalars)
    found: list[Function] = []
    taken: set[str] = set()
    for node in reversed(model.graph.node):
        end = node.output[0] if node.output else ""
        if end not in arguments or node.name in taken:
            continue
        root, inner = end, set[str]()
        for candidate in arguments[end][1:]:
            between = _between(candidate, end, tensors.writers, scalars)
            if _is_closed(between, end, tensors):
                root, inner = candidate, between
        nodes = [tensors.writers[name] for name in inner]
        if _is_curved(nodes, scalars):
            names = {each.name for each in nodes}
            ordered = tuple(each.name for each in model.graph.node if each.name in names)
            found.append(Function(root, end, ordered))
            taken |= names
    return found


def _arguments(model: ModelProto, tensors: Connections, scalars: set[str]) -> dict[str, list[str]]:
    """Return, for each result of an elementwise node, the tensors of which it is a function.

    The nearest is first: the result itself.
    """
    found: dict[str, list[str]] = {}
    for node in model.graph.node:
        if node.op_type in LINEAR | CURVED:
            read = [name for name in dict.fromkeys(node.input) if name and name not in scalars]
            before = _common([found.get(name, [name]) for name in read])
            if before and tensors.constants.keys().isdisjoint(read):
                found[node.output[0]] = [node.output[0], *before]
    return found


def _is_factor(value: Array) -> bool:
    """Return whether a constant is one number, or one per channel of images."""
    return value.size == 1 or (value.ndim in (3, 4) and value.size == value.shape[-3])


def _common(lists: list[list[str]]) -> list[str]:
    """Return the tensors that all lists have in common, nearest first."""
    first, *others = lists or [[]]
    for index, name in enumerate(first):
        if all(name in other for other in others):
            return first[index:]
    return []


def _between(root: str, end: str, writers: dict[str, NodeProto], scalars: set[str]) -> set[str]:
    """Return the tensors computed between `root` and `end`, including `end`."""
    found: set[str] = set()
    stack = [end]
    while stack:
        name = stack.pop()
        if name and name != root and name not in found | scalars:
            found.add(name)
            stack.extend(writers[name].input)
    return found


def _is_closed(names: set[str], end: str, tensors: Connections) -> bool:
    """Return whether only the nodes of these tensors read them; `end` may have other readers."""
    inside = {tensors.writers[name].name for name in names}
    return all(
        name not in tensors.outputs and all(r.name in inside for r in tensors.readers[name])
        for name in names - {end}
    )


def _is_curved(nodes: list[NodeProto], scalars: set[str]) -> bool:
    """Return whether a node is neither linear nor a bound; a product of tensors is not linear."""
    return any(
        node.op_type in CURVED
        or (node.op_type in ("Mul", "Div") and not scalars.intersection(node.input))
        for node in nodes
    )
