"""The concrete walk: run the loops of a parsed function and emit the operations of its leaves.

Every shape is static, so each leaf nest is evaluated with NumPy for the current values of the outer
loops (`transfers`, `computation`). Under virtual threads, neighbouring leaves of one unit are
emitted thread by thread, so that the loads of one thread can run under the computation of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from vtaops.lowering.emission.computation import Computation
from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.emission.transfers import Transfers
from vtaops.lowering.emission.voids import Padding
from vtaops.lowering.operation import Operation
from vtaops.lowering.options import LoweringOptions
from vtaops.lowering.parsing.expressions import Values
from vtaops.lowering.parsing.nests import (
    CallNest,
    CopyNest,
    LeafNest,
    Loop,
    LoopNode,
    Node,
    Tree,
    leaves,
)
from vtaops.lowering.passes.dead_loads import without_dead_loads
from vtaops.machine.config import HardwareConfig
from vtaops.program import Buffer


def walk(
    tree: Tree, buffers: tuple[Buffer, ...], config: HardwareConfig, options: LoweringOptions
) -> list[Operation]:
    """Return the operations of a parsed function in program order, without synchronisation.

    Raises
    ------
    ScheduleError
        If a scratchpad overflows.
    """
    found, products_left_out = _walked(tree, buffers, config, options, pass_after_reset=False)
    if products_left_out and not options.alu_passes:
        found, _ = _walked(tree, buffers, config, options, pass_after_reset=True)
    return without_dead_loads(found, config)


def _walked(
    tree: Tree,
    buffers: tuple[Buffer, ...],
    config: HardwareConfig,
    options: LoweringOptions,
    pass_after_reset: bool,
) -> tuple[list[Operation], bool]:
    """Return the operations, and whether products with padding had to be left out.

    With `pass_after_reset`, the ALU adds 0 to every accumulator after its reset: some hardware
    stores only what the ALU or a product wrote, and then there may be no product.
    """
    addresses = Addresses(tree, config, options.capacity)
    padding = Padding(options.skip_padding)
    copies = [leaf for leaf in leaves(tree.body) if isinstance(leaf, CopyNest)]
    loaded = {leaf.src.name for leaf in copies if leaf.dst.scratchpad and leaf.src is not None}
    transfers = Transfers(config, buffers, loaded, addresses, padding, dict(options.borders))
    depth = options.depth(config)
    computation = Computation(
        config, addresses, padding, depth, pass_after_reset, options.keep_weights
    )
    operations = list(_Walk(transfers, computation).run(tree.body, {}, None))
    return operations, transfers.left_out


class _Walk:
    def __init__(self, transfers: Transfers, computation: Computation) -> None:
        self._transfers = transfers
        self._computation = computation

    def run(self, nodes: list[Node], values: Values, threads: Loop | None) -> Iterator[Operation]:
        """Execute statements in order; neighbouring leaves of one unit form a group."""
        for unit, group in groupby(nodes, _unit_or_none):
            if unit is not None:
                yield from self._leaves(list(group), values, threads)
                continue
            for node in group:
                assert isinstance(node, LoopNode)
                if node.threads:
                    yield from self.run(node.body, values, node.loop)
                else:
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
                    yield from self._computation.emit(leaf, bound, thread)


def _unit_or_none(node: Node) -> int | None:
    return int(node.unit) if isinstance(node, LeafNest) else None
