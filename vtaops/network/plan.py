"""The plan of a network: where each node runs and why, decided without compiling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle

from vtaops.base.errors import ScheduleError
from vtaops.base.reasons import Reason
from vtaops.graph import Graph, Node
from vtaops.graph import operators as ops
from vtaops.model import NodePlacement
from vtaops.network.legalize import LegalGraph
from vtaops.network.lower import is_apart, lower_region, reason_for_host
from vtaops.network.products import LoweredProducts, lower_products
from vtaops.network.region import LoweredRegion, is_free
from vtaops.network.storage import storages
from vtaops.network.target import NotOnVta, Target
from vtaops.schedule import default_tiling

Lowered = LoweredRegion | LoweredProducts


@dataclass(frozen=True)
class Partition:
    """Consecutive nodes that run in one place.

    Attributes
    ----------
    nodes : tuple of Node
        In the order of computation; products of two tensors on VTA have separate partitions.
    lowered : LoweredRegion, LoweredProducts or None
        What VTA executes; None if the nodes run on the host.
    """

    nodes: tuple[Node, ...]
    lowered: Lowered | None = None


@dataclass(frozen=True)
class Plan:
    """Where each node runs.

    Attributes
    ----------
    rows : tuple of NodePlacement
        One per node, in the order of the graph.
    partitions : tuple of Partition
        All nodes in execution order, with as few changes between VTA and host as possible.
    graph : Graph
        The graph of the plan.
    """

    rows: tuple[NodePlacement, ...]
    partitions: tuple[Partition, ...]
    graph: Graph

    @property
    def lowered(self) -> list[Lowered]:
        """What VTA executes, by launch."""
        return [part.lowered for part in self.partitions if part.lowered is not None]


def plan(legal: LegalGraph, target: Target) -> Plan:
    """Return the plan of a graph: where each node runs.

    Nodes that VTA supports but that do not fit its scratchpads also run on the host.
    """
    graph = legal.graph
    own = {node.name: reason_for_host(node, graph, target) for node in graph.nodes}
    own |= legal.refused
    while True:
        reasons = _with_neighbours(graph, own)
        partitions, refused = _lowered(graph, reasons, target)
        if not refused:
            executed = {s.node for part in partitions if part.lowered for s in part.lowered.steps}
            rows = (_row(n, reasons[n.name], legal.notes, executed) for n in graph.nodes)
            return Plan(tuple(rows), tuple(partitions), graph)
        own |= refused
        graph = legal.given_back(graph, refused)


def _lowered(
    graph: Graph, reasons: Mapping[str, Reason | None], target: Target
) -> tuple[list[Partition], dict[str, Reason]]:
    """Return the partitions, and the nodes that fit only alone, or no tile of which fits."""
    partitions, refused = [], {}
    for where, nodes in _partitions(graph, reasons, target):
        if where == "host":
            partitions.append(Partition(nodes))
            continue
        try:
            lower = lower_products if where == "products" else lower_region
            lowered = lower(graph, nodes, target)
        except NotOnVta as error:
            refused[error.node] = error.reason
            continue
        partitions.append(Partition(nodes, lowered))
        for step in lowered.steps:
            try:
                default_tiling(step.op, target.config)
            except ScheduleError:
                text = f"no tile of {step.op.summary} fits the scratchpads"
                refused[step.node] = Reason("scratchpad", text)
    return partitions, refused


def _row(
    node: Node, reason: Reason | None, notes: Mapping[str, str], executed: set[str]
) -> NodePlacement:
    if reason is not None:
        return NodePlacement(node.name, node.op.kind, "host", reason.text, reason.code)
    view = is_free(node.op) and not isinstance(node.op, ops.Concat) and node.name not in executed
    remark = "free: a view of its input" if view else notes.get(node.name, "")
    return NodePlacement(node.name, node.op.kind, "vta", remark)


def _with_neighbours(graph: Graph, own: Mapping[str, Reason | None]) -> Mapping[str, Reason | None]:
    """Return why each node runs on the host, those included that follow their neighbours there."""
    reasons, known = dict(own), storages(graph)
    for node in graph.nodes:
        if reasons[node.name] or not is_free(node.op):
            continue
        stored = known.get(node.outputs[0].name)
        makers = filter(None, map(graph.maker, node.inputs))
        if not (stored and stored.split) and all(reasons[maker.name] for maker in makers):
            text = "its inputs are on the host, where it is free"
            reasons[node.name] = Reason("neighbours", text)
    return reasons


def _partitions(
    graph: Graph, reasons: Mapping[str, Reason | None], target: Target
) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Yield all nodes that can run in one place, then all that can run in the next one."""
    places = {node: _place(node, graph, reasons[node.name], target) for node in graph.nodes}
    available = {tensor.name for tensor in graph.inputs}
    waiting = list(graph.nodes)
    for where in cycle(("host", "vta", "products")):
        here = [node for node in waiting if places[node] == where]
        if ready := _ready(here, available, independent=where == "products"):
            yield where, tuple(ready)
            waiting = [node for node in waiting if node not in ready]
        if not waiting:
            return


def _place(node: Node, graph: Graph, reason: Reason | None, target: Target) -> str:
    if reason is not None:
        return "host"
    return "products" if is_apart(node, graph, target) else "vta"


def _ready(nodes: Iterable[Node], available: set[str], *, independent: bool) -> dict[Node, None]:
    """Return the nodes whose inputs are available, and add their results.

    Results of nodes already chosen count, unless the nodes must be `independent`.
    """
    known, ready = set(available) if independent else available, dict[Node, None]()
    for node in nodes:
        if known.issuperset(tensor.name for tensor in node.inputs):
            ready[node] = None
            available.update(tensor.name for tensor in node.outputs)
    return ready
