"""Transpositions that VTA does not execute move behind what computes on single values.

Positions rotate the halves of queries and keys after the heads have been brought in front of the
tokens. Before that, heads are channels, whose parts are views, and constants are images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vtaops.graph import Constant, Graph, GraphOperator, Node, Tensor, Transpose
from vtaops.graph import operators as ops
from vtaops.graph.operators import Pattern
from vtaops.network.lower import reason_for_host
from vtaops.network.propagation import by_channel
from vtaops.network.target import Target

Axes = tuple[int, ...]


def transposes_last(graph: Graph, target: Target) -> Graph:
    """Return a graph whose transpositions follow functions of single values, slices and joins.

    Those stay that VTA executes where they are.
    """
    nodes = [node for node in graph.nodes if isinstance(node.op, Transpose)]
    found = {node.name for node in nodes if _moves(node, graph, target)}
    return graph.transform(_Walk(graph, found).put) if found else graph


def _moves(node: Node, graph: Graph, target: Target) -> bool:
    readers = graph.consumers(node.outputs[0])
    behind = (isinstance(r.op, ops.Slice) or r.op.pattern is Pattern.ELEMENTWISE for r in readers)
    return any(behind) and reason_for_host(node, graph, target) is not None


class _Walk:
    """Replaces the nodes of a graph, in order.

    Attributes
    ----------
    waiting : dict of str to (str, tuple of int)
        Tensors of the graph that are transpositions still to be made: of which tensor, and how.
    """

    def __init__(self, graph: Graph, moving: set[str]) -> None:
        self._graph, self._moving = graph, moving
        self.waiting: dict[str, tuple[str, Axes]] = {}

    def put(self, result: Graph, node: Node) -> None:
        """Add a node, before the transpositions of its inputs if it may stand there."""
        axes = self._axes(node)
        if isinstance(node.op, Transpose) and node.name in self._moving:
            self._made(result, node.inputs[0])
            self.waiting[node.name] = node.inputs[0].name, node.op.axes
        elif axes and (op := _before(node, axes)):
            inputs = [self._source(result, tensor, axes) for tensor in node.inputs]
            made = result.add(op, *inputs, name=f"{node.name}:turned", scale=node.outputs[0].scale)
            self.waiting[node.name] = made.name, axes
        else:
            for tensor in node.inputs:
                self._made(result, tensor)
            result.clone(node)
        for tensor in node.outputs:
            if tensor in self._graph.outputs:
                self._made(result, tensor)

    def _axes(self, node: Node) -> Axes | None:
        """Return how all inputs of a node that are no constants are transposed, if alike."""
        data = [tensor.name for tensor in node.inputs if not self._constant(tensor)]
        found = {self.waiting[name][1] if name in self.waiting else None for name in data}
        return found.pop() if len(found) == 1 else None

    def _constant(self, tensor: Tensor) -> Constant | None:
        maker = self._graph.maker(tensor)
        return maker.op if maker is not None and isinstance(maker.op, Constant) else None

    def _source(self, result: Graph, tensor: Tensor, axes: Axes) -> Tensor:
        """Return a tensor before its transposition; a constant is transposed back."""
        constant = self._constant(tensor)
        if constant is None:
            return result.tensors[self.waiting[tensor.name][0]]
        name = f"{tensor.name}:{','.join(map(str, axes))}"
        if name not in result.tensors:
            value = np.ascontiguousarray(constant.value.transpose(np.argsort(axes)))
            result.add(replace(constant, value=value), name=name, scale=tensor.scale)
        return result.tensors[name]

    def _made(self, result: Graph, tensor: Tensor) -> None:
        """Make a tensor that is still to be transposed."""
        if tensor.name not in result.tensors:
            source, axes = self.waiting[tensor.name]
            result.add(Transpose(axes), result.tensors[source], name=tensor.name)


def _before(node: Node, axes: Sequence[int]) -> GraphOperator | None:
    """Return what a node becomes before a transposition of its inputs; None if it must follow."""
    op, shapes = node.op, {tensor.shape for tensor in node.inputs}
    if isinstance(op, ops.Slice | ops.Concat):
        return replace(op, axis=axes[op.axis % len(axes)])
    alike = len(shapes) == 1 and op.pattern is Pattern.ELEMENTWISE and not by_channel(op)
    return op if alike else None
