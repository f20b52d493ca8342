"""Computation: a call nest with memoized iterations, operands and instructions.

The same iterations recur in every step of the outer loops, possibly with tiles at other addresses.
Results are memoized by the values of exactly those outer loops that they depend on. The contents of
tiles (padding, skipped tiles) determine which iterations are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.base.frozen import frozen
from vtaops.lowering.emission.context import Context, Iterations, Memo
from vtaops.lowering.emission.instructions import loop_fields, operation_of, roles
from vtaops.lowering.emission.microcode import AffineLoop, Strides, kernels
from vtaops.lowering.emission.padding import Mask, Padding, boxes
from vtaops.lowering.operation import Elements, Operation, Shift
from vtaops.lowering.tree.expressions import Values
from vtaops.lowering.tree.nodes import CallNest, TileOperand
from vtaops.machine.config import WINDOW_TILES, Extension
from vtaops.machine.isa import Alu, AluOp
from vtaops.schedule.calls import POOL_CALL, PRODUCT_CALLS, RESET_CALL, WINDOW_CALL


@frozen(frozen=True, eq=False)
class IterationBox:
    """The iterations of a nest to execute: one range per loop. Equal ones are one object."""

    spans: tuple[range, ...]


@dataclass(frozen=True, eq=False)
class _Needed:
    """The iterations to execute, and the accumulators of those that read padding alone."""

    parts: list[IterationBox]
    skipped: Elements


class Computation:
    """One GEMM, ALU or reset call with its loops."""

    def __init__(self, leaf: CallNest, context: Context) -> None:
        if leaf.call == RESET_CALL and context.pass_after_reset:
            leaf = replace(leaf, imm=leaf.imm or 0)
        self._leaf = leaf
        self._roles = roles(leaf)
        self._context = context
        self._addresses = context.addresses
        self._micro_op_depth = context.options.depth(context.config)
        self._iterations = Iterations(leaf.loops, leaf.guards)
        self._every = IterationBox(tuple(range(loop.extent) for loop in leaf.loops))
        self._point = self._iterations.picker(operand.offset for operand in leaf.operands)
        """What of the outer loops the operands depend on."""
        self._read = [context.addresses.root(o.buffer.name) for o in leaf.operands[1:]]
        """The buffers whose padding the operands that are read have."""
        self._known = Memo()

    def emit(self, values: Values, thread: int) -> Iterable[Operation]:
        """Return the instructions for the current values of the outer loops."""
        parts = self._needed(values, thread)
        if self._leaf.call == RESET_CALL and parts:
            self._begin(parts, values, thread)
        base = self._addresses.base
        dst, src, wgt = [base(o.buffer.name, thread) if o else 0 for o in self._roles]
        at = (dst, src, wgt)
        point = self._point(values)
        operations: list[Operation] = []
        for part in parts:
            operations += self._known.once((part, at, point), self._at, at, part, values)
        return operations

    def _begin(self, parts: list[IterationBox], values: Values, thread: int) -> None:
        """Begin the tile that a reset fills, or one more piece of it."""
        filled = self._leaf.dst
        if self._addresses.continues(filled.buffer.name, thread, values):
            for part in parts:
                positions = self._positions(filled, part, values)
                self._context.paddings.refill(filled.buffer.name, thread, positions)
        else:
            self._addresses.fill(filled.buffer.name, thread)
            self._context.paddings.begin(filled.buffer.name, thread)

    # --------------------------------------------------------------- needed iterations

    def _needed(self, values: Values, thread: int) -> list[IterationBox]:
        """Return the iterations that no guard excludes and that read no padding, in boxes.

        The accumulators of the others are skipped in turn.
        """
        paddings, dst = self._context.paddings, self._leaf.dst.buffer.name
        read = [paddings.of(root, thread) for root in self._read]
        key = self._iterations.decided(values), self._point(values), *read
        needed: _Needed = self._known.once(key, self._divided, values, read)
        if needed.skipped.size:
            known, size = paddings.of(dst, thread), self._addresses.tiles[dst].size
            more = self._known.once((needed, known), Padding.also, known, needed.skipped, size)
            paddings.begin(dst, thread, more)
        return needed.parts

    def _divided(self, values: Values, paddings: list[Padding | None]) -> _Needed:
        """Divide the iterations for the padding in each operand."""
        needed: Mask = self._held(values)
        held = needed
        skipped = np.zeros(0, np.int64)
        for operand, padding in zip(self._leaf.operands[1:], paddings, strict=True):
            if padding is None:
                continue
            unread = self._unread(operand, padding.mask, values)
            if not padding.zeros and self._multiplies(operand):
                positions = self._positions(self._leaf.dst, self._every, values)
                written, left_out = np.broadcast_arrays(positions, unread & held)
                skipped = written[left_out]
            needed = needed & ~unread
        return _Needed([*self._parts(needed)], skipped)

    def _held(self, values: Values) -> Mask:
        """Return the iterations that no guard excludes.

        An axis of extent 1 stands for a loop that does not matter.
        """
        held = np.ones((1,) * len(self._leaf.loops), np.bool_)
        for guard in self._leaf.guards:
            held = held & self._iterations.evaluate(guard, values)
        return held

    def _parts(self, needed: Mask) -> Iterator[IterationBox]:
        for part in boxes(needed):
            spans = zip(self._every.spans, part, needed.shape, strict=True)
            yield self._box(s if extent == 1 else p for s, p, extent in spans)

    def _multiplies(self, operand: TileOperand) -> bool:
        """Whether an operand is the input of products."""
        return operand.buffer.scratchpad == "inp" and self._leaf.call in PRODUCT_CALLS

    def _unread(self, operand: TileOperand, padded: Mask, values: Values) -> Mask:
        """Return the iterations whose operand is skipped, or padding that adds nothing."""
        positions = self._positions(operand, self._every, values)
        window = self._multiplies(operand) and self._leaf.call == WINDOW_CALL
        # Iterations that a guard excludes may lie beyond the tile; their result is ignored.
        tiles = (positions + tile for tile in range(WINDOW_TILES if window else 1))
        unread: Mask = np.all([padded.take(places, mode="clip") for places in tiles], axis=0)
        return unread

    # ---------------------------------------------------------------------- evaluation

    def _positions(self, operand: TileOperand, box: IterationBox, values: Values) -> Elements:
        """Return an operand's positions within its tile over the iterations of a box."""
        key = (operand.buffer.name, operand.offset, box, self._point(values))
        return self._known.once(key, self._positions_in, box.spans, operand, values)

    def _positions_in(
        self, spans: tuple[range, ...], operand: TileOperand, values: Values
    ) -> Elements:
        """Return positions over some iterations; offsets are evaluated once for all of them."""
        key = (operand.offset, self._point(values))
        tiles = self._known.once(key, self._iterations.evaluate, operand.offset, values)
        own = zip(spans, tiles.shape, strict=True)
        part = tiles[tuple(slice(s.start, s.stop) if n > 1 else slice(1) for s, n in own)]
        return self._addresses.tiles[operand.buffer.name].place(part)

    def _at(self, tiles: Shift, box: IterationBox, values: Values) -> list[Operation]:
        """Return the operations of a box for tiles (dst, src, wgt) at these addresses."""
        key = "templates", box, self._point(values)
        plain = self._known.once(key, self._templates, box, values)
        return [operation.moved(tiles) for operation in plain]

    def _templates(self, box: IterationBox, values: Values) -> list[Operation]:
        """Return the operations of a box, with elements relative to the starts of tiles."""
        parts = self._cut(box, values)
        return [operation for part in parts for operation in self._emitted(part, values)]

    def _emitted(self, box: IterationBox, values: Values) -> list[Operation]:
        """Return the operations of a box in which all operands move by equal steps."""
        self._check_in_place(box, values)
        affine = [self._affine(operand, box, values) for operand in self._roles]
        (dst, dst_steps), (src, src_steps), (wgt, wgt_steps) = affine
        steps = zip(box.spans, dst_steps, src_steps, wgt_steps, strict=True)
        loops = [AffineLoop(len(span), (d, s, w)) for span, d, s, w in steps]
        if self._leaf.call == POOL_CALL:
            return self._pools((dst, src, wgt), loops)
        pairs = self._leaf.call in PRODUCT_CALLS and self._context.config.has(Extension.PAIRS)
        emitted = list(kernels((dst, src, wgt), loops, self._micro_op_depth, pairs=pairs))
        operations = [operation_of(self._leaf, kernel) for kernel in emitted]
        if self._leaf.call == RESET_CALL and self._leaf.imm is not None:
            addition = {"alu_op": AluOp.ADD, "use_imm": 1, "imm": self._leaf.imm}
            operations += [
                replace(reset, instruction=Alu(**loop_fields(kernel, 1), **addition))
                for reset, kernel in zip(operations, emitted, strict=True)
            ]
        return operations

    def _check_in_place(self, box: IterationBox, values: Values) -> None:
        """Require operands in one tile to be one element, but the second, read-only one."""
        dst = self._leaf.operands[0]
        for operand in self._leaf.operands[1:2]:
            if self._addresses.root(operand.buffer.name) != self._addresses.root(dst.buffer.name):
                continue
            ours, theirs = (self._positions(o, box, values) for o in (dst, operand))
            if (ours != theirs).any():
                raise ScheduleError(
                    f"{dst.buffer.name} and {operand.buffer.name} share accumulators, and loop "
                    f"differently; compute them at the same loop"
                )

    def _pools(self, origin: Strides, loops: list[AffineLoop]) -> list[Operation]:
        """Return the maxima of a box; a loop over neighbouring inputs takes few steps."""
        along = next((loop for loop in loops if loop.strides[:2] == (0, 1)), AffineLoop(1, origin))
        others = [loop for loop in loops if loop is not along]
        dst, src, wgt = origin
        return [
            operation_of(self._leaf, kernel, min(WINDOW_TILES, along.extent - first))
            for first in range(0, along.extent, WINDOW_TILES)
            for kernel in kernels((dst, src + first, wgt), others, self._micro_op_depth)
        ]

    def _box(self, spans: Iterable[range]) -> IterationBox:
        own = (*spans,)
        return self._known.once(own, IterationBox, own)

    def _cut(self, box: IterationBox, values: Values) -> Iterator[IterationBox]:
        """Split a box until every operand has constant strides along every loop.

        A phase of a transposed convolution, for example, reads a pixel that is not affine in the
        phase.
        """
        bent = [o for o in self._leaf.operands if not self._is_straight(o)]
        for index, span in enumerate(box.spans):
            if len(span) > 2 and any(self._bends(o, box, index, values) for o in bent):
                for step in span:
                    one = range(step, step + 1)
                    part = self._box((*box.spans[:index], one, *box.spans[index + 1 :]))
                    yield from self._cut(part, values)
                return
        yield box

    def _is_straight(self, operand: TileOperand) -> bool:
        return operand.offset.affine and self._addresses.tiles[operand.buffer.name].is_whole

    def _bends(self, operand: TileOperand, box: IterationBox, index: int, values: Values) -> bool:
        """Whether an operand moves by unequal steps along a loop."""
        line = tuple(s if i == index else s[:1] for i, s in enumerate(box.spans))
        return bool(np.diff(self._positions_in(line, operand, values).ravel(), 2).any())

    def _affine(
        self, operand: TileOperand | None, box: IterationBox, values: Values
    ) -> tuple[int, list[int]]:
        """Return an operand's first position in its tile and its stride along each loop."""
        if operand is None:
            return 0, [0] * len(box.spans)
        places = self._positions(operand, box, values)
        flat = places.ravel()
        base = flat.item(0)
        inner = accumulate(reversed(places.shape[1:]), mul, initial=1)  # elements of a step
        steps = [*zip(places.shape, reversed([*inner]), strict=False)]
        strides = [flat.item(size) - base if extent > 1 else 0 for extent, size in steps]
        reach = sum(stride * (n - 1) for stride, n in zip(strides, places.shape, strict=True))
        if base + reach != flat.item(-1):
            raise ScheduleError(
                f"the operand {operand.buffer.name} moves by unequal steps in one loop nest; "
                f"VTA's loops add constants"
            )
        return base, strides
