"""Functions of one tensor, such as hard-swish and RMS norms, that files express as several nodes.

They are quantised as a whole: rounded once at the input and once at the output, without pairs
between the nodes. The importer converts them to a table of 256 values. Operators that VTA computes
itself (ReLU, clip, factors and terms after convolutions) are excluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vtaops.frontends import read_model, row_norms
from vtaops.graph.onnx_files import Connections, ModelProto, NodeProto, needed

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
    """Return the functions of one tensor in a model, those that are not linear."""
    scalars = _factors(Connections(model))
    curved = {node.name for node in model.graph.node if _is_curved(node, scalars)}
    return [f for f in elementwise(model) if not curved.isdisjoint(f.nodes)]


def elementwise(model: ModelProto) -> list[Function]:
    """Return the functions of one tensor in a model, linear ones and bounds included.

    A function ends where something else reads its result. It begins at the farthest tensor of which
    it is a function, provided that nothing else reads the tensors in between.
    """
    tensors = Connections(model)
    scalars, places = _factors(tensors), {name: i for i, name in enumerate(tensors.writers)}
    result: list[Function] = []
    seen: set[str] = set()
    for end in reversed(places):
        if end not in seen:
            root, inner = _farthest(end, tensors, scalars, places)
            seen |= inner  # what lies in between begins at the same root, and computes less
            nodes = (node.name for node in model.graph.node if not inner.isdisjoint(node.output))
            if inner:
                result.append(Function(root, end, tuple(nodes)))
    return result


def norms(model: ModelProto) -> list[Function]:
    """Return the norms of rows that a model expresses as several nodes."""
    if all(node.op_type != "ReduceMean" for node in model.graph.node):
        return []
    tensors, result = Connections(model), []
    for root, end in row_norms(read_model(model)):
        nodes = needed([n for n in model.graph.node if root.name not in n.output], [end.name])
        inner = {name for node in nodes for name in node.output}
        if _is_closed(inner - {end.name}, inner, tensors):
            result.append(Function(root.name, end.name, tuple(node.name for node in nodes)))
    return result


def _factors(tensors: Connections) -> set[str]:
    """Return the constants that are factors or terms: one number, or one per channel of images."""
    return {
        name
        for name, value in tensors.constants.items()
        if value.size == 1 or (value.ndim in (3, 4) and value.size == value.shape[-3])
    }


def _farthest(
    end: str, tensors: Connections, scalars: set[str], places: Mapping[str, int]
) -> tuple[str, set[str]]:
    """Return where a function begins, and the tensors from there to its end, which is included.

    Tensors that it is computed of are taken back, the last one first, to what their nodes read;
    each time that one is left, the function may begin there.
    """
    heads, inner = {end}, set[str]()
    root, found = end, set[str]()
    while True:
        name = max(heads, key=lambda head: places.get(head, -1))
        node = tensors.writers.get(name)
        if node is None or node.op_type not in LINEAR | CURVED:
            return root, found
        inner.add(name)
        read = {n for n in node.input if n} - scalars
        if not _is_closed({name} - {end}, inner, tensors) or read & tensors.constants.keys():
            return root, found
        heads = heads - {name} | read
        if len(heads) == 1:
            (root,), found = heads, {*inner}


def _is_closed(names: set[str], inner: set[str], tensors: Connections) -> bool:
    """Return whether only what writes inner tensors reads these, none of which is an output."""
    readers = (reader for name in names for reader in tensors.readers[name])
    return names.isdisjoint(tensors.outputs) and all(r.output[0] in inner for r in readers)


def _is_curved(node: NodeProto, scalars: set[str]) -> bool:
    """Return whether a node is neither linear nor a bound; a product of tensors is not linear."""
    product = node.op_type in ("Mul", "Div") and scalars.isdisjoint(node.input)
    return node.op_type in CURVED or product
