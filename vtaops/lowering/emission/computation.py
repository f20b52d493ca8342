"""Call nests to GEMM and ALU: which iterations are needed, and what they leave out.

Owns the decisions that depend on what the tiles hold (padding, void tiles); the evaluation of one
nest is `evaluated_nest`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from vtaops.lowering.emission.context import Context
from vtaops.lowering.emission.evaluated_nest import Box, EvaluatedNest
from vtaops.lowering.emission.voids import Mask, boxes
from vtaops.lowering.operation import Operation
from vtaops.lowering.parsing.accumulate import JOIN_CALL
from vtaops.lowering.parsing.expressions import Values
from vtaops.lowering.parsing.nests import PRODUCT_CALL, CallNest, TileOperand
from vtaops.lowering.passes.windows import WINDOW_CALL
from vtaops.machine.config import WINDOW_TILES
from vtaops.schedule.intrinsics import GEMM_CALL, RESET_CALL


class Computation:
    """Emits the computation of one operator."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._addresses = context.addresses
        self._nests: dict[CallNest, tuple[EvaluatedNest, ...]] = {}
        self._cuts: dict[Hashable, list[tuple[range, ...]]] = {}

    def emit(self, leaf: CallNest, values: Values, thread: int) -> Iterator[Operation]:
        """Return the instructions of a call for the current values of the outer loops."""
        if leaf not in self._nests:
            halves = _halves(leaf, self._context.pass_after_reset)
            self._nests[leaf] = tuple(EvaluatedNest(half, self._context) for half in halves)
        for nest in self._nests[leaf]:
            yield from self._emit(nest, values, thread)

    def _emit(self, nest: EvaluatedNest, values: Values, thread: int) -> Iterator[Operation]:
        box = nest.box(values)
        if box is None:
            return
        if nest.leaf.call == RESET_CALL:
            filled = nest.leaf.operands[0].buffer.name
            self._addresses.fill(filled, thread)
            self._context.voids.begin(filled, thread)
        for part in self._needed(nest, box, values, thread):
            for regular in nest.regular(part, values):
                yield from nest.operations(regular, values, thread)

    def _needed(self, nest: EvaluatedNest, box: Box, values: Values, thread: int) -> Iterator[Box]:
        """Leave out the iterations that a guard excludes or that read a void tile or padding."""
        # Axes of extent 1 stand for whole loops that make no difference.
        conditions = [nest.evaluate(guard, box, values) for guard in nest.partial_guards]
        for operand in nest.leaf.operands[1:]:
            unread = self._unread(nest, operand, box, values, thread)
            if unread is not None:
                conditions.append(~unread)
        if not conditions:
            yield box
            return
        needed = reduce(np.logical_and, conditions)
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
        name = self._addresses.root(operand.buffer.name)  # stages in place leave voids as they are
        zero, void = self._context.zeros.of(name, thread), self._context.voids.of(name, thread)
        padded = void if zero is None else zero  # no tile has both
        if padded is None:
            return None
        positions = nest.positions(operand, box, values)
        # Iterations that a guard excludes may lie beyond the tile; what they find does not matter.
        unread = padded.take(positions, mode="clip")
        if operand.buffer.scratchpad != "inp" or nest.leaf.call not in (GEMM_CALL, WINDOW_CALL):
            return unread
        for tile in range(1, WINDOW_TILES if nest.leaf.call == WINDOW_CALL else 1):
            unread = unread & padded.take(positions + tile, mode="clip")
        if zero is None:
            dst = nest.leaf.operands[0]
            written, skipped = np.broadcast_arrays(nest.positions(dst, box, values), unread)
            size = self._addresses.size(dst.buffer.name)
            self._context.voids.mark(dst.buffer.name, thread, written[skipped], size)
        return unread


def _halves(leaf: CallNest, pass_after_reset: bool) -> tuple[CallNest, ...]:
    """Return the calls that a leaf stands for: a product is a reset and an accumulation."""
    if leaf.call == JOIN_CALL:
        return ()
    if leaf.call not in (PRODUCT_CALL, RESET_CALL):
        return (leaf,)
    reset = replace(leaf, call=RESET_CALL, operands=leaf.operands[:1])
    if pass_after_reset:
        reset.imm = reset.imm or 0
    return (reset,) if leaf.call == RESET_CALL else (reset, replace(leaf, call=GEMM_CALL))
