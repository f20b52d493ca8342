"""Functions of one int8 value: whatever a graph computes point by point of one tensor, as tables.

A hard-swish is a table; a sigmoid times its argument, or a LeakyReLU between two scales, is a few
operators of one tensor, and a table as well. On hardware with the extension ``table`` each such
function becomes one `LookupTable`, of 256 values that the graph's own definition gives.
"""

from __future__ import annotations

import numpy as np

from vtaops.graph import Graph, Node, Tensor, evaluate
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator

_INT8 = np.arange(-128, 128, dtype=np.int8).reshape(1, -1)


def functions_as_tables(graph: Graph) -> Graph:
    """Return a graph that computes the same, its functions of one int8 value being tables.

    What only such a function needs is left out; names of tensors stay.
    """
    roots = _roots(graph)
    needed = {tensor.name for tensor in graph.outputs}
    for node in graph.nodes:
        own = roots.get(node.outputs[0].name)
        needed |= {t.name for t in node.inputs if own is None or roots.get(t.name) is not own}
    result = Graph(graph.name)
    for tensor in graph.inputs:
        result.input(
            tensor.name, tensor.shape, tensor.dtype, scale=tensor.scale, zero_point=tensor.zero_point
        )
    for node in graph.nodes:
        op, inputs = node.op, [tensor.name for tensor in node.inputs]
        root = roots.get(node.outputs[0].name)
        if root is not None:
            if node.name not in needed:
                continue
            op, inputs = _table(graph, node, root), [root.name]
        result.add_many(
            op,
            *(result.tensors[name] for name in inputs),
            names=[tensor.name for tensor in node.outputs],
            scales=[tensor.scale for tensor in node.outputs],
        )
    result.output(*(result.tensors[tensor.name] for tensor in graph.outputs))
    return result


def _roots(graph: Graph) -> dict[str, Tensor]:
    """Return for each tensor that is a function of another one, point by point, that one."""
    roots: dict[str, Tensor] = {}
    for node in graph.nodes:
        if _is_pointwise(node.op) and len({tensor.shape for tensor in node.inputs}) == 1:
            found = {id(t): t for t in (roots.get(t.name, t) for t in node.inputs)}
            if len(found) == 1:
                (roots[node.name],) = found.values()
    return roots


def _is_pointwise(op: GraphOperator) -> bool:
    if isinstance(op, ops.LookupTable):
        return op.table.ndim == 1
    if isinstance(op, ops.Requantize | ops.LeakyRelu | ops.Add | ops.Multiply):
        return op.requantization.multiplier.size == op.requantization.shift.size == 1
    return False


def _table(graph: Graph, last: Node, root: Tensor) -> ops.LookupTable:
    """Return the table of a function: what the graph makes of -128, -127, ..., 127."""
    makers = {node.name: node for node in graph.nodes}
    probe, kinds = Graph(), []
    probe.input(root.name, _INT8.shape, scale=root.scale, zero_point=root.zero_point)

    def make(node: Node) -> None:
        for tensor in node.inputs:
            if tensor.name not in probe.tensors:
                make(makers[tensor.name])
        probe.add(node.op, *(probe.tensors[t.name] for t in node.inputs), name=node.name)
        kinds.append(node.op.kind)

    make(last)
    probe.output(probe.tensors[last.name])
    (values,) = evaluate(probe, _INT8)
    table = values.reshape(-1).astype(np.int8)
    return ops.LookupTable(table, last.outputs[0].zero_point, "+".join(kinds))
