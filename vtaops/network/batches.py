"""Attention of several sequences, as patches and windows have it: each sequence by itself.

Between the reshape that makes heads of rows and the one that joins them again, a network computes
on all sequences alike. Matrices of other sequences are other pixels, those of other heads other
channels; products take the latter. So the rows of each sequence are cut out, and joined behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from vtaops.graph import Graph, GraphOperator, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.network.lower import is_apart, reason_for_host
from vtaops.network.propagation import by_channel
from vtaops.network.target import Target

MOST_SEQUENCES = 16
"""Sequences at most: each takes the operators of one attention."""
_WITHIN = (ops.Reshape, ops.Transpose, ops.Slice, ops.Requantize, ops.LookupTable, ops.RowSoftmax)


@dataclass
class _Region:
    """The nodes of one attention: `entries` make heads of rows, `exits` join them."""

    count: int
    nodes: dict[str, Node] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)
    exits: set[str] = field(default_factory=set)


def sequences_apart(graph: Graph, target: Target) -> Graph:
    """Return a graph whose attention is that of single sequences, where VTA has no other."""
    regions = dict[str, _Region]()
    for node in graph.nodes:
        if isinstance(node.op, ops.Matmul) and node.name not in regions:
            found = _region(node, graph)
            if found is not None and _is_needed(found, graph, target):
                regions |= dict.fromkeys(found.nodes, found)

    def put(result: Graph, node: Node) -> None:
        if node.name in regions:
            _each(node, regions[node.name], result)
        else:
            result.clone(node)

    return graph.transform(put) if regions else graph


def _is_needed(region: _Region, graph: Graph, target: Target) -> bool:
    nodes = region.nodes.values()
    return any(reason_for_host(n, graph, target) or is_apart(n, graph, target) for n in nodes)


def _batch(tensor: Tensor) -> tuple[int, int]:
    """Return the first axis of more than one element, and how many it has."""
    return next(((a, n) for a, n in enumerate(tensor.shape) if n > 1), (0, 1))


def _region(start: Node, graph: Graph) -> _Region | None:
    """Return the nodes between rows around a product of several sequences; None if others read."""
    count = _batch(start.outputs[0])[1]
    if not 1 < count <= MOST_SEQUENCES or len(start.outputs[0].shape) < 4:
        return None
    region, left = _Region(count), [start]
    while left:
        node = left.pop()
        if node.name in region.nodes:
            continue
        region.nodes[node.name] = node
        beside = _beside(node, region, graph)
        if beside is None:
            return None
        left += beside
    return region if region.entries and region.exits else None


def _beside(node: Node, region: _Region, graph: Graph) -> list[Node] | None:
    """Return the nodes beside one of a region; None if it is no part of attention."""
    if _joins_rows(node, region.count):
        region.exits.add(node.name)
        return [*filter(None, [graph.maker(node.inputs[0])])]
    if node.outputs[0] in graph.outputs:
        return None
    readers = graph.consumers(node.outputs[0])
    if _joins_rows(node, region.count, back=True):
        region.entries.add(node.name)
        return readers
    makers = [maker for maker in map(graph.maker, node.inputs) if maker is not None]
    if len(makers) < len(node.inputs) or not _is_within(node, region.count):
        return None
    return makers + readers


def _joins_rows(node: Node, count: int, *, back: bool = False) -> bool:
    """Return whether a reshape makes rows of the heads of so many sequences, or heads of rows."""
    heads, rows = (node.inputs + node.outputs)[:: -1 if back else 1][:2]
    if not isinstance(node.op, ops.Reshape) or len(rows.shape) > 3 or len(heads.shape) < 4:
        return False
    return _batch(heads)[1] == count and rows.shape[0] % count == 0


def _is_within(node: Node, count: int) -> bool:
    """Return whether a node computes on the heads of so many sequences alike."""
    tensors = (*node.inputs, *node.outputs)
    if any(_batch(tensor)[1] != count for tensor in tensors):
        return False
    if isinstance(node.op, ops.Matmul):
        return True
    alone = isinstance(node.op, _WITHIN) and len(node.inputs) == 1  # a mask belongs to no sequence
    return alone and not by_channel(node.op) and _keeps_batch(node, count)


def _keeps_batch(node: Node, count: int) -> bool:
    """Return whether a node computes on each sequence by itself."""
    axis, op = _batch(node.inputs[0])[0], node.op
    if isinstance(op, ops.Transpose):
        return op.axes[_batch(node.outputs[0])[0]] == axis
    if isinstance(op, ops.Slice):
        return op.axis % len(node.inputs[0].shape) != axis
    if isinstance(op, ops.RowSoftmax) and op.mask is not None:
        return prod(node.inputs[0].shape[:-1]) // count % len(op.mask) == 0
    return True


def _each(node: Node, region: _Region, result: Graph) -> None:
    """Add a node for each sequence; entries cut rows, and exits join them."""
    parts = [_part(node, number, region, result) for number in range(region.count)]
    if node.name in region.exits:
        (tensor,) = node.outputs
        rows = _add(result, node, "rows", ops.Concat(1), parts)
        result.add(ops.Reshape(tensor.shape), rows, name=node.name, scale=tensor.scale)


def _part(node: Node, number: int, region: _Region, result: Graph) -> Tensor:
    (tensor,), op = node.outputs, node.op
    if node.name in region.entries:
        return _add(result, node, number, _single(tensor), [_rows(node, number, region, result)])
    given = [result.tensors[f"{t.name}:{number}"] for t in node.inputs]
    if node.name in region.exits:
        op = ops.Reshape((1, prod(tensor.shape[:-1]) // region.count, tensor.shape[-1]))
    elif isinstance(op, ops.Reshape):
        op = _single(tensor)
    return _add(result, node, number, op, given)


def _single(tensor: Tensor) -> ops.Reshape:
    """Return the reshape to the shape of a tensor for one sequence."""
    axis, _ = _batch(tensor)
    return ops.Reshape((*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :]))


def _rows(node: Node, number: int, region: _Region, result: Graph) -> Tensor:
    """Return the rows of a sequence, of what an entry reads."""
    tensor, name = result.tensors[node.inputs[0].name], f"{node.name}:all"
    count = prod(tensor.shape[:-1])
    whole = result.tensors.get(name) or _add(
        result, node, "all", ops.Reshape((1, count, tensor.shape[-1])), [tensor]
    )
    each = count // region.count
    cut = ops.Slice(1, number * each, (number + 1) * each)
    return _add(result, node, f"rows{number}", cut, [whole])


def _add(
    result: Graph, node: Node, part: object, op: GraphOperator, given: Iterable[Tensor]
) -> Tensor:
    return result.add(op, *given, name=f"{node.name}:{part}", scale=node.outputs[0].scale)
