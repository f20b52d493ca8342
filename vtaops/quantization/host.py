"""Find the tensors that no integer unit reads or writes, which therefore need no rounding.

The plan of a file with pairs everywhere says which of its nodes VTA executes, and which the host
computes on floats. Around the latter, pairs would only cost precision and launches, so operators on
integers join them, until none is left that

* runs on the host beside floats (masks, factors of a softmax);
* computes on VTA for host functions only, without being a product (residuals before an RMS norm,
  power spectra): the result leaves VTA in any case. Softmax, layer norms and means do not count,
  which C has;
* computes on VTA with what host functions write, other than by a table, or multiplies by it (the
  parts of an RMS norm);
* computes on VTA in a piece of the network without any product (the factor of a norm).

Products stay on integers, as does all that moves data between these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Floats:
    """What of a network stays float.

    Attributes
    ----------
    tensors
        Tensors that only such nodes write and read.
    results
        Results of nodes that compute on floats, though they could on integers.
    """

    tensors: Collection[str] = frozenset()
    results: Collection[str] = frozenset()


@dataclass
class _Group:
    """Tensors of one grid, connected by nodes that only move data, and who computes on them."""

    writers: list[Node] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)
    is_output: bool = False

    def is_within(self, names: Collection[str]) -> bool:
        """Return whether some compute on the tensors, and all of them have these names."""
        users = {user.name for user in (*self.writers, *self.readers)}
        return bool(users) and users <= {*names}


def float_parts(model: ModelProto, target: Target) -> Floats:
    """Return what of a network stays float, given its file with pairs everywhere.

    Nothing, if the file cannot be imported: `compile_model` will say why.
    """
    try:
        legal = legalize(as_graph(model), target)
        on_vta = {row.name for row in plan(legal, target).rows if row.where == "vta"}
    except VTAError:
        return Floats()
    return _Search(legal.graph, on_vta).run() if on_vta else Floats()


class _Search:
    """The search for nodes that join those on floats."""

    def __init__(self, graph: Graph, on_vta: Collection[str]) -> None:
        self.graph, self.on_vta = graph, on_vta
        self.computing = [node for node in graph.nodes if isinstance(node.op, _COMPUTES)]
        self.roots = _roots(graph)
        self.groups: dict[str, _Group] = defaultdict(_Group)
        for node in self.computing:
            for group in self._groups_of(node.inputs):
                group.readers.append(node)
            for group in self._groups_of(node.outputs):
                group.writers.append(node)
        for group in self._groups_of(graph.outputs):
            group.is_output = True
        self.functions = self._of_kind(ops.Host)
        for node in self.computing:
            if isinstance(node.op, ops.LayerNorm) and not node.op.centered:
                self.functions.add(node.name)
        self.exact = self._of_kind(ops.FloatOperator)
        self.joined: set[str] = set()

    @property
    def floats(self) -> set[str]:
        """The names of all nodes on floats so far."""
        return self.functions | self.exact | self.joined

    def run(self) -> Floats:
        """Let nodes join until none is left, and return what is float."""
        if any(map(_is_product, self.computing)):
            self._join()
        free = {root for root, group in self.groups.items() if group.is_within(self.floats)}
        named = {name for name, root in self.roots.items() if root in free}
        results = {t.name for n in self.computing if n.name in self.joined for t in n.outputs}
        return Floats(frozenset(named), frozenset(results))

    def _join(self) -> None:
        """Let nodes join until none is left."""
        while joining := [n for n in self._integers() if not _is_product(n) and self._joins(n)]:
            self.joined.update(node.name for node in joining)
            self.joined |= self._without_products()

    def _of_kind(self, kind: type[ops.GraphOperator]) -> set[str]:
        return {node.name for node in self.computing if isinstance(node.op, kind)}

    def _groups_of(self, tensors: Iterable[Tensor]) -> list[_Group]:
        return [self.groups[self.roots[tensor.name]] for tensor in tensors]

    def _beside(self, node: Node) -> list[Node]:
        """Return the nodes that share a tensor with a node."""
        groups = self._groups_of((*node.inputs, *node.outputs))
        return [user for group in groups for user in (*group.writers, *group.readers)]

    def _joins(self, node: Node) -> bool:
        """Return whether a node joins those on floats, as things stand."""
        if node.name not in self.on_vta:
            return not self.floats.isdisjoint(user.name for user in self._beside(node))
        return self._reads_floats(node) or self._is_read_by_floats(node)

    def _reads_floats(self, node: Node) -> bool:
        """Return whether host functions write what a node reads; of a product of two, a factor."""
        loose = self.functions | self.joined
        made = [
            bool(group.writers) and all(writer.name in loose for writer in group.writers)
            for group in self._groups_of(node.inputs)
        ]
        is_table = isinstance(node.op, ops.LookupTable)  # which VTA applies on the way
        return (all(made) and not is_table) or (isinstance(node.op, ops.Multiply) and any(made))

    def _is_read_by_floats(self, node: Node) -> bool:
        """Return whether only host functions read what a node writes."""
        loose = self.functions | self.joined
        behind = self._groups_of(node.outputs)
        return all(group.readers and not group.is_output for group in behind) and all(
            reader.name in loose for group in behind for reader in group.readers
        )

    def _without_products(self) -> set[str]:
        """Return the nodes on integers from which no product is reached but through floats."""
        unreached, seen = {node.name: node for node in self._integers()}, set[str]()
        stack = [node for node in unreached.values() if _is_product(node)]
        while stack:
            node = stack.pop()
            if node.name not in seen:
                seen.add(node.name)
                stack += [user for user in self._beside(node) if user.name in unreached]
        return unreached.keys() - seen

    def _integers(self) -> list[Node]:
        known = self.floats
        return [node for node in self.computing if node.name not in known]


def _is_product(node: Node) -> bool:
    """Return whether each result has several terms: what VTA is for."""
    if isinstance(node.op, ops.Weighted):
        return bool(node.op.weight.size > len(node.op.weight))
    return isinstance(node.op, ops.Matmul | ops.AveragePool)


def _roots(graph: Graph) -> dict[str, str]:
    """Return a representative for the group of each tensor."""
    ties, seen = DisjointSets[str](), {tensor.name for tensor in graph.inputs}
    for node in graph.nodes:
        names = [tensor.name for tensor in (*node.inputs, *node.outputs)]
        seen.update(names)
        if not isinstance(node.op, _COMPUTES):
            for name in names[1:]:
                ties.join(names[0], name)
    return {name: ties.root(name) for name in seen}
