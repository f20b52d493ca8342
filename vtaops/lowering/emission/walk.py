"""Walk the loops of a parsed function and emit the operations of its leaves.

Every shape is static, so each leaf nest is evaluated with NumPy for the current values of the outer
loops (`transfers`, `computation`). Under virtual threads, neighbouring leaves of one unit are
emitted thread by thread, so that the loads of one thread can overlap with another's computation.
"""

from __future__ import annotations

from itertools import groupby

from vtaops.lowering.emission.computation import Computation
from vtaops.lowering.emission.context import Context
from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.emission.transfers import TileCopy
from vtaops.lowering.operation import Operation
from vtaops.lowering.options import LoweringOptions
from vtaops.lowering.tree.expressions import Values
from vtaops.lowering.tree.nodes import (
    CopyNest,
    LeafNest,
    Loop,
    LoopNode,
    Node,
    Tree,
    leaves,
)
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Unit
from vtaops.program import Buffer, Role


def walk(
    tree: Tree, buffers: tuple[Buffer, ...], config: HardwareConfig, options: LoweringOptions
) -> list[Operation]:
    """Return the operations of a parsed function in program order, without synchronization.

    Some hardware stores only results of the ALU or a product. If products with padding had to be
    skipped, and the operator has no ALU pass, the ALU adds 0 to every accumulator after its reset.

    Raises
    ------
    ScheduleError
        If a scratchpad overflows.
    """
    stored = {b.name for b in buffers if b.role in (Role.OUTPUT, Role.SCRATCH)}
    changing = frozenset(name for leaf in leaves(tree.body) for name in leaf.read & stored)
    for pass_after_reset in (False, True):
        addresses = Addresses(tree, config, options.capacity)
        context = Context(config, options, addresses, buffers, changing, pass_after_reset)
        operations: list[Operation] = []
        _Walk(context, operations).run(tree.body, {}, None)
        left_out = context.paddings.zeros and not options.skip_padding
        if not left_out or options.alu_passes:
            break
    return operations


class _Walk:
    """Appends the operations of statements to a list."""

    def __init__(self, context: Context, operations: list[Operation]) -> None:
        self._context = context
        self._operations = operations
        self._emitters: dict[Node, TileCopy | Computation] = {}
        self._groups: dict[tuple[Node, ...], list[list[Node]]] = {}

    def run(self, nodes: tuple[Node, ...], values: Values, threads: Loop | None) -> None:
        """Execute statements in order."""
        if nodes not in self._groups:
            self._groups[nodes] = [[*group] for _, group in groupby(nodes, _unit_or_none)]
        for group in self._groups[nodes]:
            if not isinstance(group[0], LoopNode):
                self._leaves(group, values, threads)
                continue
            for node in group:
                assert isinstance(node, LoopNode)
                if node.threads:
                    self.run(node.body, values, node.loop)
                    continue
                for step in range(node.loop.extent):
                    self.run(node.body, {**values, node.loop.name: step}, threads)

    def _leaves(self, group: list[Node], values: Values, threads: Loop | None) -> None:
        """Emit neighbouring leaves of one unit, thread by thread."""
        for thread in range(threads.extent if threads else 1):
            bound = {**values, threads.name: thread} if threads else values
            for leaf in group:
                self._operations += self._emitter_of(leaf).emit(bound, thread)

    def _emitter_of(self, leaf: Node) -> TileCopy | Computation:
        if leaf not in self._emitters:
            assert isinstance(leaf, LeafNest)
            if isinstance(leaf, CopyNest):
                self._emitters[leaf] = TileCopy(leaf, self._context)
            else:
                self._emitters[leaf] = Computation(leaf, self._context)
        return self._emitters[leaf]


def _unit_or_none(node: Node) -> Unit | None:
    return None if isinstance(node, LoopNode) else node.unit
