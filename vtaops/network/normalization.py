"""Norms and softmax between integers become integers, within a step of those in floats."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.graph import Graph, GraphOperator, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.network.lower import reason_for_host
from vtaops.network.target import Target

NEGLIGIBLE = 32
"""Logits below those of a mask: their exponentials are no step of any result."""
NOTE = "on integers: within a step of the float function"

Found = dict[str, tuple[GraphOperator, list[Node]]]
"""Operators by the name of their result, with the nodes in floats that they replace: the norm, a
mask that is added before, and what made floats."""


def norms_on_integers(graph: Graph, target: Target) -> tuple[Graph, set[str]]:
    """Return a graph whose norms and softmax VTA executes, where it can, and their names."""
    found: Found = {n.name: norm for n in graph.nodes if (norm := _norm(n, graph))}
    while found:
        legal = _replaced(graph, found)
        own = [node for node in legal.nodes if node.name in found]
        kept = {node.name for node in own if not reason_for_host(node, legal, target)}
        if len(kept) == len(found):
            return legal, {*found}
        found = {name: found[name] for name in kept}
    return graph, set()


def _norm(node: Node, graph: Graph) -> tuple[GraphOperator, list[Node]] | None:
    """Return a norm that ends in a quantisation, with the nodes before it; None if none does."""
    nodes = _before(node, graph) if isinstance(node.op, ops.Quantize) else []
    kinds = [type(before.op) for before in nodes]
    mask = nodes[1].op if kinds == [ops.Softmax, ops.AddTerm, ops.Dequantize] else None
    if mask is None and kinds not in (
        [ops.LayerNorm, ops.Dequantize],
        [ops.Softmax, ops.Dequantize],
    ):
        return None
    made = _on_integers(nodes[0], mask, nodes[-1].inputs[0], node.outputs[0])
    return (made, nodes) if made else None


def _before(node: Node, graph: Graph) -> list[Node]:
    """Return the chain of up to three nodes whose results only the next one reads, but the first's.

    It ends in what makes floats.
    """
    nodes: list[Node] = []
    maker = graph.maker(node.inputs[0])
    while maker is not None and len(nodes) < 3:
        nodes.append(maker)
        (result,) = maker.outputs[:1]
        if isinstance(maker.op, ops.Dequantize):
            return nodes
        if graph.consumers(result) != [node] or result in graph.outputs:
            return []
        node, maker = maker, graph.maker(maker.inputs[0]) if maker.inputs else None
    return []


def _on_integers(
    node: Node, mask: GraphOperator | None, given: Tensor, result: Tensor
) -> GraphOperator | None:
    """Return an operator on integers between two grids; None if its numbers are out of range."""
    if isinstance(node.op, ops.LayerNorm):
        return ops.RowNorm.of(node.op, given, result)
    counted = None
    if isinstance(mask, ops.AddTerm):
        term = np.atleast_2d(mask.term).reshape(-1, given.shape[-1])
        counted = None if not term.any() else term == 0
        if (term[term != 0] > -256 * given.scale - NEGLIGIBLE).any():
            return None
    with suppress(ShapeError):
        return ops.RowSoftmax.of(given, result, counted, masked=len(node.inputs) > 1)
    return None


def _replaced(graph: Graph, found: Found) -> Graph:
    """Return a graph with norms on integers."""

    def put(result: Graph, node: Node) -> None:
        if node.name in found:
            op, (norm, *_, before) = found[node.name]
            (given,) = before.inputs
            masks = [_mask(result, node, mask, given) for mask in norm.inputs[1:]]
            result.clone(node, op, [given.name, *masks])
        else:
            result.clone(node)

    return graph.transform(put)


def _mask(result: Graph, node: Node, mask: Tensor, given: Tensor) -> str:
    """Add what makes a mask in floats one of steps of 4 times those of logits; return its name."""
    steps = ops.Quantize(4 * given.scale)
    (small,) = result.add_many(steps, result.tensors[mask.name], names=[f"{node.name}:mask"])
    return result.add(ops.Expand(given.shape), small, name=f"{node.name}:masks").name
