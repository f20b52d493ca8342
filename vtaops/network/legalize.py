"""Legalize a graph: the same network in operators, scales and roundings that the hardware has.

On hardware with tables, functions of one int8 value become tables. One walk then replaces operators
that VTA lacks by others that it has, and requantizations by the hardware's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vtaops.base.reasons import Reason
from vtaops.graph import Expand, Graph, GraphOperator, Node, Requantize, Reshape, Upsample
from vtaops.graph.operators import Weighted
from vtaops.network.batches import sequences_apart
from vtaops.network.decomposition import Decomposition, decomposition_of
from vtaops.network.functions import functions_as_tables
from vtaops.network.lower import reason_for_host
from vtaops.network.normalization import NOTE, norms_on_integers
from vtaops.network.patches import patches_as_copies
from vtaops.network.rounding import (
    ANY_VALUE,
    Replacement,
    ValueRange,
    changes_rounding,
    hardware_rounding,
    host_rounding,
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
        The operators whose scales weights now hold, by node name: the host computes these.
    """

    graph: Graph
    notes: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Reason] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    originals: dict[str, GraphOperator] = field(default_factory=dict)


def legalize(graph: Graph, target: Target) -> LegalGraph:
    """Return the graph that the hardware computes; what it cannot, the host does, unchanged."""
    graph = functions_as_tables(graph) if target.tables else graph
    graph = transposes_last(slices_first(graph, target), target)
    graph, norms = norms_on_integers(graph, target)
    graph = sequences_apart(patches_as_copies(graph, target), target)
    parts = _parts_of(norms, graph)
    walk = _Walk(graph, target)
    legal = graph.rewritten(walk.put)
    refused = {
        node.name: reason
        for node in legal.nodes
        if node.name in walk.rounded and (reason := reason_for_host(node, legal, target))
    }
    if refused:
        legal = legal.rewritten(lambda to, node: to.add_like(node, walk.kept(node, refused)))
    notes = {
        name: decomposition.note
        for name, decomposition in walk.decompositions.items()
        if decomposition.note
    } | dict.fromkeys([*norms, *parts], NOTE)
    return LegalGraph(
        legal,
        notes | {name: found.note for name, found in walk.rounded.items()},
        refused,
        dict.fromkeys(notes, 1)
        | dict.fromkeys(parts, 2)
        | {name: found.steps for name, found in walk.rounded.items()},
        walk.weighted,
    )


def _parts_of(names: Sequence[str], graph: Graph) -> list[str]:
    """Return the nodes of single sequences that stand for nodes of these names."""
    return [n.name for n in graph.nodes if n.name.rpartition(":")[0] in {*names}]


class _Walk:
    """Replaces the nodes of a graph, in order.

    Attributes
    ----------
    decompositions : dict of str to Decomposition
        Operators for nodes that VTA cannot execute as one, by name.
    rounded : dict of str to Replacement
        Operators that round like the hardware, by name.
    originals : dict of str to GraphOperator
        What these replace.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.decompositions = {
            n.name: r for n in graph.nodes if (r := decomposition_of(n, graph, target))
        }
        self.rounded: dict[str, Replacement] = {}
        self._target = target
        self.originals: dict[str, GraphOperator] = {}
        self._ranges: dict[str, ValueRange] = {}
        made = [
            op for decomposition in self.decompositions.values() for op, _ in decomposition.steps
        ]
        made += [node.op for node in graph.nodes if node.name not in self.decompositions]
        self._rounds = any(changes_rounding(op, target) for op in made)

    @property
    def weighted(self) -> dict[str, GraphOperator]:
        """The operators whose scales weights may hold now."""
        return {name: op for name, op in self.originals.items() if isinstance(op, Weighted)}

    def put(self, result: Graph, node: Node) -> None:
        """Add a node, or the operators in its place; the last one makes its result."""
        inputs, part = [tensor.name for tensor in node.inputs], ""
        decomposition = self.decompositions.get(
            node.name, Decomposition(((node.op, range(len(inputs))),))
        )
        *first, (last, operands) = decomposition.steps
        for number, (op, read) in enumerate(first):
            given = [part if index < 0 else inputs[index] for index in read]
            unscaled = isinstance(op, Requantize | Upsample | Expand | Reshape)
            scale = result.tensors[given[0]].scale if unscaled else node.outputs[0].scale
            part = f"{node.name}:part{number or ''}"
            self._add(result, op, given, [part], [scale])
        given = [part if index < 0 else inputs[index] for index in operands]
        names, scales = zip(*((t.name, t.scale) for t in node.outputs), strict=True)
        self._add(result, last, given, names, scales)

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
                self.rounded[name], self.originals[name] = found, op
                op = found.op
        result.add_many(op, *tensors, names=names, scales=scales)

    def kept(self, node: Node, refused: Mapping[str, Reason]) -> GraphOperator:
        """Return the operator of a node, which is the file's if it runs on the host after all."""
        if node.name not in refused:
            return node.op
        found = self.rounded.pop(node.name)
        original = self.originals[node.name]
        exact = host_rounding(original, node.inputs)
        if exact is None:
            return original
        self.rounded[node.name] = replace(found, op=exact.op, differing=0)
        return exact.op
