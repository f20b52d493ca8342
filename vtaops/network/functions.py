"""Functions of one int8 value as tables: everything that a graph computes pointwise of a tensor.

A hard-swish is a table. A sigmoid times its argument, or a LeakyReLU between two scales, consists
of several operators of one tensor and becomes a table as well. On hardware with the extension
``table``, each such function becomes one `LookupTable` of 256 values, computed from the graph's
definition.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import Pattern
from vtaops.network.propagation import by_channel

_INT8 = np.arange(-128, 128, dtype=np.int8).reshape(1, -1)


def functions_as_tables(graph: Graph) -> Graph:
    """Return an equivalent graph in which functions of one int8 value are tables.

    Operators that only such a function needs are removed; tensors and operators keep their names.
    """
    roots = _roots(graph)
    tables = _tables(graph, roots)

    def put(result: Graph, node: Node) -> None:
        if node.name not in tables:
            result.clone(node)
        elif graph.consumers(node.outputs[0]) or node.outputs[0] in graph.outputs:
            table = ops.LookupTable(tables[node.name], node.outputs[0].zero_point, node.op.kind)
            result.clone(node, table, [roots[node.name].name])

    return graph.transform(put)


def _roots(graph: Graph) -> dict[str, Tensor]:
    """Return the argument of each tensor that is a pointwise function of another tensor."""
    roots: dict[str, Tensor] = {}
    for node in graph.nodes:
        alike = len({tensor.shape for tensor in node.inputs}) == 1
        if alike and node.op.pattern is Pattern.ELEMENTWISE and not by_channel(node.op):
            found = {id(t): t for t in (roots.get(t.name, t) for t in node.inputs)}
            if len(found) == 1:
                (roots[node.name],) = found.values()
    return roots


def _tables(graph: Graph, roots: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return the table of each function: the results of the graph for -128, -127, ..., 127."""
    values: dict[str, Array] = {root.name: _INT8 for root in roots.values()}
    for node in graph.nodes:
        if node.name in roots:
            given = (values[tensor.name] for tensor in node.inputs)
            values[node.name] = node.op.reference(node.inputs, *given)
    return {name: values[name].reshape(-1) for name in roots}
