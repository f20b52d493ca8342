"""Legalize a graph: the same network in operators, scales and roundings that the hardware has.

On hardware with tables, functions of one int8 value become tables. One walk then replaces operators
that VTA lacks by others that it has, and requantizations by the hardware's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from vtaops.base.reasons import Reason
from vtaops.graph import Expand, Graph, GraphOperator, Node, Requantize, Reshape, Upsample
from vtaops.network.batches import sequences_apart
from vtaops.network.decomposition import decomposition_of
from vtaops.network.functions import functions_as_tables
from vtaops.network.lower import reason_for_host
from vtaops.network.normalization import NOTE, norms_on_integers
from vtaops.network.patches import patches_as_copies
from vtaops.network.rounding import (
    ANY_VALUE,
    ValueRange,
    changes_rounding,
    hardware_rounding,
    value_range,
)
from vtaops.network.target import Target
from vtaops.network.transposes import transposes_last


@dataclass
class LegalGraph:
    """A graph that the hardware computes.

    Attributes
    ----------
    graph : Graph
        The graph that the network computes.
    notes : dict of str to str
        How operators compare with those of the file, by node name.
    refused : dict of str to Reason
        Why nodes run on the host if their scales are the reason.
    steps : dict of str to int
        By how many steps operators may differ from the file's, if they may, by node name.
    originals : dict of str to GraphOperator
        The operators of the file that round otherwise, by node name: the host computes these.
    """

    graph: Graph
    notes: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Reason] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    originals: dict[str, GraphOperator] = field(default_factory=dict)

    def given_back(self, graph: Graph, names: Collection[str]) -> Graph:
        """Return a graph with the file's operators for nodes that the host executes after all."""
        kept = {name: op for name, op in self.originals.items() if name in names}
        return graph.transform(lambda to, node: to.clone(node, kept.get(node.name)))


def legalize(graph: Graph, target: Target) -> LegalGraph:
    """Return the graph that the hardware computes; what it cannot, the host does, unchanged."""
    graph = functions_as_tables(graph) if target.tables else graph
    graph = transposes_last(graph, target)
    graph, norms = norms_on_integers(graph, target)
    graph = sequences_apart(patches_as_copies(graph, target), target)
    legal = LegalGraph(graph)
    for node in graph.nodes:
        single = node.name.rpartition(":")[0] in norms  # of one sequence
        if single or node.name in norms:
            legal.notes[node.name], legal.steps[node.name] = NOTE, 1 + single
    legal.graph = _rounded(_decomposed(graph, target, legal), target, legal)
    for node in legal.graph.nodes:
        known = node.name in legal.originals
        if known and (reason := reason_for_host(node, legal.graph, target)):
            legal.refused[node.name] = reason
            del legal.notes[node.name], legal.steps[node.name]
    if legal.refused:
        legal.graph = legal.given_back(legal.graph, legal.refused)
    return legal


def _decomposed(graph: Graph, target: Target, legal: LegalGraph) -> Graph:
    """Return a graph with others in place of operators that VTA lacks; the last has the name."""

    def put(result: Graph, node: Node) -> None:
        found = decomposition_of(node, graph, target)
        if found is None:
            result.clone(node)
            return
        if found.note:
            legal.notes[node.name], legal.steps[node.name] = found.note, 1
        (made,), part = node.outputs, ""
        for number, (op, operands) in enumerate(found.steps):
            given = [result.tensors[part if i < 0 else node.inputs[i].name] for i in operands]
            last = number == len(found.steps) - 1
            part = node.name if last else f"{node.name}:part{number or ''}"
            unscaled = not last and isinstance(op, Requantize | Upsample | Expand | Reshape)
            result.add(op, *given, name=part, scale=given[0].scale if unscaled else made.scale)

    return graph.transform(put)


def _rounded(graph: Graph, target: Target, legal: LegalGraph) -> Graph:
    """Return a graph with the roundings of the hardware."""
    if not any(changes_rounding(node.op, target) for node in graph.nodes):
        return graph
    ranges: dict[str, ValueRange] = {}

    def put(result: Graph, node: Node) -> None:
        given = [result.tensors[tensor.name] for tensor in node.inputs]
        known = [ranges.get(tensor.name, ANY_VALUE) for tensor in given]
        ranges[node.name] = value_range(node.op, given, known)
        found = hardware_rounding(node.op, given, known, target)
        if found is None:
            result.clone(node)
            return
        result.clone(node, found.op)
        legal.originals[node.name] = node.op
        legal.notes[node.name], legal.steps[node.name] = found.note, found.steps

    return graph.transform(put)
