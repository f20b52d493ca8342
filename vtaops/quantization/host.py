"""Find the tensors that no integer unit reads or writes, which therefore need no rounding.

The plan of a file with pairs everywhere says which of its nodes VTA executes, and which the host
computes on floats. Around the latter, pairs would only cost precision and launches, so operators on
integers join them, until none is left that

* runs on the host beside floats (masks, factors of a softmax);
* computes on VTA for host functions only, without being a product (residuals before an RMS norm,
  power spectra): the result leaves VTA in any case. Softmax, layer norms and means do not count,
  which C has;
* computes on VTA with what host functions write, other than by a table, or multiplies by it (the
  parts of an RMS norm).

Products stay on integers, as does all that moves data between these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from vtaops.base.errors import VTAError
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.onnx_files import ModelProto
from vtaops.network.compile import as_graph
from vtaops.network.legalize import legalize
from vtaops.network.plan import plan
from vtaops.network.target import Target
from vtaops.quantization.disjoint_sets import DisjointSets

_COMPUTES = (
    *(ops.Requantized, ops.LookupTable, ops.Host, ops.FloatOperator, ops.FixedSoftmax),
    *(ops.RowNorm, ops.RowSoftmax),
)
"""Operators that compute new values; all others move values that lie on one grid."""


_Names = defaultdict[str, set[str]]

_Floats = tuple[set[str], set[str]]
"""What stays float: tensors that only nodes on floats write and read, and the results of nodes that
compute on floats, though they could on integers."""


def float_parts(model: ModelProto, target: Target) -> _Floats:
    """Return what of a network stays float, given its file with pairs everywhere.

    Nothing, if the file cannot be imported: `compile_model` will say why.
    """
    try:
        legal = legalize(as_graph(model), target)
        on_vta = {row.name for row in plan(legal, target).rows if row.where == "vta"}
    except VTAError:
        return set(), set()
    return _Search(legal.graph, on_vta).run() if on_vta else (set(), set())


class _Search:
    """The search for nodes that join those on floats.

    Tensors of one grid, between which nodes only move data, are a group, named by one of them.
    """

    def __init__(self, graph: Graph, on_vta: Collection[str]) -> None:
        self.on_vta = on_vta
        self.nodes = {n.name: n for n in graph.nodes if isinstance(n.op, _COMPUTES)}
        self.groups = _groups(graph)
        self.outputs = {self.groups[tensor.name] for tensor in graph.outputs}
        self.reads, self.readers = self._users_of(lambda node: node.inputs)
        self.writes, self.writers = self._users_of(lambda node: node.outputs)

    def _users_of(self, ends: Callable[[Node], Iterable[Tensor]]) -> tuple[_Names, _Names]:
        """Return the groups of each node's ends, and the nodes that have a group among these."""
        groups, users = _Names(set), _Names(set)
        for node in self.nodes.values():
            for tensor in ends(node):
                groups[node.name].add(self.groups[tensor.name])
                users[self.groups[tensor.name]].add(node.name)
        return groups, users

    def run(self) -> _Floats:
        """Let nodes join until none is left, and return what is float."""
        functions = self._chosen(_is_host_function)
        exact = self._chosen(lambda node: isinstance(node.op, ops.FloatOperator))
        products = self._chosen(_is_product)
        others = self.nodes.keys() - functions - exact - products
        left, loose = others if products else set(), {*functions}
        while joining := {n for n in left - loose if self._joins(n, loose, loose | exact)}:
            loose |= joining
        floats = loose | exact
        tensors = {n for n, group in self.groups.items() if set() < self._users([group]) <= floats}
        joined = (self.nodes[name] for name in loose - functions)
        return tensors, {tensor.name for node in joined for tensor in node.outputs}

    def _chosen(self, kind: Callable[[Node], bool]) -> set[str]:
        return {name for name, node in self.nodes.items() if kind(node)}

    def _users(self, groups: Iterable[str]) -> set[str]:
        return set().union(*(self.readers[group] | self.writers[group] for group in groups))

    def _joins(self, name: str, loose: set[str], floats: set[str]) -> bool:
        """Return whether a node joins those on floats, as things stand.

        On VTA, if host functions write what it reads, of a product of two a factor, or if they
        alone read what it writes.
        """
        reads, writes, op = self.reads[name], self.writes[name], self.nodes[name].op
        if name not in self.on_vta:
            return not floats.isdisjoint(self._users(reads | writes))
        made = [set() < self.writers[group] <= loose for group in reads]
        read = [set() < self.readers[group] <= loose for group in writes]
        factor = isinstance(op, ops.Multiply) and any(made)
        is_table = isinstance(op, ops.LookupTable)  # which VTA applies on the way
        inner = all(read) and self.outputs.isdisjoint(writes)
        return factor or inner or (all(made) and not is_table)


def _is_host_function(node: Node) -> bool:
    """Return whether the host computes a function that C has not, as it has layer norms."""
    rms = isinstance(node.op, ops.LayerNorm) and not node.op.centered
    return rms or isinstance(node.op, ops.Host)


def _is_product(node: Node) -> bool:
    """Return whether each result has several terms: what VTA is for."""
    if isinstance(node.op, ops.Weighted):
        return bool(node.op.weight.size > len(node.op.weight))
    return isinstance(node.op, ops.Matmul | ops.AveragePool)


def _groups(graph: Graph) -> dict[str, str]:
    """Return a representative for the group of each tensor."""
    ties = DisjointSets[str]()
    for node in graph.nodes:
        if not isinstance(node.op, _COMPUTES):
            ties.join(*(tensor.name for tensor in (*node.inputs, *node.outputs)))
    return {name: ties.root(name) for name in graph.tensors}
