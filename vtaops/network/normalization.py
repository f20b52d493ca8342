"""Layer norms and softmax between integers become integers, within a step of those in floats."""

from __future__ import annotations

from contextlib import suppress

from vtaops.base.errors import ShapeError
from vtaops.graph import Graph, GraphOperator, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.network.lower import reason_for_host
from vtaops.network.target import Target

NOTE = "on integers: within a step of the float function"

Found = dict[str, tuple[GraphOperator, Node, Node]]
"""Operators by the name of their result, with the nodes in floats that they replace."""


def norms_on_integers(graph: Graph, target: Target) -> tuple[Graph, list[str]]:
    """Return a graph whose norms and softmax VTA executes, where it can, and their names."""
    found: Found = {n.name: norm for n in graph.nodes if (norm := _norm(n, graph))}
    while found:
        legal = _replaced(graph, found)
        own = [node for node in legal.nodes if node.name in found]
        kept = {node.name for node in own if not reason_for_host(node, legal, target)}
        if len(kept) == len(found):
            return legal, [*found]
        found = {name: found[name] for name in kept}
    return graph, []


def _norm(node: Node, graph: Graph) -> tuple[GraphOperator, Node, Node] | None:
    """Return a norm that ends in a quantisation, with the nodes before it; None if none does."""
    norm = graph.maker(node.inputs[0]) if isinstance(node.op, ops.Quantize) else None
    if norm is None or not isinstance(norm.op, ops.LayerNorm | ops.Softmax):
        return None
    before = graph.maker(norm.inputs[0])
    if before is None or not isinstance(before.op, ops.Dequantize):
        return None
    if graph.consumers(norm.outputs[0]) != [node] or norm.outputs[0] in graph.outputs:
        return None
    made = _on_integers(norm.op, before.inputs[0], node.outputs[0])
    return (made, norm, before) if made else None


def _on_integers(op: GraphOperator, given: Tensor, result: Tensor) -> GraphOperator | None:
    """Return an operator on integers between two grids; None if its numbers are out of range."""
    if isinstance(op, ops.LayerNorm):
        return ops.RowNorm.of(op.weight, op.bias, op.epsilon, given, result)
    with suppress(ShapeError):
        return ops.RowSoftmax.of(given, result)
    return None


def _replaced(graph: Graph, found: Found) -> Graph:
    """Return a graph with norms on integers; floats that nothing else reads are left out."""
    gone = {norm.name for _, norm, _ in found.values()}
    for _, _, before in found.values():
        tensor = before.outputs[0]
        readers = {reader.name for reader in graph.consumers(tensor)}
        if readers <= gone and tensor not in graph.outputs:
            gone.add(before.name)

    def put(result: Graph, node: Node) -> None:
        if node.name in found:
            op, _, before = found[node.name]
            result.add_like(node, op, [before.inputs[0].name])
        elif node.name not in gone:
            result.add_like(node)

    return graph.rewritten(put)
