"""Functions of one int8 value as tables: everything that a graph computes pointwise of a tensor.

A hard-swish is a table. A sigmoid times its argument, or a LeakyReLU between two scales, consists
of several operators of one tensor and becomes a table as well. On hardware with the extension
``table``, each such function becomes one `LookupTable` of 256 values, computed from the graph's
definition.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.executor import evaluate_all
from vtaops.network.storage import POINTWISE, by_channel

_INT8 = np.arange(-128, 128, dtype=np.int8).reshape(1, -1)


def functions_as_tables(graph: Graph) -> Graph:
    """Return an equivalent graph in which functions of one int8 value are tables.

    Operators that only such a function needs are removed; tensors and operators keep their names.
    """
    roots = _roots(graph)
    tables = _tables(graph, roots)
    needed = _needed(graph, roots)

    def put(result: Graph, node: Node) -> None:
        if node.name not in tables:
            result.add_like(node)
        elif node.name in needed:
            table = ops.LookupTable(tables[node.name], node.outputs[0].zero_point, node.op.kind)
            result.add_like(node, table, [roots[node.name].name])

    return graph.rewritten(put)


def _needed(graph: Graph, roots: Mapping[str, Tensor]) -> set[str]:
    """Return the tensors that are read by anything but a function of the same argument."""
    needed = {tensor.name for tensor in graph.outputs}
    for node in graph.nodes:
        own = roots.get(node.outputs[0].name)
        needed |= {t.name for t in node.inputs if own is None or roots.get(t.name) is not own}
    return needed


def _roots(graph: Graph) -> dict[str, Tensor]:
    """Return the argument of each tensor that is a pointwise function of another tensor."""
    roots: dict[str, Tensor] = {}
    for node in graph.nodes:
        alike = len({tensor.shape for tensor in node.inputs}) == 1
        if alike and isinstance(node.op, POINTWISE) and not by_channel(node.op):
            found = {id(t): t for t in (roots.get(t.name, t) for t in node.inputs)}
            if len(found) == 1:
                (roots[node.name],) = found.values()
    return roots


def _tables(graph: Graph, roots: dict[str, Tensor]) -> dict[str, npt.NDArray[np.int8]]:
    """Return the table of each function: the results of the graph for -128, -127, ..., 127."""
    probes = {root.name: Graph() for root in roots.values()}
    for root in roots.values():
        probe = probes[root.name]
        if not probe.inputs:
            probe.input(root.name, _INT8.shape, scale=root.scale, zero_point=root.zero_point)
    for node in graph.nodes:
        if node.name in roots:
            probe = probes[roots[node.name].name]
            probe.add(node.op, *(probe.tensors[t.name] for t in node.inputs), name=node.name)
    tables: dict[str, npt.NDArray[np.int8]] = {}
    for probe in probes.values():
        values = evaluate_all(probe, _INT8)
        tables |= {node.name: values[node.name].reshape(-1) for node in probe.nodes}
    return tables
