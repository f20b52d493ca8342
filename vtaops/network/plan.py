"""The plan of a network: where each node runs and why, decided without compiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from vtaops.base.errors import ScheduleError
from vtaops.compiler.driver import settled
from vtaops.graph import Graph, Node
from vtaops.model import Row
from vtaops.network.mapping import Mapper
from vtaops.network.products import are_products, product
from vtaops.network.rounding import Rounded
from vtaops.network.rules import Target, flattens, is_free, is_view, reason_for_host
from vtaops.ops import Operator
from vtaops.schedule import default_tiling


@dataclass(frozen=True)
class Stretch:
    """Consecutive nodes that run in one place.

    Attributes
    ----------
    where : "vta" or "host"
        The place.
    nodes : tuple of Node
        In the order of computation; products of two tensors on VTA have separate stretches.
    """

    where: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Plan:
    """Where each node runs.

    Attributes
    ----------
    rows : tuple of Row
        One per node, in the order of the graph.
    stages : tuple of Stretch
        All nodes in execution order, with as few changes between VTA and host as possible.
    graph : Graph
        The graph of the plan.
    """

    rows: tuple[Row, ...]
    stages: tuple[Stretch, ...]
    graph: Graph


def plan(rounded: Rounded, target: Target) -> Plan:
    """Return the plan of a graph: where each node runs.

    Nodes that VTA supports but that do not fit its scratchpads also run on the host.
    """
    graph, refused = rounded.graph, dict(rounded.refused)
    while True:
        decided = _plan(rounded, target, refused)
        found = _without_room(graph, decided, target)
        if not found:
            return decided
        refused |= found


def _without_room(graph: Graph, decided: Plan, target: Target) -> dict[str, str]:
    """Return the nodes of which no tile fits the scratchpads, with the reason."""
    found = {}
    for stage in decided.stages:
        if stage.where == "vta":
            for name, op in operators(graph, stage.nodes, target):
                try:
                    default_tiling(settled(op, target.config), target.config)
                except ScheduleError:
                    found[name] = f"no tile of {op.summary} fits the scratchpads"
    return found


def operators(
    graph: Graph, nodes: Sequence[Node], target: Target
) -> Iterator[tuple[str, Operator]]:
    """Yield the operators that VTA executes for a stretch, each with the name of its node."""
    if are_products(nodes):
        yield from ((node.name, product(node, target).op) for node in nodes)
    else:
        yield from ((step.node, step.op) for step in Mapper(graph, nodes, target).steps)


def _plan(rounded: Rounded, target: Target, refused: Mapping[str, str]) -> Plan:
    graph = rounded.graph
    reasons = _reasons(graph, target, refused)
    places, rows = {}, []
    for node in graph.nodes:
        reason = reasons[node.name]
        places[node.name] = where = "host" if reason else "vta"
        if not reason and is_view(node, graph):
            reason = "moves nothing: another view of its input"
        reason = reason or rounded.notes.get(node.name, "")
        rows.append(Row(node.name, node.op.kind, where, reason))
        if where == "vta" and are_products([node]):
            places[node.name] = "products"
    return Plan(tuple(rows), tuple(_stages(graph, places)), graph)


def _reasons(graph: Graph, target: Target, refused: Mapping[str, str]) -> dict[str, str]:
    """Return why each node runs on the host; empty if it runs on VTA."""
    reasons = {
        node.name: refused.get(node.name) or reason_for_host(node, graph, target)
        for node in graph.nodes
    }
    makers = {tensor.name: node.name for node in graph.nodes for tensor in node.outputs}
    for node in graph.nodes:
        before = [reasons[makers[t.name]] for t in node.inputs if t.name in makers]
        reasons[node.name] = reasons[node.name] or _reason_beside(node, before, graph, reasons)
    return reasons


def _reason_beside(
    node: Node, before: Sequence[str], graph: Graph, reasons: Mapping[str, str]
) -> str:
    """Return why a node runs on the host with its neighbours, given their reasons; else empty."""
    beside = is_free(node.op) and all(before)
    behind = [] if beside or not flattens(node, graph) else graph.consumers(node.outputs[0])
    if any(reasons[reader.name] for reader in behind):
        return "its bytes move, and what reads it is on the host"
    if beside:
        return "its inputs are on the host, where it costs nothing"
    return ""


def _stages(graph: Graph, where: Mapping[str, str]) -> Iterator[Stretch]:
    """Yield stretches: all nodes that can run in one place, then all that can run in the other."""
    known = {tensor.name for tensor in graph.inputs}
    left = list(graph.nodes)
    for place in cycle(("host", "vta", "products")):
        here = [node for node in left if where[node.name] == place]
        taken = _ready(here, known, apart=place == "products")
        if taken:
            yield Stretch("host" if place == "host" else "vta", tuple(taken))
            known |= {tensor.name for node in taken for tensor in node.outputs}
            left = [node for node in left if node not in taken]
        if not left:
            return


def _ready(nodes: Sequence[Node], known: set[str], *, apart: bool) -> list[Node]:
    """Return the nodes that need only known tensors and, unless `apart`, each other's results."""
    ready, taken = set(known), []
    for node in nodes:
        if ready.issuperset(tensor.name for tensor in node.inputs):
            taken.append(node)
            if not apart:
                ready |= {tensor.name for tensor in node.outputs}
    return taken
