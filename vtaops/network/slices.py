"""Slices move before views and functions of one value, to the product whose results they divide.

Queries, keys and values are often slices of one product that has been reshaped and transposed
first, so that they are divided on an axis of images. Of the product's own result, they are slices
of channels, which are free.
"""

from __future__ import annotations

import math
from dataclasses import replace

from vtaops.graph import Graph, GraphOperator, Node
from vtaops.graph import operators as ops
from vtaops.network.lower import reason_for_host
from vtaops.network.storage import by_channel
from vtaops.network.target import Target

Range = tuple[int, int, int]
"""An axis, its first element, and the one behind its last."""


Path = list[Node]
"""From a slice of the result of a product, what follows, as for the whole, in order."""


def slices_first(graph: Graph, target: Target) -> Graph:
    """Return a graph whose slices divide products, where VTA does not execute them otherwise."""
    paths = _paths(graph, target)

    def put(result: Graph, node: Node) -> None:
        if node.name in paths:
            _follow(paths[node.name], node.name, result)
        else:
            result.clone(node)

    return graph.transform(put) if paths else graph


def _paths(graph: Graph, target: Target) -> dict[str, Path]:
    """Return the ways to slices that VTA does not execute as they are, by their names."""
    found = [(node, _path(node, graph)) for node in graph.nodes if isinstance(node.op, ops.Slice)]
    return {n.name: path for n, path in found if path and reason_for_host(n, graph, target)}


def _follow(path: Path, name: str, result: Graph) -> None:
    """Add a slice of the product and what follows, whose last result has a name."""
    tensor = result.tensors[path[0].inputs[0].name]
    for number, node in enumerate(path):
        made = name if node is path[-1] else f"{name}:part{number or ''}"
        tensor = result.add(node.op, tensor, name=made, scale=node.outputs[0].scale)


def _path(node: Node, graph: Graph) -> Path | None:
    """Return the way from a product to a slice; None if there is none, or only the slice."""
    assert isinstance(node.op, ops.Slice)
    tensor, found = node.inputs[0], list[Node]()
    part: Range | None = (node.op.axis % len(tensor.shape), node.op.start, node.op.stop)
    while part is not None and node.op.step == 1 and (maker := graph.maker(tensor)) is not None:
        if isinstance(maker.op, ops.Dense):
            axis, first, behind = part
            product = found and axis == len(tensor.shape) - 1
            op, root = ops.Slice(axis, first, behind), (tensor,)
            return [Node(node.name, op, root, root), *found[::-1]] if product else None
        moved = _before(maker, part)
        if moved is None:
            return None
        found.append(replace(maker, op=_of_part(maker, part)))
        tensor, part = maker.inputs[0], moved
    return None


def _before(node: Node, part: Range) -> Range | None:
    """Return the part of a node's input that makes a part of its result; None if none does."""
    axis, first, behind = part
    if isinstance(node.op, ops.Transpose):
        return node.op.axes[axis], first, behind
    if isinstance(node.op, ops.Requantize | ops.LookupTable):
        return None if by_channel(node.op) else part
    if not isinstance(node.op, ops.Reshape):
        return None
    before, shape = node.inputs[0].shape, node.outputs[0].shape
    outside, each = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    for at, extent in enumerate(before):
        inner = math.prod(before[at + 1 :])
        whole = (math.prod(before[:at]), extent * inner) == (outside, shape[axis] * each)
        if whole and not first * each % inner and not behind * each % inner:
            return at, first * each // inner, behind * each // inner
    return None


def _of_part(node: Node, part: Range) -> GraphOperator:
    """Return the operator of a node that makes a part of its result."""
    if not isinstance(node.op, ops.Reshape):
        return node.op
    shape, (axis, first, behind) = node.outputs[0].shape, part
    return ops.Reshape((*shape[:axis], behind - first, *shape[axis + 1 :]))
