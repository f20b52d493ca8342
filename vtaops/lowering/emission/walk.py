"""Walk the loops of a parsed function and emit the operations of its leaves.

Every shape is static, so each leaf nest is evaluated with NumPy for the current values of the outer
loops (`transfers`, `computation`). Under virtual threads, neighbouring leaves of one unit are
emitted thread by thread, so that the loads of one thread can overlap with another's computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from vtaops.lowering.emission.computation import Computation
from vtaops.lowering.emission.context import Context
from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.emission.transfers import Transfers
from vtaops.lowering.operation import Operation
from vtaops.lowering.options import LoweringOptions
from vtaops.lowering.tree.expressions import Values
from vtaops.lowering.tree.nodes import CallNest, CopyNest, Loop, LoopNode, Node, Tree
from vtaops.machine.config import HardwareConfig
from vtaops.program import Buffer


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
    for pass_after_reset in (False, True):
        addresses = Addresses(tree, config, options.capacity)
        context = Context(config, options, addresses, pass_after_reset)
        transfers = Transfers(context, tree, buffers)
        operations = [*_Walk(context, transfers).run(tree.body, {}, None)]
        if not transfers.left_out or options.alu_passes:
            break
    return operations


class _Walk:
    def __init__(self, context: Context, transfers: Transfers) -> None:
        self._context = context
        self._transfers = transfers
        self._computations: dict[CallNest, list[Computation]] = {}

    def run(
        self, nodes: tuple[Node, ...], values: Values, threads: Loop | None
    ) -> Iterator[Operation]:
        """Execute statements in order; group neighbouring leaves of one unit."""
        for unit, group in groupby(nodes, _unit_or_none):
            if unit is not None:
                yield from self._leaves([*group], values, threads)
                continue
            for node in group:
                assert isinstance(node, LoopNode)
                if node.threads:
                    yield from self.run(node.body, values, node.loop)
                    continue
                for step in range(node.loop.extent):
                    yield from self.run(node.body, {**values, node.loop.name: step}, threads)

    def _leaves(
        self, group: list[Node], values: Values, threads: Loop | None
    ) -> Iterator[Operation]:
        for thread in range(threads.extent if threads else 1):
            bound = {**values, threads.name: thread} if threads else values
            for leaf in group:
                if isinstance(leaf, CopyNest):
                    yield from self._transfers.emit(leaf, bound, thread)
                elif isinstance(leaf, CallNest):
                    if leaf not in self._computations:
                        self._computations[leaf] = Computation.of(leaf, self._context)
                    for computation in self._computations[leaf]:
                        yield from computation.emit(bound, thread)


def _unit_or_none(node: Node) -> int | None:
    return None if isinstance(node, LoopNode) else int(node.unit)
