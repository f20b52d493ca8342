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
from vtaops.network.storage import by_channel
from vtaops.network.target import Target

MOST_SEQUENCES = 16
"""Sequences at most: each takes the operators of one attention."""
_WITHIN = (ops.Reshape, ops.Transpose, ops.Slice, ops.Requantize, ops.LookupTable, ops.RowSoftmax)


@dataclass
class _Region:
    """The nodes of one attention: `entries` make heads of rows, `exits` join them."""

    count: int
    inside: set[str] = field(default_factory=set)
    entries: set[str] = field(default_factory=set)
    exits: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        return self.inside | self.entries | self.exits


def sequences_apart(graph: Graph, target: Target) -> Graph:
    """Return a graph whose attention is that of single sequences, where VTA has no other."""
    regions: list[_Region] = []
    for node in graph.nodes:
        known = any(node.name in region.names for region in regions)
        if isinstance(node.op, ops.Matmul) and not known:
            found = _region(node, graph)
            if found is not None and _is_needed(found, graph, target):
                regions.append(found)

    def put(result: Graph, node: Node) -> None:
        region = next((each for each in regions if node.name in each.names), None)
        if region is None:
            result.add_like(node)
        else:
            _each(node, region, result)

    return graph.rewritten(put) if regions else graph


def _is_needed(region: _Region, graph: Graph, target: Target) -> bool:
    nodes = [node for node in graph.nodes if node.name in region.names]
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
        if node.name in region.names:
            continue
        kind = _kind(node, count)
        if kind is None or (node.outputs[0] in graph.outputs and kind != "exits"):
            return None
        getattr(region, kind).add(node.name)
        makers = [graph.maker(tensor) for tensor in node.inputs] if kind != "entries" else []
        readers = graph.consumers(node.outputs[0]) if kind != "exits" else []
        if None in makers:
            return None
        left += [*filter(None, makers), *readers]
    return region if region.entries and region.exits else None


def _kind(node: Node, count: int) -> str | None:
    """Return what a node is of the attention of so many sequences; None if it is no part."""
    (result,), given = node.outputs, node.inputs
    known = [_batch(tensor)[1] == count for tensor in (*given, result)]
    if isinstance(node.op, ops.Reshape) and {len(given[0].shape), len(result.shape)} & {2, 3}:
        rows, heads = sorted((given[0], result), key=lambda tensor: len(tensor.shape))
        if len(heads.shape) < 4 or _batch(heads)[1] != count or rows.elements % count:
            return None
        whole = prod(rows.shape[:-1]) % count == 0 and rows.shape[0] % count == 0
        return ("entries" if rows is given[0] else "exits") if whole else None
    if isinstance(node.op, ops.Matmul):
        return "inside" if all(known) else None
    if not isinstance(node.op, _WITHIN) or not all(known) or by_channel(node.op):
        return None
    return "inside" if _keeps_batch(node, count) else None


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
