"""Attention of several sequences, as patches and windows have it: each sequence by itself.

Between the reshape that makes heads of rows and the one that joins them again, a network computes
on all sequences alike. Matrices of other sequences are other pixels, those of other heads other
channels; products take the latter. So the rows of each sequence are cut out, and joined behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Literal

from vtaops.graph import Graph, GraphOperator, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.network.lower import is_apart, reason_for_host
from vtaops.network.propagation import by_channel
from vtaops.network.target import Target

MOST_SEQUENCES = 16
"""Sequences at most: each takes the operators of one attention."""
_WITHIN = (ops.Reshape, ops.Transpose, ops.Slice, ops.Requantize, ops.LookupTable, ops.RowSoftmax)


Role = Literal["entry", "within", "exit"]
"""What a node is to attention: it makes heads of rows, computes on heads, or makes rows of them."""
Part = tuple[Role, int]
"""The role of a node, and the number of sequences."""


def sequences_apart(graph: Graph, target: Target) -> Graph:
    """Return a graph whose attention is that of single sequences, where VTA has no other."""
    parts = dict[Node, Part]()
    for node in graph.nodes:
        if isinstance(node.op, ops.Matmul) and node not in parts:
            found = _attention(node, graph)
            if any(reason_for_host(n, graph, target) or is_apart(n, graph, target) for n in found):
                parts |= found

    def put(result: Graph, node: Node) -> None:
        if node in parts:
            _each(node, parts[node], result)
        else:
            result.clone(node)

    return graph.transform(put) if parts else graph


def _batch(tensor: Tensor) -> tuple[int, int]:
    """Return the first axis of more than one element, and how many it has."""
    return next(((a, n) for a, n in enumerate(tensor.shape) if n > 1), (0, 1))


def _attention(start: Node, graph: Graph) -> dict[Node, Part]:
    """Return the nodes between rows around a product of several sequences; none if others read."""
    count = _batch(start.outputs[0])[1]
    found, left = dict[Node, Part](), [start]
    if not 1 < count <= MOST_SEQUENCES or len(start.outputs[0].shape) < 4:
        return {}
    while left:
        node = left.pop()
        if node in found:
            continue
        role = _role(node, count)
        beside = None if role is None else _beside(node, role, graph)
        if role is None or beside is None:
            return {}
        found[node] = role, count
        left += beside
    return found if {"entry", "exit"} <= {role for role, _ in found.values()} else {}


def _beside(node: Node, role: Role, graph: Graph) -> list[Node] | None:
    """Return the nodes of attention beside one of it; None if the world is beside it."""
    makers = [maker for maker in map(graph.maker, node.inputs) if maker]
    if role == "exit":
        return makers
    if node.outputs[0] in graph.outputs or (role == "within" and len(makers) < len(node.inputs)):
        return None
    return graph.consumers(node.outputs[0]) + makers * (role == "within")


def _role(node: Node, count: int) -> Role | None:
    """Return the role of a node in attention of so many sequences; None if it is no part of it."""
    if isinstance(node.op, ops.Reshape):
        (given,), (made,) = node.inputs, node.outputs
        if _are_rows(made, given, count):
            return "exit"
        if _are_rows(given, made, count):
            return "entry"
    return "within" if _is_within(node, count) else None


def _are_rows(rows: Tensor, heads: Tensor, count: int) -> bool:
    """Return whether a reshape joins the heads of so many sequences to rows, or undoes that."""
    if len(rows.shape) > 3 or len(heads.shape) < 4:
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


def _each(node: Node, part: Part, result: Graph) -> None:
    """Add a node for each sequence; entries cut rows, and exits join them."""
    parts = [_part(node, number, part, result) for number in range(part[1])]
    if part[0] == "exit":
        (tensor,) = node.outputs
        rows = _add(result, node, "rows", ops.Concat(1), parts)
        result.add(ops.Reshape(tensor.shape), rows, name=node.name, scale=tensor.scale)


def _part(node: Node, number: int, part: Part, result: Graph) -> Tensor:
    (tensor,), op, (role, count) = node.outputs, node.op, part
    if role == "entry":
        return _add(result, node, number, _single(tensor), [_rows(node, number, count, result)])
    given = [result.tensors[f"{t.name}:{number}"] for t in node.inputs]
    if role == "exit":
        op = ops.Reshape((1, prod(tensor.shape[:-1]) // count, tensor.shape[-1]))
    elif isinstance(op, ops.Reshape):
        op = _single(tensor)
    return _add(result, node, number, op, given)


def _single(tensor: Tensor) -> ops.Reshape:
    """Return the reshape to the shape of a tensor for one sequence."""
    axis, _ = _batch(tensor)
    return ops.Reshape((*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :]))


def _rows(node: Node, number: int, count: int, result: Graph) -> Tensor:
    """Return the rows of a sequence, of what an entry reads."""
    tensor, name = result.tensors[node.inputs[0].name], f"{node.name}:all"
    rows = prod(tensor.shape[:-1])
    whole = result.tensors.get(name) or _add(
        result, node, "all", ops.Reshape((1, rows, tensor.shape[-1])), [tensor]
    )
    each = rows // count
    cut = ops.Slice(1, number * each, (number + 1) * each)
    return _add(result, node, f"rows{number}", cut, [whole])


def _add(
    result: Graph, node: Node, part: object, op: GraphOperator, given: Iterable[Tensor]
) -> Tensor:
    return result.add(op, *given, name=f"{node.name}:{part}", scale=node.outputs[0].scale)
