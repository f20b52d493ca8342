"""Call nests to GEMM and ALU: which iterations are needed, and what they leave out.

Owns the decisions that depend on what the tiles hold (padding, void tiles); the evaluation of one
nest is `evaluated_nest`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np

from vtaops.lowering.emission.evaluated_nest import Box, EvaluatedNest
from vtaops.lowering.emission.scratchpads import Addresses
from vtaops.lowering.emission.voids import Mask, Padding, boxes
from vtaops.lowering.operation import Operation
from vtaops.lowering.parsing.accumulate import JOIN_CALL
from vtaops.lowering.parsing.expressions import Values
from vtaops.lowering.parsing.nests import PRODUCT_CALL, CallNest, TileOperand
from vtaops.lowering.passes.windows import WINDOW_CALL
from vtaops.machine.config import WINDOW_TILES, HardwareConfig
from vtaops.schedule.intrinsics import GEMM_CALL, RESET_CALL


class Computation:
    """Emits the computation of one operator.

    Parameters
    ----------
    config : HardwareConfig
        For which hardware.
    addresses : Addresses
        Where the tiles lie.
    padding : Padding
        What of the tiles is padding.
    micro_op_depth : int
        Most micro-ops of one instruction.
    pass_after_reset : bool
        Whether the ALU adds 0 to what was reset.
    keep_weights : bool
        As `LoweringOptions.keep_weights`.
    """

    def __init__(
        self,
        config: HardwareConfig,
        addresses: Addresses,
        padding: Padding,
        micro_op_depth: int,
        pass_after_reset: bool = False,
        keep_weights: bool = False,
    ) -> None:
        self._config = config
        self._addresses = addresses
        self._padding = padding
        self._micro_op_depth = micro_op_depth
        self._pass_after_reset = pass_after_reset
        self._keep_weights = keep_weights
        self._nests: dict[CallNest, tuple[EvaluatedNest, ...]] = {}
        self._cuts: dict[Hashable, list[tuple[range, ...]]] = {}

    def emit(self, leaf: CallNest, values: Values, thread: int) -> Iterator[Operation]:
        """Return the instructions of a call for the current values of the outer loops."""
        if leaf not in self._nests:
            self._nests[leaf] = tuple(self._evaluated(half) for half in _halves(leaf))
        for nest in self._nests[leaf]:
            yield from self._emit(nest, values, thread)

    def _evaluated(self, leaf: CallNest) -> EvaluatedNest:
        if leaf.call == RESET_CALL and self._pass_after_reset:
            leaf = replace(leaf, imm=leaf.imm or 0)
        return EvaluatedNest(
            leaf, self._config, self._addresses, self._micro_op_depth, self._keep_weights
        )

    def _emit(self, nest: EvaluatedNest, values: Values, thread: int) -> Iterator[Operation]:
        box = nest.box(values)
        if box is None:
            return
        if nest.leaf.call == RESET_CALL:
            filled = nest.leaf.operands[0].buffer.name
            self._addresses.fill(filled, thread)
            self._padding.voids.begin(filled, thread)
        for part in self._needed(nest, box, values, thread):
            for regular in nest.regular(part, values):
                yield from nest.operations(regular, values, thread)

    def _needed(self, nest: EvaluatedNest, box: Box, values: Values, thread: int) -> Iterator[Box]:
        """Leave out the iterations that a guard excludes or that read a void tile or padding."""
        # Axes of extent 1 stand for whole loops that make no difference.
        needed = None
        for guard in nest.partial_guards:
            holds = nest.evaluate(guard, box, values)
            needed = holds if needed is None else needed & holds
        for operand in nest.leaf.operands[1:]:
            unread = self._unread(nest, operand, box, values, thread)
            if unread is not None:
                needed = ~unread if needed is None else needed & ~unread
        if needed is None:
            yield box
            return
        for part in self._cut(needed):
            yield [
                span if extent == 1 else span[p.start : p.stop]
                for span, p, extent in zip(box, part, needed.shape, strict=True)
            ]

    def _cut(self, needed: Mask) -> list[tuple[range, ...]]:
        """Return `boxes`, remembered: masks recur."""
        key = needed.shape, needed.tobytes()
        if key not in self._cuts:
            self._cuts[key] = list(boxes(needed))
        return self._cuts[key]

    def _unread(
        self, nest: EvaluatedNest, operand: TileOperand, box: Box, values: Values, thread: int
    ) -> Mask | None:
        """Return the iterations whose operand is void, or padding that adds nothing."""
        name = self._addresses.root(
            operand.buffer.name
        )  # a stage in place leaves voids as they are
        zero, void = self._padding.zeros.of(name, thread), self._padding.voids.of(name, thread)
        if zero is None and void is None:
            return None
        positions = nest.positions(operand, box, values)
        # Iterations that a guard excludes may lie beyond the tile; what they find does not matter.
        padded = void if zero is None else zero  # no tile has both
        assert padded is not None
        unread = padded.take(positions, mode="clip")
        if nest.leaf.call == WINDOW_CALL and operand.buffer.scratchpad == "inp":
            for tile in range(1, WINDOW_TILES):
                unread = unread & padded.take(positions + tile, mode="clip")
        if zero is not None:
            return unread
        if nest.leaf.call in (GEMM_CALL, WINDOW_CALL) and operand.buffer.scratchpad == "inp":
            dst = nest.leaf.operands[0]
            written = nest.positions(dst, box, values)
            written, skipped = np.broadcast_arrays(written, unread)
            size = self._addresses.size(dst.buffer.name)
            self._padding.voids.mark(dst.buffer.name, thread, written[skipped], size)
        return unread


def _halves(leaf: CallNest) -> tuple[CallNest, ...]:
    """Return the calls that a leaf stands for: a product is a reset and an accumulation."""
    if leaf.call == JOIN_CALL:
        return ()
    if leaf.call == PRODUCT_CALL:
        reset = replace(leaf, call=RESET_CALL, operands=leaf.operands[:1])
        return reset, replace(leaf, call=GEMM_CALL)
    return (leaf,)
