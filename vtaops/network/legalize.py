"""Legalize a graph: the same network in operators, scales and roundings that the hardware has.

On hardware with tables, functions of one int8 value become tables. One walk then replaces operators
that VTA lacks by others that it has, and requantizations by the hardware's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from vtaops.base.reasons import Reason
from vtaops.graph import Expand, Graph, GraphOperator, Node, Requantize, Reshape, Upsample
from vtaops.network.batches import sequences_apart
from vtaops.network.decomposition import Decomposition, decomposition_of
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
from vtaops.network.slices import slices_first
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
    graph = transposes_last(slices_first(graph, target), target)
    graph, norms = norms_on_integers(graph, target)
    graph = sequences_apart(patches_as_copies(graph, target), target)
    legal = LegalGraph(graph)
    for node in graph.nodes:
        single = node.name.rpartition(":")[0] in norms  # of one sequence
        if single or node.name in norms:
            legal.notes[node.name], legal.steps[node.name] = NOTE, 1 + single
    legal.graph = graph.transform(_Walk(legal, target).put)
    for node in legal.graph.nodes:
        known = node.name in legal.originals
        if known and (reason := reason_for_host(node, legal.graph, target)):
            legal.refused[node.name] = reason
            del legal.notes[node.name], legal.steps[node.name]
    if legal.refused:
        legal.graph = legal.given_back(legal.graph, legal.refused)
    return legal


class _Walk:
    """Replaces the nodes of a graph, in order."""

    def __init__(self, legal: LegalGraph, target: Target) -> None:
        self._legal, self._target, graph = legal, target, legal.graph
        self._ranges: dict[str, ValueRange] = {}
        self._decompositions = {
            n.name: found for n in graph.nodes if (found := decomposition_of(n, graph, target))
        }
        made = [op for found in self._decompositions.values() for op, _ in found.steps]
        made += [node.op for node in graph.nodes if node.name not in self._decompositions]
        self._rounds = any(changes_rounding(op, target) for op in made)

    def put(self, result: Graph, node: Node) -> None:
        """Add a node, or the operators in its place; the last one makes its result."""
        inputs, part = [tensor.name for tensor in node.inputs], ""
        plain = Decomposition(((node.op, range(len(inputs))),))
        found = self._decompositions.get(node.name, plain)
        if found.note:
            self._legal.notes[node.name], self._legal.steps[node.name] = found.note, 1
        for number, (op, operands) in enumerate(found.steps):
            given = [part if index < 0 else inputs[index] for index in operands]
            names, scales = zip(*((t.name, t.scale) for t in node.outputs), strict=True)
            if number < len(found.steps) - 1:
                part = f"{node.name}:part{number or ''}"
                unscaled = isinstance(op, Requantize | Upsample | Expand | Reshape)
                names, scales = (
                    (part,),
                    (result.tensors[given[0]].scale if unscaled else scales[0],),
                )
            self._add(result, op, given, names, scales)

    def _add(
        self,
        result: Graph,
        op: GraphOperator,
        inputs: Sequence[str],
        names: Sequence[str],
        scales: Sequence[float],
    ) -> None:
        tensors, name = [result.tensors[tensor] for tensor in inputs], names[0]
        if self._rounds:
            ranges = [self._ranges.get(tensor, ANY_VALUE) for tensor in inputs]
            self._ranges[name] = value_range(op, tensors, ranges)
            found = hardware_rounding(op, tensors, ranges, self._target)
            if found is not None:
                self._legal.originals[name] = op
                self._legal.notes[name], self._legal.steps[name] = found.note, found.steps
                op = found.op
        result.add_many(op, *tensors, names=names, scales=scales)
